#include "server/master/budget.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include "tests/server/master/testing.h"

namespace catchment {
namespace {

TEST(BudgetTest, EpochsEndWithTheLastSample) {
  const Budget budget = BudgetOf(MakeJob({.epochs = 3}), 103);
  EXPECT_EQ(budget.end, (Position{3, 0}));
  EXPECT_EQ(budget.total_samples, 309u);
  EXPECT_FALSE(budget.steps.has_value());
}

TEST(BudgetTest, SamplesAreRoundedUpToWholeMinibatchesOfAllWorkers) {
  v1::Job job = MakeJob({.synchronous = true, .workers = 4, .batch_size = 8});
  job.set_samples(140);
  EXPECT_EQ(BudgetOf(job, 103).end, (Position{1, 64}));
  EXPECT_EQ(BudgetOf(job, 103).total_samples, 167u);
  job.mutable_algorithm()->mutable_consistency()->mutable_asynchronous();
  EXPECT_EQ(BudgetOf(job, 103).end, (Position{1, 40}));
}

TEST(BudgetTest, SamplesNeverRunOverTheEndOfAnEpoch) {
  v1::Job job = MakeJob({.workers = 4, .batch_size = 8});
  job.set_samples(100);
  EXPECT_EQ(BudgetOf(job, 103).end, (Position{1, 0}));
  job.set_samples(103);
  EXPECT_EQ(BudgetOf(job, 103).end, (Position{1, 0}));
}

TEST(BudgetTest, UpdatesAreStepsAndExpectedSamples) {
  v1::Job job = MakeJob({.workers = 2, .batch_size = 10, .push_period = 3});
  job.set_updates(4);  // 12 steps of 20 samples; 6 steps an epoch of 103
  EXPECT_EQ(BudgetOf(job, 103).steps, 12u);
  EXPECT_EQ(BudgetOf(job, 103).total_samples, 206u);
  job.set_updates(3);  // 9 steps
  EXPECT_EQ(BudgetOf(job, 103).total_samples, 163u);
}

TEST(BudgetTest, UpdatesTakeAsManyContributionsAsTheirModeSays) {
  struct Case {
    const char* consistency;
    uint64_t minibatches;
  };
  for (const Case& c : {Case{"grouped { groups: 2 }", 75},
                        {"grouped { groups: 2 backup_workers: 1 }", 75},
                        {"synchronous { backup_workers: 1 }", 150},
                        {"asynchronous {}", 30},
                        {"n_softsync { n: 1 }", 150},
                        {"n_softsync { n: 2 }", 60},
                        {"n_softsync { n: 4 }", 30}}) {
    v1::Job job = MakeJob({.synchronous = false, .workers = 5, .push_period = 3});
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        c.consistency, job.mutable_algorithm()->mutable_consistency()));
    EXPECT_FALSE(PaceOf(job).synchronous);
    job.set_updates(10);
    EXPECT_EQ(BudgetOf(job, 1000).steps, c.minibatches) << c.consistency;
  }
}

TEST(BudgetTest, PaceOfElasticContributionsIsTheCommunicationPeriod) {
  v1::Job job = MakeJob({});
  EXPECT_EQ(PaceOf(job).steps_per_version, 1u);
  EXPECT_FALSE(PaceOf(job).contributes_first);
  job.mutable_algorithm()->mutable_contribution()->mutable_elastic()->set_communication_period(7);
  EXPECT_EQ(PaceOf(job).steps_per_version, 7u);
  EXPECT_TRUE(PaceOf(job).contributes_first);
}

TEST(BudgetTest, PaceOfPseudoGradientsIsTheLocalSteps) {
  v1::Job job = MakeJob({.workers = 2, .batch_size = 10});
  job.mutable_algorithm()->mutable_contribution()->mutable_pseudo_gradient()->set_local_steps(3);
  EXPECT_EQ(PaceOf(job).steps_per_version, 3u);
  job.set_updates(4);
  EXPECT_EQ(BudgetOf(job, 103).steps, 12u);
}

TEST(BudgetTest, PaceOfWhatIsSentEveryStepIsOne) {
  v1::Job job = MakeJob({});
  job.mutable_algorithm()->mutable_contribution()->mutable_energy_matching();
  EXPECT_EQ(PaceOf(job).steps_per_version, 1u);
  job.mutable_algorithm()->mutable_contribution()->mutable_look_ahead();
  EXPECT_EQ(PaceOf(job).steps_per_version, 1u);
}

}  // namespace
}  // namespace catchment
