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

TEST(MakePlan, FoundHyperparametersAreOfTheirAlgorithmAndItsWorkers) {
  const FoundHyperparameters found = {{{"downpour", 4}, {0.5f, 0.3f}}};
  for (const PlannedRun& run : Plan(Options(), Given(), found).runs) {
    EXPECT_EQ(run.job.optimizer().momentum(), run.algorithm == "downpour" && run.workers == 4 ? 0.3f
                                              : run.algorithm == "downpour"                   ? 0.8f
                                                                                              : 0.9f);
  }
}

std::vector<PlannedSearch> Searches(const CompareOptions& options, const v1::Job& given = Given()) {
  const auto searches = PlanSearches(options, given);
  EXPECT_TRUE(searches.ok()) << searches.status();
  return searches.value_or(std::vector<PlannedSearch>());
}

TEST(PlanSearches, EachAlgorithmWithEachNumberOfWorkersAtTheCostOfARun) {
  const std::vector<PlannedSearch> searches = Searches(Options());
  ASSERT_EQ(searches.size(), 4u);
  std::set<std::string> directories;
  for (const PlannedSearch& search : searches) {
    EXPECT_EQ(search.trials.size(), search.algorithm == "sync" ? 10u : 11u) << search.algorithm;
    double samples = 0;
    for (int rung = 0; rung < static_cast<int>(search.rungs.size()); ++rung) {
      for (int trial = 0; trial < search.rungs[rung].trials; ++trial) {
        const auto run = PlanTrial(Options(), Given(), search, trial, rung, search.rungs[rung].share);
        ASSERT_TRUE(run.ok()) << run.status();
        samples += static_cast<double>(run->job.samples());
        EXPECT_EQ(run->seed, 3u) << "the runs have 1 and 2";
        EXPECT_EQ(run->job.workers(), static_cast<uint32_t>(search.workers));
        EXPECT_EQ(run->job.optimizer().schedule().decay(), v1::Schedule::CONSTANT);
        directories.insert(run->directory);
      }
    }
    EXPECT_NEAR(samples, 120000, 20);
  }
  EXPECT_EQ(directories.size(), 4u * (10 + 3) + 2) << "downpour's own rate is not one of the ten";
  EXPECT_THAT(directories, ::testing::Contains("search/downpour-4-workers-trial-3-rung-1"));
}

TEST(PlanSearches, LeavesOutWhatAnAlgorithmDoesNotSupport) {
  CompareOptions options = Options();
  options.algorithms = {"gap_aware", "hybrid"};
  const std::vector<PlannedSearch> searches = Searches(options);
  ASSERT_EQ(searches.size(), 3u) << "hybrid needs two workers";
  for (const Hyperparameters& trial : searches[0].trials) EXPECT_EQ(trial.momentum, 0.9f);
  EXPECT_EQ(searches[0].trials[0].learning_rate, 0.03f) << "the preset's own comes first";
}

TEST(PlanSearches, NoneIfThereIsNothingToFind) {
  CompareOptions options = Options();
  EXPECT_EQ(UntunedRates(options, Given()), "");
  options.search = SearchKind::kNone;
  EXPECT_TRUE(Searches(options).empty());
  EXPECT_THAT(UntunedRates(options, Given()), HasSubstr("not tuned (--search=none)"));
  options.search = SearchKind::kHalving;
  options.set = {"optimizer.learning_rate=0.125"};
  EXPECT_EQ(Searches(options, Given(options.set))[0].trials.size(), 2u) << "momentum alone";
  EXPECT_THAT(UntunedRates(options, Given(options.set)), HasSubstr("comes from --set and was not tuned"));
  options.set.push_back("optimizer.momentum=0.5");
  EXPECT_TRUE(Searches(options, Given(options.set)).empty());
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
  EXPECT_THAT(std::string(PlanSearches(options, given).status().message()),
              HasSubstr("give the budget in samples, or add --search=none"));
}

}  // namespace
}  // namespace catchment
