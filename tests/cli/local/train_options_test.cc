#include "cli/local/train.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

absl::StatusOr<TrainOptions> Parse(const std::vector<std::string>& args) {
  TrainOptions options;
  options.args = args;
  CommandLine line = TrainCommandLine(&options);
  if (absl::Status status = line.Parse(args); !status.ok()) return status;
  return options;
}

std::string Error(const std::vector<std::string>& args) {
  return std::string(Parse(args).status().message());
}

TEST(TrainOptionsTest, TakesAllFlags) {
  const auto options =
      Parse({"job", "--servers=2", "--workers", "3", "--set", "seed=2", "--set=epochs=1", "--out=o", "--json",
             "--resume", "--evaluator=false", "--threads=4", "--device=cuda"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->job, "job");
  EXPECT_EQ(options->servers, 2);
  EXPECT_EQ(options->workers, 3);
  EXPECT_THAT(options->set, ElementsAre("seed=2", "epochs=1"));
  EXPECT_EQ(options->out, "o");
  EXPECT_TRUE(options->json && options->resume == AutoSwitch::kOn && !options->evaluator);
  EXPECT_EQ(options->threads, 4);
  EXPECT_EQ(options->device, "cuda");
}

TEST(TrainOptionsTest, RefusesMissingAndConflictingFlags) {
  EXPECT_THAT(Error({"--out=o"}), HasSubstr("takes one JOB, for example: catchment train examples/"));
  EXPECT_THAT(Error({"job", "--out="}), HasSubstr("--out=: needs a directory"));
  EXPECT_THAT(Error({"a", "b", "--out=o"}), HasSubstr("takes one JOB, but got also b"));
  EXPECT_THAT(Error({"job", "--out=o", "--resume", "--overwrite"}), HasSubstr("choose one"));
  EXPECT_THAT(Error({"job", "--out=o", "--device=gpu"}), HasSubstr("takes auto, cpu, cuda or cuda:INDEX"));
  EXPECT_THAT(Error({"job", "--out=o", "--device=cuda:x"}), HasSubstr("takes auto, cpu, cuda or cuda:INDEX"));
}

TEST(TrainOptionsTest, WritesToOutUnlessTold) {
  const auto options = Parse({"job"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->out, "out");
}

TEST(TrainOptionsTest, TakesADeviceInEitherCase) {
  EXPECT_TRUE(Parse({"job", "--out=o", "--device=CUDA:1"}).ok());
  EXPECT_TRUE(Parse({"job", "--out=o", "--device=Cpu"}).ok());
}

TEST(TrainOptionsTest, AResumedRunNeedsNoJob) { EXPECT_TRUE(Parse({"--resume", "--out=o"}).ok()); }

TEST(TrainOptionsTest, AProgramMayTakeThePlaceOfAJob) {
  const auto options = Parse({"--program=python train.py", "--out=o"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(options->program, "python train.py");
  EXPECT_EQ(options->job, "");
}

TEST(TrainHelpTest, HasExamplesAndEveryFlag) {
  TrainOptions options;
  const std::string help = TrainCommandLine(&options).Help(/*all=*/true, 80);
  for (const char* word : {"Examples:", "--out=DIR", "--servers=N", "--set=PATH=VALUE", "--resume"}) {
    EXPECT_THAT(help, HasSubstr(word));
  }
}

TEST(ResumeCommandTest, RepeatsTheCommandForAShell) {
  const auto options =
      Parse({"job", "--overwrite", "--set", "data.drawn_digits={seed: 2}", "--set=name=a'b", "--out=o"});
  ASSERT_TRUE(options.ok()) << options.status();
  EXPECT_EQ(ResumeCommand(*options),
            "catchment train job --set 'data.drawn_digits={seed: 2}' '--set=name=a'\\''b' --out=o --resume");
}

}  // namespace
}  // namespace catchment
