// The ends of jobs that are done, stopped or have failed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/server/control/master_fixture.h"

namespace catchment {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

TEST_F(MasterTest, ADoneJobSavesALastCheckpointAndEndsWhenOutputsAreWritten) {
  for (bool synchronous : {false, true}) {
    Start(MakeJob({.synchronous = synchronous}));
    TrainAlone();
    EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::FINISHING);
    EXPECT_NE(master_->Command().checkpoint(), 25u) << "the servers have not reported since the worker left";
    Exchange();
    EXPECT_EQ(master_->Command().checkpoint(), 25u);
    EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::FINISHING);
    Exchange();
    EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::DONE);
    const std::vector<CompleteCheckpoint> complete = TakeComplete();
    ASSERT_EQ(complete.size(), 1u);
    EXPECT_EQ(complete[0].number, 25u);
    EXPECT_EQ(complete[0].shards.size(), 2u);
    EXPECT_EQ(complete[0].state.samples(), kSamples);
    EXPECT_EQ(complete[0].state.pending_size(), 0);
    EXPECT_EQ(complete[0].state.next_incarnation(), 2u);
    EXPECT_TRUE(TakeComplete().empty());
    EXPECT_FALSE(master_->Command().stop());
    master_->OnOutputsWritten();
    EXPECT_TRUE(master_->Command().stop());
    EXPECT_TRUE(master_->state_machine().over());
  }
}

TEST_F(MasterTest, IdleWorkersWaitAtTheEndForThoseAtWork) {
  Start(MakeJob({.synchronous = false, .workers = 2, .batch_size = 100}));
  Worker busy = Join();
  Worker idle = Join();
  ASSERT_EQ(Next(&busy), v1::Lease::GRANTED);
  EXPECT_EQ(Next(&idle), v1::Lease::WAIT);
  clock_.Advance(6);
  ASSERT_TRUE(Beat(idle).ok());
  clock_.Advance(6);
  master_->Tick();  // busy is lost
  ASSERT_EQ(Next(&idle), v1::Lease::GRANTED);
  DoLease({&idle});
  EXPECT_EQ(Next(&idle), v1::Lease::FINISHED);
}

TEST_F(MasterTest, ShardsHearWhoHasNothingToDoUntilItsNextLease) {
  Start(MakeJob({.synchronous = false, .workers = 2, .batch_size = 50}));
  Worker busy = Join();
  Worker idle = Join();
  const auto is_idle = [&](const Worker& worker) {
    return master_->Command().rosters(0).members(static_cast<int>(worker.index)).idle();
  };
  ASSERT_EQ(Next(&busy), v1::Lease::GRANTED);
  ASSERT_EQ(Next(&idle), v1::Lease::GRANTED);
  EXPECT_EQ(Ask(idle, 1)->state(), v1::Lease::WAIT);
  EXPECT_FALSE(is_idle(idle)) << "its minibatch is not done";
  DoStep(&idle);
  ASSERT_TRUE(Beat(idle).ok());
  EXPECT_FALSE(is_idle(idle)) << "it has not asked";
  EXPECT_EQ(Ask(idle, 1)->state(), v1::Lease::WAIT);
  EXPECT_TRUE(is_idle(idle));
  EXPECT_FALSE(is_idle(busy));
  Exchange();

  Leave(busy, "drained");
  EXPECT_EQ(Ask(idle, 1)->state(), v1::Lease::WAIT) << "shards have not said what they have of the other's";
  EXPECT_TRUE(master_->Command().rosters(0).members(0).idle());
  Exchange();
  EXPECT_EQ(Ask(idle, 1)->state(), v1::Lease::WAIT) << "no shard knows that it has work again";
  EXPECT_FALSE(master_->Command().rosters(0).members(0).idle());
  EXPECT_EQ(Ask(idle, 1)->state(), v1::Lease::WAIT);
  Exchange();
  EXPECT_EQ(Ask(idle, 1)->state(), v1::Lease::GRANTED);
}

TEST_F(MasterTest, SynchronousMembersAreInTheirPlansWhetherTheyHaveWorkOrNot) {
  Start(MakeJob({.workers = 2, .batch_size = 50}));
  Worker first = Join();
  Worker second = Join();
  while (Next(&first) == v1::Lease::GRANTED && Next(&second) == v1::Lease::GRANTED)
    DoLease({&first, &second});
  const v1::ShardCommand command = master_->Command();
  for (const v1::Roster& roster : command.rosters()) {
    for (const v1::Member& member : roster.members()) EXPECT_FALSE(member.idle());
  }
}

TEST_F(MasterTest, BackupWorkersMakeUpdatesByWhoIsThereAndNotByPlans) {
  v1::Job job = MakeJob({.workers = 2});
  job.mutable_algorithm()->mutable_consistency()->mutable_synchronous()->set_backup_workers(1);
  Start(job);
  Join();
  Join();
  ASSERT_EQ(master_->Command().rosters_size(), 1);
  EXPECT_EQ(master_->Command().rosters(0).members_size(), 2);
}

// Minibatches of one sample, two a push: the clock is half the steps.
TEST_F(MasterTest, WhoComesLaterBeginsBesideTheSlowestOfThoseAtWork) {
  Start(MakeJob({.synchronous = false, .workers = 2, .batch_size = 1, .push_period = 2}));
  Worker slow = Join();
  Worker fast = Join();
  const auto clock = [&](const Worker& worker) {
    return master_->Command().rosters(0).members(static_cast<int>(worker.index)).clock();
  };
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(Next(&fast), v1::Lease::GRANTED);
    DoLease({&fast});
  }
  ASSERT_EQ(Next(&slow), v1::Lease::GRANTED);
  DoLease({&slow});
  ASSERT_EQ(slow.progress.steps(), 8u);
  ASSERT_TRUE(Beat(fast).ok());
  ASSERT_TRUE(Beat(slow).ok());
  const Worker third = Join();
  EXPECT_EQ(clock(third), 4u);
  Leave(slow);
  Leave(third);
  Exchange();
  Worker fourth = Join();
  EXPECT_EQ(fourth.index, 0u);
  EXPECT_EQ(clock(fourth), 8u);
  EXPECT_EQ(clock(fast), 0u);
}

// One worker does two of ten minibatches and then has no work; another one does seven.
TEST_F(MasterTest, WorkerThatHasWorkAgainGetsTheClockOfTheSlowest) {
  Start(MakeJob({.synchronous = false, .workers = 2, .batch_size = 10}));
  Worker idle = Join();
  Worker busy = Join();
  ASSERT_EQ(Next(&idle), v1::Lease::GRANTED);
  DoLease({&idle});
  ASSERT_EQ(idle.progress.steps(), 2u);
  while (busy.progress.steps() < 7) {
    ASSERT_EQ(Next(&busy), v1::Lease::GRANTED);
    DoLease({&busy});
  }
  ASSERT_EQ(Next(&busy), v1::Lease::GRANTED);
  EXPECT_EQ(Next(&idle), v1::Lease::WAIT);
  Worker third = Join();
  const auto clocks = [&] {
    std::vector<uint64_t> clocks;
    const v1::ShardCommand command = master_->Command();
    for (const v1::Member& member : command.rosters(0).members()) clocks.push_back(member.clock());
    return clocks;
  };
  EXPECT_EQ(clocks(), (std::vector<uint64_t>{0, 0, 7})) << "who has nothing to do is not counted";
  Leave(busy);
  EXPECT_EQ(Next(&idle), v1::Lease::GRANTED);
  EXPECT_EQ(clocks(), (std::vector<uint64_t>{0, 7})) << "nor is who has contributed nothing yet";
}

TEST_F(MasterTest, ALateWorkerIsToldThatNothingIsLeft) {
  Start(MakeJob({}));
  TrainAlone();
  Worker late = Join();
  EXPECT_EQ(Next(&late), v1::Lease::FINISHED);
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::FINISHING);
}

TEST_F(MasterTest, AWorkerThatNeverLeavesDoesNotHoldUpTheEnd) {
  Start(MakeJob({}));
  Worker worker = Join();
  while (Next(&worker) == v1::Lease::GRANTED) DoLease({&worker});
  for (int i = 0; i < 12; ++i) {
    clock_.Advance(1);
    Beat(worker).status().IgnoreError();
    master_->Tick();
    Exchange();
  }
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::DONE);
}

// "Saved" means that a job can continue from it.
TEST_F(MasterTest, AJobIsNotDoneBeforeTheManifestOfItsLastCheckpointIsWritten) {
  Start(MakeJob({}));
  TrainAlone();
  for (int i = 0; i < 2; ++i) {
    for (FakeShard& shard : shards_) {
      shard.Take(master_->Command());
      ASSERT_TRUE(master_->OnShardReport(shard.Report()).ok());
    }
  }
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::FINISHING);
  const std::vector<CompleteCheckpoint> complete = master_->checkpoints().TakeComplete();
  ASSERT_EQ(complete.size(), 1u);
  master_->OnCheckpointRecorded(complete[0].number, absl::UnavailableError("the disk is away"));
  master_->Tick();
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::FINISHING);
  EXPECT_THAT(master_->Status().reason(), HasSubstr("the disk is away"));
  EXPECT_EQ(master_->Status().last_checkpoint(), 0u);
  master_->OnCheckpointRecorded(complete[0].number, absl::OkStatus());
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::DONE);
  EXPECT_EQ(master_->Status().last_checkpoint(), complete[0].number);
}

TEST_F(MasterTest, WeightsAreFinalWhereOnlyTheLastCheckpointFailed) {
  Start(MakeJob({}));
  TrainAlone();
  for (FakeShard& shard : shards_) shard.set_saves(false);
  shards_[0].extra()->set_save_error("no space left");
  Exchange();
  Exchange();
  clock_.Advance(JobStateMachine::kSaveSeconds);
  master_->Tick();
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::FAILED);
  EXPECT_TRUE(master_->state_machine().weights_are_whole());
  Start(MakeJob({}));
  master_->Fail("server 1 is gone");
  EXPECT_FALSE(master_->state_machine().weights_are_whole());
}

TEST_F(MasterTest, AStopTellsWorkersAndKeepsWhatIsUndone) {
  for (bool synchronous : {false, true}) {
    Start(MakeJob({.synchronous = synchronous}));
    Worker worker = Join();
    ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
    const uint64_t first = SamplesOf(worker.lease.minibatches(0));
    DoStep(&worker);
    EXPECT_FALSE(Beat(worker)->stop());
    master_->Stop("the boss said so");
    const absl::StatusOr<v1::HeartbeatReply> reply = Beat(worker);
    EXPECT_TRUE(reply->stop());
    EXPECT_THAT(reply->reason(), HasSubstr("the boss said so"));
    EXPECT_EQ(Next(&worker), v1::Lease::FINISHED);
    Leave(worker, "stopped");
    Exchange();
    Exchange();
    EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::STOPPED);
    const std::vector<CompleteCheckpoint> complete = TakeComplete();
    ASSERT_EQ(complete.size(), 1u);
    EXPECT_EQ(complete[0].number, 1u);
    EXPECT_EQ(complete[0].state.samples(), first);

    const v1::MasterState state = complete[0].state;
    Start(job_, 2, state);
    TrainAlone();
    EXPECT_EQ(master_->Status().samples(), kSamples);
  }
}

TEST_F(MasterTest, AStopDoesNotWaitForeverForWorkers) {
  Start(MakeJob({}));
  Worker worker = Join();
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  master_->Stop("now");
  for (int i = 0; i < 12; ++i) {
    clock_.Advance(1);
    Beat(worker).status().IgnoreError();
    master_->Tick();
    Exchange();
  }
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::STOPPED);
}

// Contributions in flight when a job is stopped are not dropped because a network or a machine is slow.
TEST_F(MasterTest, WorkersThatStillPushOrTakeLongForAStepHaveTimeToLeave) {
  v1::Job job = MakeJob({.synchronous = false, .workers = 2});
  job.set_block_kib(1024);
  job.mutable_faults()->set_slowest_kib_per_second(512);
  job.mutable_faults()->set_heartbeat_timeout_seconds(1000);
  Start(job);
  Worker worker = Join();
  const Worker other = Join();
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  master_->Stop("enough");
  const auto pass = [this](double seconds) {
    clock_.Advance(seconds);
    master_->Tick();
    return master_->members().num_workers();
  };
  EXPECT_EQ(pass(9), 2);
  shards_[1].extra()->set_bytes_pushed(1000);
  Exchange();
  EXPECT_EQ(pass(9), 2) << "a block arrived meanwhile";
  DoStep(&worker);
  worker.progress.set_compute_seconds(20);
  ASSERT_TRUE(Beat(worker).ok());
  EXPECT_EQ(pass(50), 2) << "a step takes 20 s";
  EXPECT_EQ(pass(2), 0);
  EXPECT_THAT(master_->Status().events(), Contains(HasSubstr("did not leave in time")));
}

TEST_F(MasterTest, WorkersThatAreToLeaveMayTakeAsLongAsTwoBlocksAtTheLowestRate) {
  v1::Job job = MakeJob({.workers = 1});
  job.set_block_kib(1024);
  job.mutable_faults()->set_slowest_kib_per_second(64);
  job.mutable_faults()->set_heartbeat_timeout_seconds(1000);
  Start(job);
  Worker worker = Join();
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  master_->Stop("enough");
  clock_.Advance(31);
  master_->Tick();
  EXPECT_EQ(master_->members().num_workers(), 1);
  clock_.Advance(1);
  master_->Tick();
  EXPECT_EQ(master_->members().num_workers(), 0);
}

TEST_F(MasterTest, AJobResumedAtItsEndEndsWithoutWorkers) {
  Start(MakeJob({}));
  TrainAlone();
  Exchange();
  Exchange();
  const v1::MasterState state = TakeComplete().at(0).state;
  Start(job_, 2, state);
  master_->Tick();
  for (int i = 0; i < 3; ++i) Exchange();
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::DONE);
}

TEST_F(MasterTest, FailsOnContributionsThatAreNotFinite) {
  Start(MakeJob({}));
  Join();
  v1::WorkerStatistics* statistics = shards_[1].extra()->add_workers();
  statistics->set_worker(3);
  statistics->set_non_finite_in_a_row(9);
  Exchange();
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::TRAINING);
  statistics->set_non_finite_in_a_row(10);
  Exchange();
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::FAILED);
  EXPECT_THAT(master_->Status().reason(), HasSubstr("worker 3 sent 10 contributions in a row"));
  EXPECT_THAT(master_->Status().reason(), HasSubstr("optimizer.learning_rate"));
}

TEST_F(MasterTest, AFailedJobTellsWorkersBeforeTheServersEnd) {
  Start(MakeJob({}));
  Worker worker = Join();
  master_->Fail("server 1 is gone");
  master_->OnOutputsWritten();
  EXPECT_FALSE(master_->state_machine().over());
  EXPECT_TRUE(Beat(worker)->stop());
  EXPECT_EQ(Next(&worker), v1::Lease::FINISHED);
  EXPECT_EQ(Leave(worker).job_failed(), "server 1 is gone");
  EXPECT_TRUE(master_->state_machine().over());
}

TEST_F(MasterTest, WhoLeavesAJobThatHasNotFailedHearsOfNoFailure) {
  Start(MakeJob({.synchronous = false, .workers = 2, .epochs = 4}));
  Worker first = Join(), second = Join();
  ASSERT_EQ(Next(&first), v1::Lease::GRANTED);
  EXPECT_EQ(Leave(first, "asked to stop").job_failed(), "");
  master_->Stop("enough");
  EXPECT_EQ(Leave(second).job_failed(), "");
}

TEST_F(MasterTest, AJobThatIsWatchedWaitsAtItsEndUntilTheNextLook) {
  Start(MakeJob({}));
  const Worker worker = Join();
  master_->Watch(3);
  clock_.Advance(1);
  master_->Fail("server 1 is gone");
  master_->OnOutputsWritten();
  Leave(worker);
  EXPECT_FALSE(master_->state_machine().over());
  master_->Watch(3);  // it has heard
  clock_.Advance(1.99);
  master_->Tick();
  EXPECT_FALSE(master_->state_machine().over());
  clock_.Advance(0.01);
  master_->Tick();
  EXPECT_TRUE(master_->state_machine().over());
}

TEST_F(MasterTest, AWatcherThatNeverComesBackDoesNotHoldUpTheEnd) {
  Start(MakeJob({}));
  const Worker worker = Join();
  master_->Watch(1e9);
  master_->Fail("server 1 is gone");
  master_->OnOutputsWritten();
  Leave(worker);
  clock_.Advance(JobStateMachine::kLeaveSeconds);
  master_->Tick();
  EXPECT_TRUE(master_->state_machine().over());
}

TEST_F(MasterTest, AWorkerThatIsDoneStaysUntilTheLastCheckpointIsRecorded) {
  Start(MakeJob({}));
  Worker worker = Join();
  while (Next(&worker) == v1::Lease::GRANTED) DoLease({&worker});
  const auto stays = [&] {
    return Leave(worker, "", /*failed=*/false, /*stays=*/true).again_in_seconds() > 0;
  };
  EXPECT_TRUE(stays());
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::FINISHING);
  Exchange();
  EXPECT_TRUE(stays());
  Exchange();
  master_->OnOutputsWritten();
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::DONE);
  EXPECT_FALSE(master_->state_machine().over()) << "the worker does not know yet";
  EXPECT_FALSE(stays());
  EXPECT_TRUE(master_->state_machine().over());
}

TEST_F(MasterTest, AWorkerThatStayedAndVanishedDoesNotHoldUpTheEnd) {
  Start(MakeJob({}));
  Worker worker = Join();
  while (Next(&worker) == v1::Lease::GRANTED) DoLease({&worker});
  EXPECT_GT(Leave(worker, "", /*failed=*/false, /*stays=*/true).again_in_seconds(), 0);
  Exchange();
  Exchange();
  master_->OnOutputsWritten();
  clock_.Advance(JobStateMachine::kLeaveSeconds);
  master_->Tick();
  EXPECT_TRUE(master_->state_machine().over());
}

TEST_F(MasterTest, AWorkerWithAProgramStaysUntilItKnowsThatTheWeightsAreFinal) {
  v1::Job job = MakeJob({});
  job.mutable_model()->mutable_external();
  Start(job);
  Worker first = Join(), second = Join();
  while (Next(&first) == v1::Lease::GRANTED && Next(&second) == v1::Lease::GRANTED)
    DoLease({&first, &second});
  while (Next(&second) == v1::Lease::GRANTED) DoLease({&second});
  v1::LeaveReply reply = Leave(first, "", /*failed=*/false, /*stays=*/true);
  EXPECT_GT(reply.again_in_seconds(), 0);
  EXPECT_FALSE(reply.weights_are_final()) << "the other worker has not left";
  EXPECT_TRUE(Leave(second, "", /*failed=*/false, /*stays=*/true).weights_are_final());
  Exchange();
  Exchange();
  master_->OnOutputsWritten();
  EXPECT_EQ(Leave(second, "", /*failed=*/false, /*stays=*/true).again_in_seconds(), 0);
  reply = Leave(first, "", /*failed=*/false, /*stays=*/true);
  EXPECT_GT(reply.again_in_seconds(), 0);
  EXPECT_TRUE(reply.weights_are_final());
  EXPECT_FALSE(master_->state_machine().over()) << "the worker reads the weights";
  EXPECT_EQ(Leave(first, "", /*failed=*/false, /*stays=*/true).again_in_seconds(), 0);
  EXPECT_TRUE(master_->state_machine().over());
}

TEST_F(MasterTest, AWorkerThatLeavesAJobThatGoesOnNeedNotStay) {
  Start(MakeJob({.epochs = 10}));
  Join();
  const Worker second = Join();
  EXPECT_EQ(Leave(second, "asked to stop", /*failed=*/false, /*stays=*/true).again_in_seconds(), 0);
}

}  // namespace
}  // namespace catchment
