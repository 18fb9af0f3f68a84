#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/algorithm_facts.h"
#include "common/job/presets.h"
#include "common/job/text_format.h"
#include "common/job/validate.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using ::testing::HasSubstr;

constexpr char kUnit[] = "={kind: SGD, learning_rate: 1, momentum: 0, schedule { decay: CONSTANT }}";

// Returns the problems of a job with this preset and these changes.
std::string Error(const std::string& preset, std::vector<std::string> overrides = {}) {
  v1::Job job;
  overrides.push_back("algorithm.preset=" + preset);
  overrides.push_back("workers=2");
  overrides.push_back("model.synthetic.parameters=10");
  overrides.push_back("data.synthetic={}");
  EXPECT_TRUE(ApplyOverrides(overrides, &job).ok());
  const auto complete = FillDefaultsAndValidate(job);
  EXPECT_TRUE(complete.ok()) << complete.status();
  return std::string(CheckLocalSteps(*complete).message());
}

TEST(CheckLocalStepsTest, WhatTheErrorSaysMakesTheJobFit) {
  const std::string local = "algorithm.contribution.pseudo_gradient.local_optimizer";
  for (const char* preset : {"local_sgd", "diloco"}) {
    EXPECT_THAT(Error(preset), HasSubstr(absl::StrCat("set ", local, kUnit))) << preset;
    EXPECT_EQ(Error(preset, {local + kUnit}), "") << preset;
    EXPECT_NE(Error(preset, {local + kUnit, local + ".learning_rate=0.5"}), "") << preset;
    EXPECT_NE(Error(preset, {local + kUnit, local + ".weight_decay=0.1"}), "") << preset;
    EXPECT_NE(Error(preset, {local + kUnit, local + ".clip_norm=1"}), "") << preset;
    EXPECT_NE(Error(preset, {local + kUnit, local + ".schedule.warmup=0.1"}), "") << preset;
  }
  EXPECT_THAT(Error("easgd"), HasSubstr(absl::StrCat("set optimizer", kUnit)));
  EXPECT_EQ(Error("easgd", {std::string("optimizer") + kUnit}), "");
}

TEST(CheckLocalStepsTest, OtherContributionsHaveNone) {
  for (const char* preset : {"sync", "downpour", "dana", "gem"}) {
    EXPECT_THAT(Error(preset), HasSubstr("use a preset such as local_sgd, diloco or easgd")) << preset;
  }
}

TEST(CheckLocalStepsTest, AJobOfSuchAProgramHasTheIdentityByDefault) {
  const auto filled = [](std::vector<std::string> overrides) {
    for (const char* other :
         {"workers=2", "model.external={tensors: {name: 'w', shape: 3}, local_steps: true}",
          "model.initial_weights='w.safetensors'", "data.external.train_samples=100"}) {
      overrides.push_back(other);
    }
    v1::Job job;
    EXPECT_TRUE(ApplyOverrides(overrides, &job).ok());
    return FillDefaultsAndValidate(job);
  };
  for (const Preset& preset : Presets()) {
    const v1::Contribution& contribution = preset.algorithm.contribution();
    if (!contribution.has_pseudo_gradient() && !contribution.has_elastic()) continue;
    const auto job = filled({"algorithm.preset=" + preset.name});
    ASSERT_TRUE(job.ok()) << preset.name << ": " << job.status();
    EXPECT_EQ(CheckLocalSteps(*job), absl::OkStatus()) << preset.name;
  }
  // The job's other settings count, and are checked.
  EXPECT_THAT(std::string(filled({"algorithm.preset=diloco",
                                  "algorithm.contribution.pseudo_gradient.local_optimizer.weight_decay=0.1"})
                              .status()
                              .message()),
              HasSubstr("set algorithm.contribution.pseudo_gradient.local_optimizer="));
  EXPECT_THAT(std::string(filled({"algorithm.preset=sync"}).status().message()),
              HasSubstr("only pseudo_gradient and elastic support"));
}

}  // namespace
}  // namespace catchment
