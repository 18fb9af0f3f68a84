// The statements of members, and the accounts by what the shards have settled.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/not_ready.h"
#include "tests/server/control/master_fixture.h"

namespace catchment {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

// ---------------------------------------------------------------------------------------------- statements

TEST_F(MasterTest, WorkerThatStatesMoreStepsThanItHasIsRemoved) {
  for (const bool synchronous : {false, true}) {
    Start(MakeJob({.synchronous = synchronous, .workers = 2, .epochs = 2}), 2);
    Worker honest = Join(), hostile = Join();
    ASSERT_EQ(Next(&honest), v1::Lease::GRANTED);
    ASSERT_EQ(Next(&hostile), v1::Lease::GRANTED);
    const uint64_t assigned = hostile.lease.minibatches_size();
    for (const uint64_t stated : {assigned, assigned + 1}) {
      v1::PushMark mark;
      mark.set_worker(hostile.index);
      mark.set_incarnation(hostile.incarnation);
      mark.set_begun_steps(stated);
      v1::ShardReport report = shards_[1].Report();
      *report.add_marks() = mark;
      ASSERT_TRUE(master_->OnShardReport(report).ok());
      EXPECT_EQ(master_->members().num_workers(), stated == assigned ? 2 : 1);
    }
    EXPECT_THAT(FreshEvents(),
                Contains(HasSubstr(absl::StrCat("worker 1 (host:7) stated ", assigned + 1,
                                                " steps to server 1, but it was assigned ", assigned,
                                                ": removed; its samples are assigned to others"))));
    EXPECT_EQ(Beat(hostile).status().code(), absl::StatusCode::kNotFound);
    Exchange();
    do {
      DoLease({&honest});
    } while (Next(&honest) == v1::Lease::GRANTED);
    EXPECT_EQ(master_->Status().samples(), 2 * kSamples);
  }
}

TEST_F(MasterTest, ScheduleFollowsTheMastersCountOnceAServerHasCountedMore) {
  Start(MakeJob({.synchronous = false, .workers = 1, .epochs = 2}));
  Worker worker = Join();
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  EXPECT_EQ(master_->Command().most_samples(), 0u);
  // A hundredth of 200 is the tolerance; 8 steps of 4 are assigned.
  for (const uint64_t counted : {34u, 35u}) {
    shards_[0].extra()->set_samples(counted - 5);
    shards_[0].extra()->set_late_samples(5);
    Exchange();
    EXPECT_EQ(master_->Command().most_samples(), counted == 34 ? 0u : 34u);
  }
  EXPECT_THAT(FreshEvents(), Contains(HasSubstr("server 0 has counted 35 samples, more than were")));
  shards_[0].extra()->clear_samples();
  shards_[0].extra()->clear_late_samples();
  DoLease({&worker});
  Exchange();
  EXPECT_EQ(master_->Command().most_samples(), 34u) << "done, not assigned";
}

TEST_F(MasterTest, AddressOfWorkersThatVanishIsBarred) {
  for (const bool synchronous : {true, false}) {
    Start(MakeJob({.synchronous = synchronous, .workers = 1, .epochs = 40}));
    Worker honest = Join();
    ASSERT_EQ(Next(&honest), v1::Lease::GRANTED);
    const auto phantom = [&] {
      const absl::StatusOr<v1::RegisterReply> reply = master_->Register(Registration(), "10.0.0.9");
      if (!reply.ok()) return reply.status();
      Worker worker;
      worker.index = reply->worker();
      worker.incarnation = reply->incarnation();
      DoLease({&honest});
      EXPECT_EQ(Next(&honest), v1::Lease::GRANTED);
      EXPECT_EQ(Next(&worker), v1::Lease::GRANTED);
      return absl::OkStatus();
    };
    const auto pass = [&](double seconds) {
      for (double passed = 0; passed < seconds; passed += 1) {
        EXPECT_TRUE(Beat(honest).ok());
        Exchange();
        clock_.Advance(1);
        master_->Tick();
      }
    };
    EXPECT_TRUE(phantom().ok());
    EXPECT_TRUE(phantom().ok());
    pass(12);
    EXPECT_TRUE(phantom().ok()) << "the first ones count as one";
    pass(12);
    const absl::Status barred = phantom();
    if (!synchronous) {
      EXPECT_TRUE(barred.ok()) << "nobody waits for it";
      continue;
    }
    EXPECT_TRUE(IsNotReady(barred)) << barred;
    EXPECT_THAT(std::string(barred.message()), HasSubstr("or vanished, more than once"));
    EXPECT_TRUE(master_->Register(Registration(), "10.0.0.8").ok()) << "another address";
    pass(190);
    EXPECT_FALSE(phantom().ok());
    pass(60);
    EXPECT_TRUE(phantom().ok());
  }
}

TEST_F(MasterTest, WorkerThatJoinsLateCountsWhenItHasContributed) {
  Start(MakeJob({.synchronous = false, .workers = 1, .epochs = 4}));
  Worker first = Join();
  ASSERT_EQ(Next(&first), v1::Lease::GRANTED);
  const auto is_idle = [this](const Worker& worker) {
    const v1::Roster roster = master_->Command().rosters(0);
    return roster.members(static_cast<int>(worker.index)).idle();
  };
  EXPECT_FALSE(is_idle(first));
  Worker late = Join();
  ASSERT_EQ(Next(&late), v1::Lease::GRANTED);
  EXPECT_TRUE(is_idle(late));
  DoLease({&late});
  Exchange();
  ASSERT_EQ(Next(&late), v1::Lease::GRANTED);
  EXPECT_FALSE(is_idle(late));
}

TEST_F(MasterTest, ScoreThatNoTestSetCanHaveIsRefused) {
  Start(MakeJob({.epochs = 4}));
  Worker worker = Join(), evaluator = Join(v1::EVALUATOR);
  const auto report = [&](uint64_t samples, uint64_t correct, double loss_sum) {
    while (AskEvaluation(evaluator)->evaluation() == 0) {
      EXPECT_EQ(Next(&worker), v1::Lease::GRANTED);
      DoLease({&worker});
      EXPECT_TRUE(Beat(worker).ok());
    }
    v1::EvaluationReport message;
    message.set_incarnation(evaluator.incarnation);
    message.set_evaluation(AskEvaluation(evaluator)->evaluation());
    message.set_samples(samples);
    message.set_correct(correct);
    message.set_loss_sum(loss_sum);
    return std::string(master_->ReportEvaluation(message).status().message());
  };
  EXPECT_EQ(report(1, 100, 1),
            "evaluator 0 (host:7) reports EvaluationReport.correct 100, but the scored samples are 1");
  EXPECT_THAT(report(1, 1, -1e300), HasSubstr("the losses of this model are not negative"));
  EXPECT_THAT(report(1, 1, -std::numeric_limits<double>::infinity()), HasSubstr("are not negative"));
  EXPECT_EQ(report(50, 25, 50), "");
  EXPECT_EQ(report(1, 1, 0),
            "evaluator 0 (host:7) reports EvaluationReport.samples 1, but the test samples are 50");
  EXPECT_EQ(report(50, 25, std::numeric_limits<double>::quiet_NaN()), "");
  EXPECT_EQ(master_->Status().best_test_loss(), 1);
}

TEST_F(MasterTest, OneWorkersSpeedDoesNotDecideHowOthersWork) {
  v1::Job job = MakeJob({.synchronous = false, .workers = 3, .epochs = 20});
  v1::PseudoGradient* const local =
      job.mutable_algorithm()->mutable_contribution()->mutable_pseudo_gradient();
  local->set_local_steps(50);
  local->set_steps_by_speed(true);
  Start(job);
  Worker workers[] = {Join(), Join(), Join()};
  for (Worker& worker : workers) ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  for (int i = 0; i < 8; ++i) {
    for (Worker& worker : workers) DoStep(&worker);
    Exchange();
    clock_.Advance(1.1);
    for (Worker& worker : workers) {
      const bool hostile = &worker == &workers[2];
      worker.progress.set_compute_seconds((hostile ? 1e-9 : 1.1) * (i + 1));
      ASSERT_TRUE(Beat(worker).ok());
    }
    master_->Tick();
  }
  ASSERT_EQ(Next(&workers[0]), v1::Lease::GRANTED);
  EXPECT_GE(workers[0].lease.local_steps(), 49u);
}

// ------------------------------------------------------------------ accounts by what the shards have settled

TEST_F(MasterTest, WorkerThatReportsNoProgressEndsItsJobAllTheSame) {
  for (bool synchronous : {false, true}) {
    Start(MakeJob({.synchronous = synchronous}));
    Worker worker = Join();
    v1::Lease::State state;
    while ((state = Next(&worker)) == v1::Lease::GRANTED) {
      DoLease({&worker});
      Exchange();
      const v1::Progress progress = std::exchange(worker.progress, {});
      const absl::StatusOr<v1::Lease> next = Ask(worker, worker.lease.number());
      EXPECT_TRUE(next.ok()) << next.status();
      worker.progress = progress;
    }
    EXPECT_EQ(state, v1::Lease::FINISHED);
    EXPECT_EQ(master_->Status().samples(), kSamples);
  }
}

TEST_F(MasterTest, WhatOnlyTheWorkerSaysIsDoneIsNotTrained) {
  Start(MakeJob({.synchronous = false}));
  Worker worker = Join();
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  worker.progress.set_lease_steps(worker.lease.minibatches_size());
  worker.progress.set_steps(worker.lease.minibatches_size());
  ASSERT_TRUE(Beat(worker).ok());
  Exchange();
  EXPECT_EQ(master_->Status().samples(), 0u);
}

TEST_F(MasterTest, ProgressThatCannotBeIsRefusedByName) {
  Start(MakeJob({.synchronous = false}));
  Worker worker = Join();
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  const auto message = [&](const std::function<void(v1::Progress*)>& change) {
    Worker changed = worker;
    change(&changed.progress);
    const absl::Status status = Ask(changed, 1).status();
    EXPECT_EQ(Beat(changed).status(), status);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(message([](v1::Progress* p) { p->set_lease(77); }),
            "worker 0 (host:7) reports Progress.lease 77, but its last lease is 1");
  EXPECT_EQ(message([](v1::Progress* p) { p->set_lease_steps(1000000); }),
            "worker 0 (host:7) reports Progress.lease_steps 1000000, but the steps of that lease are 8");
  EXPECT_EQ(message([](v1::Progress* p) { p->set_steps(9); }),
            "worker 0 (host:7) reports Progress.steps 9, but it was assigned 8");
  EXPECT_EQ(message([](v1::Progress* p) { p->set_samples(33); }),
            "worker 0 (host:7) reports Progress.samples 33, but it was assigned 32");
  EXPECT_EQ(message([](v1::Progress* p) { p->set_correct(33); }),
            "worker 0 (host:7) reports Progress.correct 33, but it was assigned 32");
  EXPECT_EQ(master_->Status().samples(), 0u);
}

// Its contribution waited in a synchronous round when it was lost: the shards drop it, and it is computed
// again.
TEST_F(MasterTest, LostWorkersSamplesAreDealtAgainFromWhatTheShardsHave) {
  Start(MakeJob({.workers = 2}));
  Worker kept = Join();
  Worker lost = Join();
  ASSERT_EQ(Next(&kept), v1::Lease::GRANTED);
  ASSERT_EQ(Next(&lost), v1::Lease::GRANTED);
  DoStep(&kept);
  DoStep(&lost);
  DoStep(&lost);  // waits for the other one's second step
  Exchange();
  EXPECT_EQ(master_->Status().samples(), 8u);
  clock_.Advance(6);
  ASSERT_TRUE(Beat(kept).ok());
  clock_.Advance(6);
  master_->Tick();
  while (kept.progress.lease_steps() < static_cast<uint64_t>(kept.lease.minibatches_size())) DoStep(&kept);
  EXPECT_EQ(shards_[0].version(), 2u) << "shards have not heard of the loss";
  Exchange();
  EXPECT_GT(shards_[0].version(), 2u);
  EXPECT_EQ(master_->Status().repeated_samples(), 0u);
  while (Next(&kept) == v1::Lease::GRANTED) DoLease({&kept});
  EXPECT_EQ(master_->Status().samples(), kSamples);
  EXPECT_EQ(shards_[0].Settled(lost.incarnation), 2u)
      << "the second one was in before the shards heard of it";
}

TEST_F(MasterTest, ContributionThatReachedOnlyOneShardIsReportedAsComputedTwice) {
  Start(MakeJob({.synchronous = false}));
  Worker lost = Join();
  ASSERT_EQ(Next(&lost), v1::Lease::GRANTED);
  DoStep(&lost);
  DoStep(&lost);
  shards_[0].Contribute(lost.incarnation, 0, 3);
  Exchange();
  EXPECT_EQ(master_->Status().samples(), 8u);
  Leave(lost, "killed", true);
  Exchange();
  EXPECT_EQ(master_->Status().repeated_samples(), 4u);
  EXPECT_THAT(master_->Status().events(), Contains("the last contribution of worker 0 (host:7) "
                                                   "reached only some blocks: 4 samples are computed again"));
}

TEST_F(MasterTest, MemberThatMakesNoProgressIsNamedAndThenRemoved) {
  v1::Job job = MakeJob({.workers = 2});
  job.mutable_faults()->set_stuck_seconds(300);
  job.mutable_faults()->set_hold_up_seconds(60);
  Start(job);
  Worker kept = Join();
  Worker stuck = Join();
  ASSERT_EQ(Next(&kept), v1::Lease::GRANTED);
  ASSERT_EQ(Next(&stuck), v1::Lease::GRANTED);
  DoStep(&kept);
  const auto pass = [&](int seconds) {
    for (int i = 0; i < seconds; ++i) {
      clock_.Advance(1);
      EXPECT_TRUE(Beat(kept).ok());
      EXPECT_TRUE(Beat(stuck).ok());
      Exchange();
      master_->Tick();
    }
  };
  pass(29);
  EXPECT_EQ(master_->Status().workers(1).seconds_without_progress(), 0);
  pass(2);
  EXPECT_GE(master_->Status().workers(1).seconds_without_progress(), 30);
  EXPECT_EQ(master_->Status().workers(0).seconds_without_progress(), 0) << "it waits for the other one";
  EXPECT_THAT(master_->Status().events(), Contains("no_progress: worker 1 (host:7) has work and has made no "
                                                   "progress for 30 s; it will be removed after 60 s"));
  pass(29);
  EXPECT_EQ(master_->Status().workers_size(), 2);
  clock_.Advance(1);
  Exchange();
  master_->Tick();
  EXPECT_EQ(master_->Status().workers_size(), 1);
  EXPECT_EQ(Beat(stuck).status().code(), absl::StatusCode::kNotFound);
  Exchange();
  while (kept.progress.lease_steps() < static_cast<uint64_t>(kept.lease.minibatches_size())) DoStep(&kept);
  while (Next(&kept) == v1::Lease::GRANTED) DoLease({&kept});
  EXPECT_EQ(master_->Status().samples(), kSamples);
}

// An asynchronous job with one worker that works and others that only send heartbeats.
class HeldUpTest : public MasterTest {
 protected:
  HeldUpTest() {
    v1::Job job = MakeJob({.synchronous = false, .workers = 2, .epochs = 100'000});
    job.mutable_faults()->set_stuck_seconds(60);
    Start(job);
    kept_ = Join();
  }

  // A second passes, in which the one does a step.
  void Pass(int seconds, const Worker* idle = nullptr) {
    for (int i = 0; i < seconds; ++i) {
      clock_.Advance(1);
      if (kept_.progress.lease_steps() < static_cast<uint64_t>(kept_.lease.minibatches_size())) {
        DoStep(&kept_);
      } else {
        Next(&kept_);
      }
      ASSERT_TRUE(Beat(kept_).ok());
      if (idle != nullptr) Beat(*idle).IgnoreError();
      Exchange();
      master_->Tick();
    }
  }

  Worker kept_;
};

TEST_F(HeldUpTest, WorkersOfAnAddressThatHoldOthersUpAgainAndAgainHaveToWait) {
  for (const int limit : {60, 120}) {
    Worker idle = Join();
    // The first one does not even ask for a lease.
    const bool asks = limit == 120;
    if (asks) {
      EXPECT_EQ(Next(&idle), v1::Lease::GRANTED);
    }
    Pass(limit - 1, &idle);
    EXPECT_EQ(master_->members().num_workers(), 2) << limit;
    Pass(4, &idle);
    EXPECT_EQ(master_->members().num_workers(), 1) << limit;
  }
  const absl::Status status = master_->Register(Registration()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the worker (host:7) may register in 2"));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("set higher faults.hold_up_seconds and faults.stuck_seconds"));
  EXPECT_TRUE(master_->Register(Registration(v1::EVALUATOR)).ok());
  const absl::StatusOr<v1::RegisterReply> other = master_->Register(Registration(), "ipv4:10.0.0.9");
  ASSERT_TRUE(other.ok()) << other.status();
  Leave({.index = other->worker(), .incarnation = other->incarnation(), .lease = {}, .progress = {}});
  Pass(230);
  EXPECT_FALSE(master_->Register(Registration()).ok());
  Pass(15);
  EXPECT_TRUE(master_->Register(Registration()).ok());
}

TEST_F(HeldUpTest, WhoHoldsUpNobodyNeedNotWait) {
  for (const int limit : {60, 120}) {
    Worker idle = Join();
    Pass(limit + 4, &idle);
    EXPECT_EQ(master_->members().num_workers(), 1);
  }
  EXPECT_FALSE(master_->Register(Registration()).ok());
  Leave(kept_);
  EXPECT_TRUE(master_->Register(Registration()).ok()) << "the job has no other worker";
}

TEST_F(HeldUpTest, TimesThatOnlyAWorkerSaysDoNotLengthenItsLimit) {
  for (const bool pushes : {false, true}) {
    Worker idle = Join();
    ASSERT_EQ(Next(&idle), v1::Lease::GRANTED);
    Pass(1, &idle);
    if (pushes) {
      DoStep(&idle);
    } else {
      idle.progress.set_steps(1);
      idle.progress.set_lease_steps(1);
    }
    idle.progress.set_compute_seconds(1e15);
    const int limit = pushes ? 120 : 60;  // the process was stuck once
    Pass(limit - 2, &idle);
    EXPECT_EQ(master_->members().num_workers(), 2);
    Pass(5, &idle);
    EXPECT_EQ(master_->members().num_workers(), 1);
  }
}

TEST_F(HeldUpTest, TimesThatOnlyAWorkerSaysDoNotHoldUpTheEnd) {
  Worker idle = Join();
  ASSERT_EQ(Next(&idle), v1::Lease::GRANTED);
  idle.progress.set_steps(1);
  idle.progress.set_lease_steps(1);
  idle.progress.set_compute_seconds(1e15);
  ASSERT_TRUE(Beat(idle).ok());
  master_->Stop("enough");
  Leave(kept_);
  for (int i = 0; i < 62; ++i) {
    clock_.Advance(1);
    Beat(idle).IgnoreError();
    master_->Tick();
  }
  EXPECT_EQ(master_->members().num_workers(), 0);
}

TEST_F(MasterTest, WhoWaitsAtTheEndIsAskedToPushWhatItHas) {
  Start(MakeJob({.synchronous = false, .batch_size = 50}));
  Worker worker = Join();
  EXPECT_FALSE(Ask(worker, 0)->flush()) << "the shards do not know it yet";
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  const absl::StatusOr<v1::Lease> wait = Ask(worker, 2);
  EXPECT_EQ(wait->state(), v1::Lease::WAIT);
  EXPECT_TRUE(wait->flush());
}

TEST_F(MasterTest, WeightThatIsNotFiniteFailsTheJob) {
  Start(MakeJob({}));
  shards_[1].extra()->set_non_finite_version(7);
  Exchange();
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::FAILED);
  EXPECT_THAT(master_->Status().reason(),
              HasSubstr("server 1 has had a NaN or infinite weight since update 7: training has diverged"));
  EXPECT_FALSE(master_->state_machine().weights_are_whole());
}

TEST_F(MasterTest, VersionThatFallsFailsTheJob) {
  Start(MakeJob({}));
  v1::ShardReport report;
  report.set_shard(1);
  report.set_version(7);
  ASSERT_TRUE(master_->OnShardReport(report).ok());
  ASSERT_TRUE(master_->OnShardReport(report).ok());
  report.set_version(6);
  EXPECT_EQ(master_->OnShardReport(report).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::FAILED);
  EXPECT_EQ(master_->Status().reason(),
            "server 1 is at version 6 after version 7: it has lost updates; "
            "start all servers again with --resume");
}

TEST_F(MasterTest, ServerThatIsReplacedBeforeTrainingReportsFromTheBeginning) {
  Start(MakeJob({}));
  EXPECT_FALSE(master_->state_machine().begun());
  v1::ShardReport report;
  report.set_shard(1);
  report.set_version(7);
  ASSERT_TRUE(master_->OnShardReport(report).ok());
  master_->OnServerReplaced(1, "here:7001");
  report.set_version(0);
  EXPECT_TRUE(master_->OnShardReport(report).ok());
  Join();
  EXPECT_TRUE(master_->state_machine().begun());
}

TEST_F(MasterTest, NamesReportsOfShardsThatTheJobDoesNotHave) {
  Start(MakeJob({}), 1);
  v1::ShardReport report;
  report.set_shard(1);
  EXPECT_EQ(master_->OnShardReport(report).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace catchment
