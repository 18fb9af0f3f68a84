// Tests each warning with a status at its bound and one beyond it.
#include "cli/live/advice.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/live/healthy_status.h"

namespace catchment {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> Codes(const v1::JobStatus& status) {
  std::vector<std::string> codes;
  for (const Warning& warning : Advise(status)) codes.push_back(warning.code);
  return codes;
}

// Returns the only warning.
Warning One(const v1::JobStatus& status) {
  const std::vector<Warning> warnings = Advise(status);
  EXPECT_EQ(warnings.size(), 1u) << testing::PrintToString(Codes(status));
  return warnings.empty() ? Warning() : warnings[0];
}

v1::Progress* ProgressOf(v1::JobStatus* status, int worker) {
  return status->mutable_workers(worker)->mutable_progress();
}

v1::Algorithm* AlgorithmOf(v1::JobStatus* status) { return status->mutable_settings()->mutable_algorithm(); }

// Returns the status of a job that has just begun: all counts and times are divided by this factor.
v1::JobStatus Younger(v1::JobStatus status, double times) {
  for (v1::WorkerStatus& worker : *status.mutable_workers()) {
    v1::Progress* progress = worker.mutable_progress();
    progress->set_steps(static_cast<uint64_t>(progress->steps() / times));
    progress->set_compute_seconds(progress->compute_seconds() / times);
    progress->set_push_seconds(progress->push_seconds() / times);
    progress->set_pull_seconds(progress->pull_seconds() / times);
    progress->set_data_seconds(progress->data_seconds() / times);
  }
  status.set_wall_seconds(status.wall_seconds() / times);
  status.set_pushes_applied(static_cast<uint64_t>(status.pushes_applied() / times));
  return status;
}

TEST(AdviceTest, NothingIsSaidOfAHealthyJob) {
  EXPECT_THAT(Codes(HealthyStatus()), IsEmpty());
  EXPECT_THAT(Codes(Younger(HealthyStatus(), 1e4)), IsEmpty());
  EXPECT_THAT(Codes(v1::JobStatus()), IsEmpty());
}

TEST(AdviceTest, NothingIsSaidOfAJobThatDoesNotTrain) {
  v1::JobStatus status = HealthyStatus();
  status.mutable_workers(0)->set_seconds_since_heartbeat(9);
  status.set_evaluators(0);
  for (const auto phase : {v1::JobStatus::WAITING, v1::JobStatus::FINISHING, v1::JobStatus::DONE,
                           v1::JobStatus::STOPPED, v1::JobStatus::FAILED}) {
    status.set_phase(phase);
    EXPECT_THAT(Codes(status), IsEmpty()) << phase;
  }
}

// ------------------------------------------------------------------------------------------------ workers

TEST(AdviceTest, StragglerTakesTwiceTheMediansTime) {
  v1::JobStatus status = HealthyStatus();
  ProgressOf(&status, 2)->set_compute_seconds(119.9);
  EXPECT_THAT(Codes(status), IsEmpty());
  ProgressOf(&status, 2)->set_compute_seconds(120);
  const Warning warning = One(status);
  EXPECT_EQ(warning.code, "straggler");
  EXPECT_EQ(warning.worker, 2u);
  EXPECT_DOUBLE_EQ(warning.measured, 2);
  EXPECT_DOUBLE_EQ(warning.bound, 2);
  EXPECT_EQ(warning.found, "worker 2 (node2:4712) computes 100 ms a step, 2 times the median of 50 ms");
  EXPECT_THAT(Codes(Younger(status, 8.01)), IsEmpty()) << "the others have been at it for less than 10 s";
}

TEST(AdviceTest, OfTwoWorkersTheSlowerIsTheStraggler) {
  v1::JobStatus status = HealthyStatus();
  status.mutable_workers()->DeleteSubrange(2, 2);
  status.mutable_settings()->set_workers(2);
  status.set_staleness_mean(1);
  ProgressOf(&status, 0)->set_compute_seconds(180);
  EXPECT_EQ(One(status).worker, 0u);
}

TEST(AdviceTest, StragglerIsJudgedByItsComputationAndNotByItsWaits) {
  v1::JobStatus status = HealthyStatus();
  // It has done a third of the others' steps, at the same speed.
  ProgressOf(&status, 1)->set_steps(400);
  ProgressOf(&status, 1)->set_compute_seconds(20);
  EXPECT_THAT(Codes(status), IsEmpty());
  ProgressOf(&status, 1)->set_steps(49);
  EXPECT_THAT(Codes(status), IsEmpty()) << "too few steps to judge by";
  ProgressOf(&status, 1)->set_steps(50);
  EXPECT_EQ(One(status).worker, 1u);
}

TEST(AdviceTest, AdviceOnStragglersDependsOnWhichWorkersWait) {
  v1::JobStatus status = HealthyStatus();
  ProgressOf(&status, 2)->set_compute_seconds(400);
  EXPECT_THAT(One(status).advice, Not(HasSubstr("sync_backup")));
  EXPECT_THAT(One(status).why, HasSubstr("staler"));
  AlgorithmOf(&status)->mutable_consistency()->mutable_synchronous();
  status.set_staleness_mean(0);
  EXPECT_THAT(One(status).advice, HasSubstr("sync_backup"));
  EXPECT_THAT(One(status).why, HasSubstr("wait for it at every update"));
  AlgorithmOf(&status)->mutable_consistency()->mutable_synchronous()->set_backup_workers(1);
  EXPECT_THAT(One(status).why, HasSubstr("dropped"));
  EXPECT_THAT(One(status).advice, Not(HasSubstr("sync_backup")));
}

void SetTimes(double compute, double push, double pull, double data, v1::JobStatus* status) {
  for (int i = 0; i < status->workers_size(); ++i) {
    ProgressOf(status, i)->set_compute_seconds(compute);
    ProgressOf(status, i)->set_push_seconds(push);
    ProgressOf(status, i)->set_pull_seconds(pull);
    ProgressOf(status, i)->set_data_seconds(data);
  }
}

TEST(AdviceTest, WorkersWaitForServersMoreThanAThirdOfTheirTime) {
  v1::JobStatus status = HealthyStatus();
  SetTimes(60, 20, 10, 0, &status);
  EXPECT_THAT(Codes(status), IsEmpty());
  SetTimes(60, 20, 16, 4, &status);
  const Warning warning = One(status);
  EXPECT_EQ(warning.code, "waiting_for_servers");
  EXPECT_DOUBLE_EQ(warning.measured, 0.36);
  EXPECT_DOUBLE_EQ(warning.bound, 1.0 / 3);
  EXPECT_EQ(warning.found, "workers wait for pushes and pulls 36 % of their time, more than 33 %");
  EXPECT_THAT(warning.advice, HasSubstr("algorithm.contribution.gradient.push_period"));
  EXPECT_THAT(warning.why, Not(HasSubstr("slower workers")));
  EXPECT_THAT(Codes(Younger(status, 10.1)), IsEmpty());

  AlgorithmOf(&status)->mutable_consistency()->mutable_synchronous();
  status.set_staleness_mean(0);
  EXPECT_THAT(One(status).why, HasSubstr("slower workers"));
  // Only remedies that the algorithm supports are named.
  AlgorithmOf(&status)->mutable_contribution()->mutable_elastic();
  EXPECT_THAT(One(status).advice, HasSubstr("elastic.communication_period"));
  EXPECT_THAT(One(status).advice, Not(HasSubstr("compression")));
}

TEST(AdviceTest, WorkersWaitForDataMoreThanAFifthOfTheirTime) {
  v1::JobStatus status = HealthyStatus();
  SetTimes(60, 10, 10, 20, &status);
  EXPECT_THAT(Codes(status), IsEmpty());
  SetTimes(60, 10, 9, 21, &status);
  const Warning warning = One(status);
  EXPECT_EQ(warning.code, "waiting_for_data");
  EXPECT_DOUBLE_EQ(warning.measured, 0.21);
  EXPECT_THAT(Codes(Younger(status, 10.1)), IsEmpty());
}

TEST(AdviceTest, HeartbeatIsOlderThanHalfTheLease) {
  v1::JobStatus status = HealthyStatus();
  status.mutable_workers(1)->set_seconds_since_heartbeat(5);
  EXPECT_THAT(Codes(status), IsEmpty());
  status.mutable_workers(1)->set_seconds_since_heartbeat(5.1);
  const Warning warning = One(status);
  EXPECT_EQ(warning.code, "heartbeat_late");
  EXPECT_EQ(warning.worker, 1u);
  EXPECT_DOUBLE_EQ(warning.bound, 5);
  EXPECT_THAT(warning.found, HasSubstr("worker 1 (node1:4711) sent its last heartbeat 5.1 s ago"));
}

TEST(AdviceTest, WorkersAreMissing) {
  v1::JobStatus status = HealthyStatus();
  status.mutable_workers()->RemoveLast();
  const Warning warning = One(status);
  EXPECT_EQ(warning.code, "workers_missing");
  EXPECT_EQ(warning.measured, 3);
  EXPECT_EQ(warning.bound, 4);
}

TEST(AdviceTest, NoEvaluatorScoresTheTestSet) {
  v1::JobStatus status = HealthyStatus();
  status.set_evaluators(0);
  EXPECT_EQ(One(status).code, "no_evaluator");
  EXPECT_THAT(Codes(Younger(status, 2.6)), ElementsAre("no_evaluator")) << "80 s / 2.6 is more than 30 s";
  EXPECT_THAT(Codes(Younger(status, 2.7)), IsEmpty());
  status.mutable_settings()->mutable_data()->mutable_drawn_digits()->set_test_samples(0);
  EXPECT_THAT(Codes(status), IsEmpty());
}

// ------------------------------------------------------------------------------------------ contributions

TEST(AdviceTest, StalenessIsAboveThatExpectedOfTheAlgorithm) {
  v1::JobStatus status = HealthyStatus();
  status.set_staleness_mean(5.5);  // 1.5 x 3 + 1
  EXPECT_THAT(Codes(status), IsEmpty());
  status.set_staleness_mean(5.51);
  const Warning warning = One(status);
  EXPECT_EQ(warning.code, "staleness_high");
  EXPECT_DOUBLE_EQ(warning.bound, 5.5);
  EXPECT_THAT(warning.found, HasSubstr("with 4 workers and this algorithm 3 are expected"));
  EXPECT_THAT(warning.advice, HasSubstr("gradient.push_period"));
  status.set_pushes_applied(199);
  EXPECT_THAT(Codes(status), IsEmpty()) << "too few to judge by";
}

TEST(ExpectedStalenessTest, FollowsFromWhoIsUnderWay) {
  v1::Job job;
  job.set_workers(6);
  v1::Consistency* consistency = job.mutable_algorithm()->mutable_consistency();
  consistency->mutable_asynchronous();
  EXPECT_EQ(ExpectedStaleness(job), 5);
  consistency->mutable_bounded_staleness()->set_bound(3);
  EXPECT_EQ(ExpectedStaleness(job), 5);
  consistency->mutable_asynchronous()->set_emulated_delay(4);
  EXPECT_EQ(ExpectedStaleness(job), 9);
  // Updates of three contributions each.
  consistency->mutable_n_softsync()->set_n(2);
  EXPECT_EQ(ExpectedStaleness(job), 2);
  consistency->mutable_synchronous();
  EXPECT_EQ(ExpectedStaleness(job), 0);
  consistency->mutable_grouped()->set_groups(3);
  EXPECT_EQ(ExpectedStaleness(job), 2);
  job.set_workers(2);
  EXPECT_EQ(ExpectedStaleness(job), 1);
}

TEST(ExpectedStalenessTest, PushesOfOneFetchFollowEachOther) {
  v1::Job job;
  job.set_workers(1);
  v1::AccruedGradient* gradient = job.mutable_algorithm()->mutable_contribution()->mutable_gradient();
  gradient->set_push_period(2);
  gradient->set_fetch_period(6);
  // A single worker's three pushes are 0, 1 and 2 updates old.
  EXPECT_EQ(ExpectedStaleness(job), 1);
  // Another worker pushes as often meanwhile: 0 + 1, 1 + 2, 2 + 3.
  job.set_workers(2);
  EXPECT_EQ(ExpectedStaleness(job), 3);
}

TEST(AdviceTest, ContributionsThatAreNotFiniteAreNamedAtOnce) {
  v1::JobStatus status = HealthyStatus();
  status.mutable_shards(1)->mutable_workers(2)->set_non_finite(1);  // in that shard's part alone
  EXPECT_EQ(One(Younger(status, 1e4)).code, "non_finite");
  EXPECT_EQ(One(status).worker, 2u);
  EXPECT_EQ(One(status).found, "1 contribution with a NaN or an infinity from worker 2 refused");
  // Both shards report the same contribution.
  status.mutable_shards(0)->mutable_workers(2)->set_non_finite(1);
  EXPECT_EQ(One(status).measured, 1);
  status.mutable_shards(0)->mutable_workers(3)->set_non_finite(4);
  EXPECT_EQ(One(status).measured, 5);
  EXPECT_FALSE(One(status).worker.has_value());
}

void SetFates(int worker, uint64_t applied, uint64_t late, v1::JobStatus* status) {
  for (v1::ShardReport& shard : *status->mutable_shards()) {
    shard.mutable_workers(worker)->set_applied(applied);
    shard.mutable_workers(worker)->set_late(late);
  }
}

TEST(AdviceTest, ContributionsComeLateWithoutBackupWorkers) {
  v1::JobStatus status = HealthyStatus();
  SetFates(3, 1152, 48, &status);  // of 4800
  EXPECT_THAT(Codes(status), IsEmpty());
  SetFates(3, 1151, 49, &status);
  const Warning warning = One(status);
  EXPECT_EQ(warning.code, "contributions_late");
  EXPECT_DOUBLE_EQ(warning.measured, 49.0 / 4800);
  EXPECT_FALSE(warning.worker.has_value());
  for (int i = 0; i < 3; ++i) SetFates(i, 50, 0, &status);
  SetFates(3, 25, 24, &status);
  EXPECT_THAT(Codes(status), IsEmpty()) << "too few to judge by";
}

TEST(AdviceTest, WithBackupWorkersOneThatMostlyComesLateIsNamed) {
  v1::JobStatus status = HealthyStatus();
  AlgorithmOf(&status)->mutable_consistency()->mutable_synchronous();
  AlgorithmOf(&status)->mutable_consistency()->mutable_synchronous()->set_backup_workers(1);
  status.set_staleness_mean(0);
  SetFates(1, 600, 600, &status);
  EXPECT_THAT(Codes(status), IsEmpty());
  SetFates(1, 599, 601, &status);
  EXPECT_EQ(One(status).code, "contributions_late");
  EXPECT_EQ(One(status).worker, 1u);
  SetFates(1, 0, 199, &status);
  EXPECT_THAT(Codes(status), IsEmpty()) << "too few to judge by";
}

TEST(AdviceTest, GraceThatIsTooShortIsNamed) {
  v1::JobStatus status = HealthyStatus();
  AlgorithmOf(&status)->mutable_consistency()->mutable_quorum()->set_minimum(1);
  status.set_staleness_mean(0);
  for (int worker = 0; worker < 4; ++worker) SetFates(worker, 900, 100, &status);
  EXPECT_THAT(Codes(status), IsEmpty());
  SetFates(2, 899, 101, &status);
  const Warning warning = One(status);
  EXPECT_EQ(warning.code, "contributions_late");
  EXPECT_THAT(warning.advice, HasSubstr("quorum.minimum"));
}

TEST(AdviceTest, WithAQuorumOneThatMostlyComesLateIsNamedAndTheOthersAreJudged) {
  v1::JobStatus status = HealthyStatus();
  AlgorithmOf(&status)->mutable_consistency()->mutable_quorum()->set_minimum(1);
  status.set_staleness_mean(0);
  for (int worker = 0; worker < 4; ++worker) SetFates(worker, 1000, 0, &status);
  SetFates(1, 300, 900, &status);
  const Warning warning = One(status);
  EXPECT_EQ(warning.code, "contributions_late");
  EXPECT_EQ(warning.worker, 1u);
  EXPECT_DOUBLE_EQ(warning.measured, 0.75);
  EXPECT_THAT(warning.advice, HasSubstr("overlap_steps"));
  SetFates(0, 500, 500, &status);
  EXPECT_THAT(Codes(status), ElementsAre("contributions_late", "contributions_late"));
  SetFates(1, 1, 198, &status);
  SetFates(0, 1000, 0, &status);
  EXPECT_THAT(Codes(status), IsEmpty()) << "too few to judge by";
}

TEST(AdviceTest, StalenessLimitThatTheUsualStalenessReachesIsNamed) {
  v1::JobStatus status = HealthyStatus();
  AlgorithmOf(&status)->mutable_consistency()->mutable_asynchronous()->set_staleness_limit(3);
  for (int worker = 0; worker < 4; ++worker) SetFates(worker, 750, 250, &status);
  EXPECT_THAT(Codes(status), IsEmpty()) << "a quarter may be outliers";
  SetFates(2, 749, 251, &status);
  const Warning warning = One(status);
  EXPECT_EQ(warning.code, "contributions_late");
  EXPECT_DOUBLE_EQ(warning.measured, 1001.0 / 4000);
  EXPECT_NE(warning.advice.find("staleness_limit"), std::string::npos);
}

TEST(AdviceTest, WorkerMakesNoProgress) {
  v1::JobStatus status = HealthyStatus();
  status.mutable_settings()->mutable_faults()->set_heartbeat_timeout_seconds(10);
  status.mutable_settings()->mutable_faults()->set_stuck_seconds(300);
  status.mutable_workers(1)->set_seconds_without_progress(31);
  const Warning warning = One(status);
  EXPECT_EQ(warning.code, "no_progress");
  EXPECT_EQ(warning.worker, 1u);
  EXPECT_EQ(warning.measured, 31);
  EXPECT_EQ(warning.bound, 30);
  EXPECT_THAT(warning.why, testing::HasSubstr("after 5 min"));
}

// ------------------------------------------------------------------------------------------------ shards

TEST(AdviceTest, ShardIsBehindByMoreThanTenSecondsOfTraining) {
  v1::JobStatus status = HealthyStatus();  // 60 updates a second
  status.mutable_shards(1)->set_version(4200);
  EXPECT_THAT(Codes(status), IsEmpty());
  status.mutable_shards(1)->set_version(4199);
  const Warning warning = One(status);
  EXPECT_EQ(warning.code, "shard_behind");
  EXPECT_EQ(warning.shard, 1u);
  EXPECT_EQ(warning.measured, 601);
  EXPECT_EQ(warning.bound, 600);
  status.set_wall_seconds(10);
  EXPECT_THAT(Codes(status), IsEmpty());
  // A few updates in many seconds: workers are between two shards.
  status = HealthyStatus();
  status.set_wall_seconds(50000);
  status.mutable_shards(1)->set_version(4796);
  EXPECT_THAT(Codes(status), IsEmpty());
  status.mutable_shards(1)->set_version(4795);
  EXPECT_EQ(One(status).code, "shard_behind");
}

TEST(AdviceTest, ShardIsHalfAsLargeAgainAsAnEvenShare) {
  v1::JobStatus status = HealthyStatus();
  status.mutable_servers(0)->set_parameters(3'000'000);
  status.mutable_servers(1)->set_parameters(1'000'000);
  EXPECT_THAT(Codes(status), IsEmpty());
  status.mutable_servers(1)->set_parameters(999'999);
  const Warning warning = One(status);
  EXPECT_EQ(warning.code, "shard_large");
  EXPECT_EQ(warning.shard, 0u);
  EXPECT_NEAR(warning.measured, 1.5, 1e-6);
  // The distribution of small shards does not matter.
  status.mutable_servers(0)->set_parameters((1 << 20) - 1);
  status.mutable_servers(1)->set_parameters(0);
  EXPECT_THAT(Codes(status), IsEmpty());
}

// ------------------------------------------------------------------------------------------------ the job

TEST(AdviceTest, CheckpointIsOverdueAfterTwoPeriodsAndAMinute) {
  v1::JobStatus status = HealthyStatus();
  status.set_wall_seconds(240);  // 20 updates a second
  status.set_last_checkpoint(2800);
  EXPECT_THAT(Codes(status), IsEmpty());
  status.set_last_checkpoint(2799);
  EXPECT_EQ(One(status).code, "checkpoint_overdue");
  EXPECT_EQ(One(status).measured, 2001);
  EXPECT_EQ(One(status).bound, 2000);
  status.set_wall_seconds(143);
  EXPECT_THAT(Codes(status), IsEmpty()) << "less than a minute";
  status.set_wall_seconds(240);
  status.set_last_checkpoint(0);
  EXPECT_THAT(One(status).found, HasSubstr("no checkpoint yet after 4,800 updates"));
  status.set_writes_checkpoints(false);
  EXPECT_THAT(Codes(status), IsEmpty());
  status.set_writes_checkpoints(true);
  status.mutable_settings()->mutable_checkpoint()->set_every_updates(0);
  EXPECT_THAT(Codes(status), IsEmpty()) << "only at the end";
  // 4,800 updates in 240 s: the last one is 40 s old, and 140 s.
  status.mutable_settings()->mutable_checkpoint()->set_every_seconds(60);
  status.set_last_checkpoint(4000);
  EXPECT_THAT(Codes(status), IsEmpty());
  status.set_last_checkpoint(2000);
  EXPECT_EQ(One(status).code, "checkpoint_overdue");
  EXPECT_EQ(One(status).measured, 140);
  EXPECT_EQ(One(status).bound, 120);
  EXPECT_THAT(One(status).found, HasSubstr("checkpoint.every_seconds is 60"));
}

TEST(AdviceTest, CheckpointThatCouldNotBeSavedIsReportedAtOnce) {
  v1::JobStatus status = HealthyStatus();
  status.mutable_shards(1)->set_save_error("no space left on device");
  for (const auto phase : {v1::JobStatus::TRAINING, v1::JobStatus::FINISHING}) {
    status.set_phase(phase);
    EXPECT_EQ(One(status).code, "checkpoint_failed");
    EXPECT_EQ(One(status).shard, 1u);
    EXPECT_THAT(One(status).found,
                HasSubstr("server 1 could not save its part of a checkpoint: no space left"));
  }
}

TEST(AdviceTest, TestLossRisesWhileTheTrainingLossIsBelowItsBest) {
  v1::JobStatus status = HealthyStatus();
  status.set_best_evaluation(4);
  status.set_best_test_loss(0.1);
  status.set_test_loss(0.106);
  status.set_train_loss(0.08);
  status.set_evaluations_since_best(2);
  EXPECT_THAT(Codes(status), IsEmpty());
  status.set_evaluations_since_best(3);
  EXPECT_EQ(One(status).code, "over_fitting");
  EXPECT_NEAR(One(status).measured, 1.06, 1e-9);
  status.set_test_loss(0.1049);
  EXPECT_THAT(Codes(status), IsEmpty());
  status.set_test_loss(0.106);
  status.set_train_loss(0.11);
  EXPECT_THAT(Codes(status), IsEmpty());
}

TEST(AdviceTest, EveryWarningSaysAllThatItHasToSay) {
  v1::JobStatus status = HealthyStatus();
  SetTimes(60, 30, 30, 40, &status);
  ProgressOf(&status, 0)->set_compute_seconds(600);
  status.set_evaluators(0);
  status.set_staleness_mean(40);
  status.mutable_workers(1)->set_seconds_since_heartbeat(8);
  status.mutable_servers(1)->set_parameters(30'000'000);
  status.mutable_shards(0)->set_version(1);
  status.mutable_shards(0)->set_save_error("disk full");
  status.mutable_shards(0)->mutable_workers(0)->set_non_finite(3);
  status.mutable_settings()->set_workers(5);
  const std::vector<Warning> warnings = Advise(status);
  EXPECT_GE(warnings.size(), 9u);
  for (const Warning& warning : warnings) {
    for (const std::string& text : {warning.found, warning.why, warning.advice})
      EXPECT_NE(text, "") << warning.code;
    EXPECT_EQ(warning.why.back(), '.') << warning.code << ": " << warning.why;
    EXPECT_EQ(warning.advice.back(), '.') << warning.code << ": " << warning.advice;
    EXPECT_NE(warning.found.back(), '.') << warning.code << ": " << warning.found;
  }
}

}  // namespace
}  // namespace catchment
