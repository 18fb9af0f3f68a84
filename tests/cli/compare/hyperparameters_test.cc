#include <set>
#include <utility>

#include "cli/compare/compare_plan.h"
#include "common/job/presets.h"
#include "common/job/text_format.h"
#include "common/job/validate.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

v1::Job JobWith(const std::string& preset, int workers = 4, const v1::Job& more = {}) {
  v1::Job job = more;
  job.mutable_model()->add_layers()->mutable_flatten();
  job.mutable_model()->add_layers()->mutable_dense()->set_units(10);
  job.mutable_data()->mutable_drawn_digits();
  job.mutable_algorithm()->set_preset(preset);
  job.set_workers(workers);
  const auto complete = FillDefaultsAndValidate(job);
  EXPECT_TRUE(complete.ok()) << complete.status();
  return complete.value_or(v1::Job());
}

std::vector<Hyperparameters> GridOf(const std::string& preset, int workers, const std::string& own = "",
                                    const std::string& set = "") {
  v1::Job given, fixed;
  EXPECT_TRUE(ParseText(own, "given", "", &given).ok());
  EXPECT_TRUE(ParseText(set, "set", "", &fixed).ok());
  given.MergeFrom(fixed);
  given.mutable_algorithm()->set_preset(preset);
  return SearchGrid(SpaceOf(given, JobWith(preset, workers, given), fixed));
}

// Rates with momenta.
using Points = std::set<std::pair<float, float>>;

Points PointsOf(const std::vector<Hyperparameters>& grid) {
  Points points;
  for (const Hyperparameters& point : grid) points.insert({point.learning_rate, point.momentum.value_or(0)});
  EXPECT_EQ(points.size(), grid.size()) << "none is tried twice";
  return points;
}

// An algorithm must not win because its preset is nearer to the optimum, nor lose to its own preset.
TEST(SearchGrid, IsTheSameForAllAlgorithmsWithSgdBesideThePresetsOwnRate) {
  const Points common = {{0.1f, 0},     {0.2f, 0},     {0.5f, 0},     {1, 0},       {2, 0},
                         {0.01f, 0.9f}, {0.02f, 0.9f}, {0.05f, 0.9f}, {0.1f, 0.9f}, {0.2f, 0.9f}};
  for (const char* preset : {"sync", "downpour", "staleness_aware", "easgd", "dana", "gem", "local_sgd"}) {
    const std::vector<Hyperparameters> grid = GridOf(preset, 4);
    const Hyperparameters own = HyperparametersOf(JobWith(preset));
    EXPECT_EQ(grid.front().learning_rate, own.learning_rate) << preset;
    EXPECT_EQ(grid.front().momentum, own.momentum) << preset;
    Points expected = common;
    expected.insert({own.learning_rate, own.momentum.value_or(0)});
    EXPECT_EQ(PointsOf(grid), expected) << preset;
  }
}

TEST(SearchGrid, OfAnOptimizerWithoutMomentumIsAroundItsDefault) {
  const std::vector<Hyperparameters> grid = GridOf("diloco", 4);
  EXPECT_EQ(PointsOf(grid), (Points{{0.0002f, 0}, {0.0004f, 0}, {0.001f, 0}, {0.002f, 0}, {0.004f, 0}}));
  EXPECT_EQ(grid.front().learning_rate, 0.002f) << "of the preset";
  EXPECT_FALSE(grid.front().momentum.has_value());
}

TEST(SearchGrid, IsAroundTheLearningRateOfTheJob) {
  const Points points = PointsOf(GridOf("sync", 4, "optimizer { learning_rate: 0.02 momentum: 0.8 }"));
  EXPECT_EQ(points.size(), 11u);
  EXPECT_TRUE(points.count({0.02f, 0.8f})) << "that of the job";
  EXPECT_TRUE(points.count({0.1f, 0})) << "the step of the job, without momentum";
  EXPECT_TRUE(points.count({0.01f, 0.9f})) << "the same";
}

TEST(SearchGrid, EndsAtThePresetsLimitForTheWorkers) {
  const std::vector<Hyperparameters> grid = GridOf("downpour", 40);
  ASSERT_EQ(grid.size(), 10u);
  EXPECT_FLOAT_EQ(grid[0].learning_rate, 0.01f) << "0.4 / 40, that of the preset";
  EXPECT_FLOAT_EQ(grid[4].learning_rate, 0.005f);
  EXPECT_FLOAT_EQ(grid[9].learning_rate, 0.001f);
  EXPECT_TRUE(PointsOf(GridOf("sync", 40)).count({2, 0})) << "nothing is stale";
}

TEST(SearchGrid, KeepsTheValuesOfSet) {
  const std::vector<Hyperparameters> rate = GridOf("sync", 4, "", "optimizer { learning_rate: 0.125 }");
  ASSERT_EQ(rate.size(), 2u);
  EXPECT_EQ(PointsOf(rate), (Points{{0.125f, 0}, {0.125f, 0.9f}}));
  const std::vector<Hyperparameters> momentum = GridOf("sync", 4, "", "optimizer { momentum: 0.5 }");
  EXPECT_EQ(momentum.size(), 5u) << "the rate of the preset is one of them";
  for (const Hyperparameters& point : momentum) EXPECT_EQ(point.momentum, 0.5f);
  EXPECT_EQ(GridOf("sync", 4, "", "optimizer { learning_rate: 1 momentum: 0.5 }").size(), 1u);
}

TEST(KeepLearningRate, OfServersAndWorkersAfterTheWarmUp) {
  for (const char* preset : {"sync", "easgd", "local_sgd"}) {
    v1::Job job = JobWith(preset);
    job.mutable_optimizer()->mutable_schedule()->set_warmup(0.25f);
    KeepLearningRate(&job);
    EXPECT_EQ(job.optimizer().schedule().decay(), v1::Schedule::CONSTANT) << preset;
    EXPECT_EQ(job.optimizer().schedule().warmup(), 0.25f) << preset;
    if (job.algorithm().contribution().has_pseudo_gradient()) {
      EXPECT_EQ(job.algorithm().contribution().pseudo_gradient().local_optimizer().schedule().decay(),
                v1::Schedule::CONSTANT);
    }
    EXPECT_TRUE(FillDefaultsAndValidate(job).ok()) << preset;
  }
}

// For each algorithm: a value that is set can be read again, and gives a valid job.
TEST(Hyperparameters, OfEveryPreset) {
  for (const Preset& preset : Presets()) {
    v1::Job job = JobWith(preset.name);
    Hyperparameters hyperparameters = HyperparametersOf(job);
    EXPECT_GT(hyperparameters.learning_rate, 0) << preset.name;
    // AdamW's momentum are its betas.
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
