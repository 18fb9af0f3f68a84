#include "cli/compare/compare_plan.h"

#include <set>

#include "common/job/job_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using ::testing::HasSubstr;

v1::Job Given(const std::vector<std::string>& overrides = {}) {
  const auto job = LoadJob("examples/mnist_mlp.textproto", overrides);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.value_or(v1::Job());
}

CompareOptions Options() {
  CompareOptions options;
  options.algorithms = {"sync", "downpour"};
  options.workers = {1, 4};
  options.seeds = 2;
  options.budget.samples = 120000;
  return options;
}

ComparePlan Plan(const CompareOptions& options, const v1::Job& given = Given(),
                 const FoundHyperparameters& found = {}) {
  const auto plan = MakePlan(options, given, found);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.value_or(ComparePlan());
}

TEST(MakePlan, EveryCombinationOnceSeedBySeed) {
  const ComparePlan plan = Plan(Options());
  ASSERT_EQ(plan.runs.size(), 8u);
  std::set<std::string> directories;
  for (const PlannedRun& run : plan.runs) directories.insert(run.directory);
  EXPECT_EQ(directories.size(), 8u);
  EXPECT_EQ(plan.runs[1].directory, "runs/downpour-1-workers-seed-1");
  EXPECT_EQ(plan.runs[3].seed, 1u);
  EXPECT_EQ(plan.runs[4].seed, 2u);
}

TEST(MakePlan, RunsDifferInAlgorithmWorkersAndSeedAlone) {
  for (const PlannedRun& run : Plan(Options()).runs) {
    EXPECT_EQ(run.job.samples(), 120000u);
    EXPECT_EQ(run.job.batch_size(), 64u);
    EXPECT_EQ(run.job.algorithm().preset(), run.algorithm);
    EXPECT_EQ(run.job.workers(), static_cast<uint32_t>(run.workers));
    EXPECT_EQ(run.job.seed(), run.seed);
    EXPECT_EQ(run.job.checkpoint().every_updates(), 0u);
    EXPECT_NEAR(run.job.evaluation().every_epochs(), 2.0 / 15, 1e-6);
  }
}

TEST(MakePlan, AStragglerIsOnlyWhereItsWorkerIs) {
  CompareOptions options = Options();
  options.stragglers.resize(1);
  options.stragglers[0].set_worker(1);
  options.stragglers[0].set_slowdown_factor(4);
  for (const PlannedRun& run : Plan(options).runs) {
    EXPECT_EQ(run.job.faults().stragglers_size(), run.workers == 4 ? 1 : 0);
  }
}

TEST(MakePlan, SettingsOfTheJobsPresetAndOfTheOptimizerAreKept) {
  const v1::Job given = Given({"algorithm.preset=downpour", "algorithm.contribution.gradient.push_period=3",
                               "optimizer.learning_rate=0.125"});
  for (const PlannedRun& run : Plan(Options(), given).runs) {
    EXPECT_EQ(run.job.algorithm().contribution().gradient().push_period(),
              run.algorithm == "downpour" ? 3u : 1u);
    EXPECT_EQ(run.job.optimizer().learning_rate(), 0.125f);
    EXPECT_EQ(run.job.algorithm().consistency().has_asynchronous(), run.algorithm == "downpour");
  }
}

TEST(MakePlan, SetChangesEveryAlgorithm) {
  CompareOptions options = Options();
  options.set = {"algorithm.contribution.gradient.push_period=3", "optimizer.learning_rate=0.125"};
  options.algorithms = {"sync", "downpour", "staleness_aware"};
  for (const PlannedRun& run : Plan(options, Given(options.set)).runs) {
    EXPECT_EQ(run.job.algorithm().preset(), run.algorithm);
    EXPECT_EQ(run.job.algorithm().contribution().gradient().push_period(), 3u) << run.algorithm;
    EXPECT_EQ(run.job.optimizer().learning_rate(), 0.125f) << run.algorithm;
  }
  // A whole message has no preset, or that of one of them.
  options.set = {"algorithm={preset: 'downpour' contribution { gradient { push_period: 2 } }}"};
  for (const PlannedRun& run : Plan(options, Given(options.set)).runs) {
    EXPECT_EQ(run.job.algorithm().preset(), run.algorithm);
    EXPECT_EQ(run.job.algorithm().contribution().gradient().push_period(), 2u) << run.algorithm;
  }
}

TEST(MakePlan, AnAlgorithmThatDoesNotSupportWhatIsSetIsRefused) {
  CompareOptions options = Options();
  options.set = {"algorithm.compensation.open_loop_momentum.averaging=0.5"};
  options.algorithms = {"staleness_aware", "sync"};
  const std::string refused(MakePlan(options, Given(options.set), {}).status().message());
  EXPECT_THAT(refused, HasSubstr("sync supports none of --workers"));
  EXPECT_THAT(refused, HasSubstr("open_loop_momentum"));
}

TEST(MakePlan, SecondsEndARunAndTheRateStays) {
  CompareOptions options = Options();
  options.budget = {0, 2.5};
  for (const PlannedRun& run : Plan(options).runs) {
    EXPECT_EQ(run.seconds, 2.5);
    EXPECT_GT(run.job.samples(), 1e11);
    EXPECT_EQ(run.job.optimizer().schedule().decay(), v1::Schedule::CONSTANT);
  }
}

TEST(MakePlan, UnsupportedRunsAreLeftOutWithTheReason) {
  CompareOptions options = Options();
  options.algorithms = {"sync", "hybrid"};
  const ComparePlan plan = Plan(options);
  EXPECT_EQ(plan.runs.size(), 6u);
  ASSERT_EQ(plan.left_out.size(), 1u);
  EXPECT_EQ(plan.left_out[0].algorithm, "hybrid");
  EXPECT_EQ(plan.left_out[0].workers, 1);
  EXPECT_THAT(plan.left_out[0].reason, HasSubstr("every group needs a worker"));
  options.workers = {1};
  EXPECT_THAT(std::string(MakePlan(options, Given(), {}).status().message()),
              HasSubstr("hybrid supports none of --workers"));
}

TEST(MakePlan, FoundHyperparametersAreOfTheirAlgorithm) {
  const FoundHyperparameters found = {{"downpour", {0.5f, 0.3f}}};
  for (const PlannedRun& run : Plan(Options(), Given(), found).runs) {
    EXPECT_EQ(run.job.optimizer().momentum(), run.algorithm == "downpour" ? 0.3f : 0.9f);
  }
}

TEST(PlanSearch, AQuarterOfTheBudgetWithTheMostWorkers) {
  const auto probes = PlanSearch(Options(), Given(), "downpour");
  ASSERT_TRUE(probes.ok()) << probes.status();
  ASSERT_EQ(probes->size(), 8u);
  std::set<std::string> directories;
  for (const PlannedRun& probe : *probes) {
    EXPECT_EQ(probe.job.samples(), 30000u);
    EXPECT_EQ(probe.workers, 4);
    directories.insert(probe.directory);
  }
  EXPECT_EQ(directories.size(), 8u);
  EXPECT_THAT(directories, ::testing::Contains("search/downpour-learning-rate-0.003-momentum-0.6"));
}

// The number of rows of a table is not known when a comparison is planned.
TEST(MakePlan, EpochsOfATableAreCountedByWorkers) {
  v1::Job given = Given();
  given.set_epochs(10);
  v1::FileDataset* const table = given.mutable_data()->mutable_table();
  table->add_train("a.csv");
  for (int size : {1, 28, 28}) table->add_shape(size);
  table->set_classes(10);
  CompareOptions options = Options();
  options.budget = {};
  for (const PlannedRun& run : Plan(options, given).runs) {
    EXPECT_EQ(run.job.epochs(), 10u);
    EXPECT_GT(run.job.evaluation().every_epochs(), 0);
    EXPECT_LT(run.job.evaluation().every_epochs(), 1);
  }
  EXPECT_THAT(std::string(PlanSearch(options, given, "downpour").status().message()),
              HasSubstr("give the budget in samples"));
}

}  // namespace
}  // namespace catchment
