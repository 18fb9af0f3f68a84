#include "cli/compare/compare_plan.h"
#include "common/job/presets.h"
#include "common/job/validate.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

v1::Job JobWith(const std::string& preset) {
  v1::Job job;
  job.mutable_model()->add_layers()->mutable_flatten();
  job.mutable_model()->add_layers()->mutable_dense()->set_units(10);
  job.mutable_data()->mutable_drawn_digits();
  job.mutable_algorithm()->set_preset(preset);
  job.set_workers(4);
  const auto complete = FillDefaultsAndValidate(job);
  EXPECT_TRUE(complete.ok()) << complete.status();
  return complete.value_or(v1::Job());
}

TEST(SearchGrid, FourMomentaTimesTwoLearningRates) {
  const std::vector<Hyperparameters> grid = SearchGrid({0.5f, 0.7f});
  ASSERT_EQ(grid.size(), 8u);
  EXPECT_EQ(grid[0].learning_rate, 0.5f);
  EXPECT_EQ(grid[3].momentum, 0.9f);
  EXPECT_FLOAT_EQ(grid[7].learning_rate, 0.05f);
  EXPECT_EQ(SearchGrid({0.5f, std::nullopt}).size(), 2u);
}

// For each algorithm: a value that is set can be read again, and gives a valid job.
TEST(Hyperparameters, OfEveryPreset) {
  for (const Preset& preset : Presets()) {
    v1::Job job = JobWith(preset.name);
    Hyperparameters hyperparameters = HyperparametersOf(job);
    EXPECT_GT(hyperparameters.learning_rate, 0) << preset.name;
    // DiLoCo's workers use AdamW, whose momentum are its betas.
    const bool has_adamw =
        preset.algorithm.contribution().pseudo_gradient().local_optimizer().kind() == v1::Optimizer::ADAMW;
    EXPECT_EQ(hyperparameters.momentum.has_value(), !has_adamw) << preset.name;
    hyperparameters.learning_rate /= 10;
    if (hyperparameters.momentum.has_value()) hyperparameters.momentum = 0.3f;
    SetHyperparameters(hyperparameters, &job);
    EXPECT_EQ(HyperparametersOf(job).learning_rate, hyperparameters.learning_rate) << preset.name;
    EXPECT_EQ(HyperparametersOf(job).momentum, hyperparameters.momentum) << preset.name;
    const auto valid = FillDefaultsAndValidate(job);
    EXPECT_TRUE(valid.ok()) << preset.name << ": " << valid.status();
  }
}

TEST(Hyperparameters, WithoutMomentumThereIsNoNesterov) {
  v1::Job job = JobWith("eamsgd");
  ASSERT_TRUE(job.optimizer().nesterov());
  SetHyperparameters({0.1f, 0.0f}, &job);
  EXPECT_FALSE(job.optimizer().nesterov());
}

}  // namespace
}  // namespace catchment
