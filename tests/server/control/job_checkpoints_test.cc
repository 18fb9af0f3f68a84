// When checkpoints are taken and complete, with the states of workers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "tests/server/control/master_fixture.h"

namespace catchment {
namespace {

using ::testing::HasSubstr;

TEST_F(MasterTest, RegularCheckpointsAreWholeOnceAllShardsHaveThem) {
  Start(MakeJob({.epochs = 10, .every_updates = 5}));
  Worker worker = Join();
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  for (int i = 0; i < 12; ++i) DoStep(&worker);
  ASSERT_TRUE(master_->OnShardReport(shards_[0].Report()).ok());
  EXPECT_TRUE(master_->checkpoints().TakeComplete().empty());
  ASSERT_TRUE(master_->OnShardReport(shards_[1].Report()).ok());
  Record(absl::OkStatus());
  const std::vector<CompleteCheckpoint> complete = TakeComplete();
  ASSERT_EQ(complete.size(), 1u);
  EXPECT_EQ(complete[0].number, 5u);
  EXPECT_EQ(complete[0].state.version(), 5u);
  EXPECT_EQ(complete[0].state.samples(), 20u);
  EXPECT_EQ(complete[0].state.pending(0).begin(), 20u);
  EXPECT_EQ(master_->Status().last_checkpoint(), 5u);
  EXPECT_EQ(master_->Command().checkpoint(), 20u) << "updates up to 16 are granted";
  EXPECT_EQ(master_->Command().checkpoint_version(), 20u);
}

// A shard that has not heard of it would go beyond its version without saving it.
TEST_F(MasterTest, NothingIsGrantedBeyondACheckpointThatAShardHasNotHeardOf) {
  Start(MakeJob({.epochs = 20, .every_updates = 0, .every_seconds = 10}));
  Worker worker = Join();
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  DoLease({&worker});
  EXPECT_EQ(Ask(worker, 1)->state(), v1::Lease::WAIT) << "the shards have not heard of the next plan";
  Exchange();
  clock_.Advance(10);
  ASSERT_TRUE(Beat(worker).ok());
  EXPECT_EQ(master_->Command().checkpoint_version(), 16u);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Ask(worker, 1)->state(), v1::Lease::WAIT);
  shards_[0].Take(master_->Command());
  ASSERT_TRUE(master_->OnShardReport(shards_[0].Report()).ok());
  EXPECT_EQ(Ask(worker, 1)->state(), v1::Lease::WAIT) << "shard 1 has not heard of it";
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  DoLease({&worker});
  Exchange();
  const std::vector<CompleteCheckpoint> complete = TakeComplete();
  ASSERT_EQ(complete.size(), 1u);
  EXPECT_EQ(complete[0].number, 16u);
  EXPECT_EQ(complete[0].state.version(), 16u);
  EXPECT_EQ(complete[0].state.samples(), 64u);
  for (const v1::SavedShard& shard : complete[0].shards) EXPECT_EQ(shard.version(), 16u);
}

// ------------------------------------------------------------------------------- states of workers

class WorkerStateTest : public MasterTest {
 protected:
  static v1::Job Job(const JobOptions& options) {
    v1::Job job = MakeJob(options);
    job.mutable_checkpoint()->set_worker_state(true);
    return job;
  }

  // Two workers have done their first lease of a synchronous job, after which there is a checkpoint.
  void DoFirstLease() {
    Start(Job({.workers = 2, .epochs = 100, .every_updates = 5}));
    a_ = Join();
    b_ = Join();
    ASSERT_EQ(Next(&a_), v1::Lease::GRANTED);
    ASSERT_EQ(Next(&b_), v1::Lease::GRANTED);
    DoLease({&a_, &b_});
    Exchange();
  }
  // The checkpoint that the worker is to save its state for before its next lease.
  uint64_t AskedToSave(Worker* worker) {
    const absl::StatusOr<v1::Lease> lease = Ask(*worker, worker->lease.number());
    return lease.ok() && lease->state() == v1::Lease::WAIT ? lease->save_state() : 0;
  }
  void SetSaved(const Worker& worker, uint64_t checkpoint, const absl::Status& status = absl::OkStatus()) {
    EXPECT_TRUE(master_->checkpoints().CheckStateIsWanted(worker.incarnation, checkpoint).ok());
    master_->OnStateSaved(worker.incarnation, checkpoint, status);
    EXPECT_FALSE(master_->checkpoints().CheckStateIsWanted(worker.incarnation, checkpoint).ok());
    Record(absl::OkStatus());
  }
  static std::vector<uint32_t> StatesIn(const CompleteCheckpoint& checkpoint) {
    return {checkpoint.state.worker_states().begin(), checkpoint.state.worker_states().end()};
  }

  Worker a_, b_;
};

TEST_F(WorkerStateTest, ACheckpointIsCompleteOnceAllWorkersHaveSavedTheirs) {
  DoFirstLease();
  EXPECT_EQ(AskedToSave(&a_), 16u) << "the first end of a lease after 5 updates";
  EXPECT_EQ(AskedToSave(&b_), 16u);
  SetSaved(a_, 16);
  EXPECT_EQ(AskedToSave(&a_), 0u);
  EXPECT_EQ(Next(&a_), v1::Lease::GRANTED) << "it does not wait for the other";
  Exchange();
  EXPECT_TRUE(TakeComplete().empty());
  SetSaved(b_, 16);
  const std::vector<CompleteCheckpoint> complete = TakeComplete();
  ASSERT_EQ(complete.size(), 1u);
  EXPECT_EQ(complete[0].number, 16u);
  EXPECT_EQ(complete[0].state.version(), 16u);
  EXPECT_EQ(complete[0].state.samples(), kSamples + 3 * 8) << "13 steps of the first epoch, 3 of the second";
  EXPECT_EQ(StatesIn(complete[0]), (std::vector<uint32_t>{0, 1}));
}

TEST_F(WorkerStateTest, AResumedJobGivesStatesToItsFirstWorkers) {
  DoFirstLease();
  AskedToSave(&a_);
  SetSaved(a_, 16);
  SetSaved(b_, 16, absl::InternalError("the disk is full"));
  const std::vector<CompleteCheckpoint> complete = TakeComplete();
  ASSERT_EQ(complete.size(), 1u);
  EXPECT_EQ(StatesIn(complete[0]), (std::vector<uint32_t>{0})) << "it goes without one that cannot be saved";

  Start(job_, 2, complete[0].state);
  const auto first = master_->Register(Registration());
  const auto second = master_->Register(Registration());
  EXPECT_TRUE(first->restore_state());
  EXPECT_FALSE(second->restore_state());
  // Training has begun: a worker that takes a place over begins with the center's weights.
  Worker worker;
  worker.index = first->worker();
  worker.incarnation = first->incarnation();
  Leave(worker, "it goes");
  EXPECT_FALSE(master_->Register(Registration())->restore_state());
}

TEST_F(WorkerStateTest, ALostWorkerHoldsNoCheckpointUp) {
  DoFirstLease();
  AskedToSave(&a_);
  SetSaved(a_, 16);
  EXPECT_TRUE(TakeComplete().empty());
  Leave(b_, "it is gone");
  Exchange();
  const std::vector<CompleteCheckpoint> complete = TakeComplete();
  ASSERT_EQ(complete.size(), 1u);
  EXPECT_EQ(StatesIn(complete[0]), (std::vector<uint32_t>{0}));
}

TEST_F(WorkerStateTest, WorkerThatDoesNotSaveItsStateHoldsNoCheckpointUp) {
  v1::Job job = Job({.synchronous = false, .workers = 2, .epochs = 100'000, .every_updates = 5});
  job.mutable_faults()->set_stuck_seconds(60);
  Start(job);
  a_ = Join();
  b_ = Join();
  for (Worker* worker : {&a_, &b_}) {
    ASSERT_EQ(Next(worker), v1::Lease::GRANTED);
    DoLease({worker});
  }
  std::vector<CompleteCheckpoint> complete;
  int waiting = 0;
  for (int second = 0; second < 300 && complete.size() < 5; ++second) {
    clock_.Advance(1);
    if (const uint64_t number = AskedToSave(&a_)) SetSaved(a_, number);
    if (Next(&a_) == v1::Lease::GRANTED) DoLease({&a_});
    // It works until it is asked for its state, and then only sends heartbeats.
    waiting += AskedToSave(&b_) > 0 ? 1 : 0;
    if (waiting == 0 && Next(&b_) == v1::Lease::GRANTED) DoLease({&b_});
    Beat(b_).IgnoreError();
    Exchange();
    master_->Tick();
    for (CompleteCheckpoint& one : TakeComplete()) complete.push_back(std::move(one));
  }
  EXPECT_GT(waiting, 50) << "it was asked, and had its time";
  EXPECT_EQ(master_->members().num_workers(), 1);
  EXPECT_EQ(complete.size(), 5u);
}

TEST_F(WorkerStateTest, AStoppedSynchronousJobFirstFinishesWhatIsGranted) {
  Start(Job({.workers = 2, .epochs = 100, .every_updates = 0}));
  a_ = Join();
  b_ = Join();
  ASSERT_EQ(Next(&a_), v1::Lease::GRANTED);
  master_->Stop("enough");
  EXPECT_FALSE(Beat(a_)->stop());
  ASSERT_EQ(Next(&b_), v1::Lease::GRANTED) << "the other has the lease of these steps already";
  DoLease({&a_, &b_});
  Exchange();
  EXPECT_EQ(AskedToSave(&a_), 16u);
  EXPECT_THAT(master_->Status().reason(), HasSubstr("enough"));
  SetSaved(a_, 16);
  EXPECT_EQ(Ask(a_, 1)->state(), v1::Lease::WAIT) << "nothing more is granted";
  EXPECT_EQ(AskedToSave(&b_), 16u);
  SetSaved(b_, 16);
  const absl::StatusOr<v1::Lease> end = Ask(a_, 1);
  EXPECT_EQ(end->state(), v1::Lease::FINISHED);
  EXPECT_TRUE(end->stopped());
  EXPECT_TRUE(Beat(a_)->stop());
  Leave(a_, "stopped");
  Leave(b_, "stopped");
  Exchange();
  Exchange();
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::STOPPED);
  const std::vector<CompleteCheckpoint> complete = TakeComplete();
  ASSERT_EQ(complete.size(), 1u) << "the last checkpoint is the one with the states";
  EXPECT_EQ(complete[0].number, 16u);
  EXPECT_EQ(StatesIn(complete[0]), (std::vector<uint32_t>{0, 1}));
}

class StoppedAsynchronousWorkerStateTest : public WorkerStateTest,
                                           public testing::WithParamInterface<uint64_t> {};

TEST_P(StoppedAsynchronousWorkerStateTest, SavesStatesOnceAllIsPushed) {
  Start(Job({.synchronous = false, .workers = 2, .epochs = 100, .every_updates = GetParam()}));
  a_ = Join();
  b_ = Join();
  ASSERT_EQ(Next(&a_), v1::Lease::GRANTED);
  ASSERT_EQ(Next(&b_), v1::Lease::GRANTED);
  master_->Stop("enough");
  const absl::StatusOr<v1::Lease> flush = Ask(a_, a_.lease.number());
  EXPECT_EQ(flush->state(), v1::Lease::WAIT);
  EXPECT_TRUE(flush->flush());
  DoLease({&a_});
  Exchange();
  EXPECT_EQ(AskedToSave(&a_), 0u) << "the other has not pushed all";
  DoLease({&b_});
  Exchange();
  Exchange();
  const uint64_t number = AskedToSave(&a_);
  ASSERT_GT(number, 0u);
  EXPECT_EQ(AskedToSave(&b_), number);
  SetSaved(a_, number);
  SetSaved(b_, number);
  EXPECT_TRUE(Ask(b_, b_.lease.number())->stopped());
  Leave(a_, "stopped");
  Leave(b_, "stopped");
  Exchange();
  Exchange();
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::STOPPED);
  const std::vector<CompleteCheckpoint> complete = TakeComplete();
  ASSERT_EQ(complete.size(), 1u) << "the last checkpoint is the one with the states";
  EXPECT_EQ(complete[0].number, number);
  EXPECT_EQ(StatesIn(complete[0]), (std::vector<uint32_t>{0, 1}));
}

// None, and one that is announced for a version which the workers will not reach.
INSTANTIATE_TEST_SUITE_P(Checkpoints, StoppedAsynchronousWorkerStateTest, testing::Values(0, 1000000));

TEST_F(WorkerStateTest, AnAsynchronousCheckpointAsksForStatesWhenItsVersionIsReached) {
  Start(Job({.synchronous = false, .workers = 1, .epochs = 100, .every_updates = 5}));
  a_ = Join();
  // The first checkpoint is announced before the worker has work, and has no state of it.
  for (const size_t states : {0, 1}) {
    std::vector<CompleteCheckpoint> complete;
    for (int round = 0; complete.empty(); ++round) {
      ASSERT_LT(round, 100);
      const uint64_t number = AskedToSave(&a_);
      if (number > 0) {
        EXPECT_EQ(number % 5, 0u);
        EXPECT_GE(master_->Status().shards(0).version(), number);
        SetSaved(a_, number);
      }
      if (Next(&a_) == v1::Lease::GRANTED) DoLease({&a_});
      Exchange();
      complete = TakeComplete();
    }
    EXPECT_EQ(StatesIn(complete[0]).size(), states);
  }
}

TEST_F(WorkerStateTest, AStopDoesNotWaitForADiskThatIsFull) {
  DoFirstLease();
  master_->Stop("enough");
  for (FakeShard& shard : shards_) shard.extra()->set_save_error("no space left");
  Exchange();
  EXPECT_EQ(Ask(a_, 1)->state(), v1::Lease::FINISHED);
}

// ------------------------------------------------------------------------------- checkpoints by seconds

TEST_F(MasterTest, AsynchronousCheckpointBySecondsIsTakenAtOnce) {
  Start(MakeJob({.synchronous = false, .epochs = 20, .every_updates = 0, .every_seconds = 10}));
  Worker worker = Join();
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  for (int i = 0; i < 3; ++i) DoStep(&worker);
  Exchange();
  clock_.Advance(9);
  ASSERT_TRUE(Beat(worker).ok());
  Exchange();
  EXPECT_TRUE(TakeComplete().empty());
  clock_.Advance(1);
  ASSERT_TRUE(Beat(worker).ok());
  DoStep(&worker);
  Exchange();
  const std::vector<CompleteCheckpoint> complete = TakeComplete();
  ASSERT_EQ(complete.size(), 1u);
  EXPECT_EQ(complete[0].number, 3u) << "as the master has heard of";
  EXPECT_EQ(complete[0].shards[0].version(), 4u);
}

TEST_F(MasterTest, SlowShardSkipsCheckpointsForAll) {
  Start(MakeJob({.epochs = 40, .every_updates = 5}));
  Worker worker = Join();
  shards_[1].set_saves(false);
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
    DoLease({&worker});
    Exchange();
    EXPECT_EQ(master_->Command().checkpoint(), 5u) << "shard 1 still writes it";
  }
  shards_[1].set_saves(true);
  Exchange();
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  DoLease({&worker});
  Exchange();
  Exchange();
  const std::vector<CompleteCheckpoint> complete = TakeComplete();
  ASSERT_EQ(complete.size(), 2u);
  EXPECT_EQ(complete[0].number, 5u);
  EXPECT_EQ(complete[1].number, 50u);
  for (const v1::SavedShard& shard : complete[1].shards) EXPECT_EQ(shard.version(), 50u);
}

TEST_F(MasterTest, FailedCheckpointGivesWayToTheNext) {
  Start(MakeJob({.epochs = 40, .every_updates = 5}));
  Worker worker = Join();
  shards_[1].set_saves(false);
  shards_[1].extra()->set_save_error("no space left");
  for (int i = 0; i < 2; ++i) {
    ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
    DoLease({&worker});
    Exchange();
  }
  EXPECT_GT(master_->Command().checkpoint(), 5u);
  // The steps after version 5 have been forgotten.
  shards_[1].extra()->add_saved()->set_checkpoint(5);
  Exchange();
  EXPECT_TRUE(TakeComplete().empty()) << "another one has taken its place";
  shards_[1].extra()->clear_saved();
  shards_[1].set_saves(true);
  shards_[1].extra()->clear_save_error();
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  DoLease({&worker});
  Exchange();
  Exchange();
  const std::vector<CompleteCheckpoint> complete = TakeComplete();
  ASSERT_EQ(complete.size(), 1u);
  EXPECT_GT(complete[0].number, 5u);
  EXPECT_EQ(complete[0].state.version(), complete[0].number);
}

}  // namespace
}  // namespace catchment
