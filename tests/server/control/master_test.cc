#include "server/control/master.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/not_ready.h"
#include "tests/server/control/fake_shard.h"
#include "tests/server/control/testing.h"

namespace catchment {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

struct Worker {
  uint32_t index = 0;
  uint64_t incarnation = 0;
  v1::Lease lease;
  v1::Progress progress;
};

class MasterTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kSamples = 100;

  void Start(const v1::Job& job, int num_shards = 2, std::optional<v1::MasterState> resumed = std::nullopt) {
    job_ = job;
    auto master = Master::Create(job, Tensors(), num_shards, &clock_, resumed);
    ASSERT_TRUE(master.ok()) << master.status();
    master_ = *std::move(master);
    shards_.clear();
    const bool synchronous = job.algorithm().consistency().has_synchronous();
    for (int i = 0; i < num_shards; ++i) {
      shards_.emplace_back(i, synchronous, resumed ? resumed->version() : 0);
    }
  }

  static std::vector<TensorSpec> Tensors() { return {{"dense1.weight", {10, 784}}, {"dense1.bias", {10}}}; }

  static v1::RegisterRequest Registration(v1::Role role = v1::WORKER) {
    v1::RegisterRequest request;
    request.set_role(role);
    for (const TensorSpec& tensor : Tensors()) {
      v1::TensorInfo* info = request.add_tensors();
      info->set_name(tensor.name);
      info->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
    }
    if (role == v1::WORKER) request.set_train_samples(kSamples);
    request.set_host("host");
    request.set_pid(7);
    return request;
  }

  Worker Join(v1::Role role = v1::WORKER) {
    const auto reply = master_->Register(Registration(role));
    EXPECT_TRUE(reply.ok()) << reply.status();
    Worker worker;
    worker.index = reply->worker();
    worker.incarnation = reply->incarnation();
    return worker;
  }

  // All shards take the command and report, and the manifests of checkpoints that are complete then are
  // written.
  void Exchange() {
    for (FakeShard& shard : shards_) {
      shard.Take(master_->Command());
      ASSERT_TRUE(master_->OnShardReport(shard.Report()).ok());
    }
    Record(absl::OkStatus());
  }

  // Passes `written` to the master for each checkpoint that is complete.
  void Record(const absl::Status& written) {
    for (CompleteCheckpoint& checkpoint : master_->TakeCompleteCheckpoints()) {
      master_->OnCheckpointRecorded(checkpoint.number, written);
      complete_.push_back(std::move(checkpoint));
    }
  }
  std::vector<CompleteCheckpoint> TakeComplete() { return std::exchange(complete_, {}); }

  static v1::GetLeaseRequest RequestOf(const Worker& worker, uint64_t after) {
    v1::GetLeaseRequest request;
    request.set_worker(worker.index);
    request.set_incarnation(worker.incarnation);
    request.set_after(after);
    *request.mutable_progress() = worker.progress;
    return request;
  }

  absl::StatusOr<v1::Lease> Ask(const Worker& worker, uint64_t after) {
    return master_->GetLease(RequestOf(worker, after));
  }

  // The next lease; shards hear of everything meanwhile.
  v1::Lease::State Next(Worker* worker) {
    absl::StatusOr<v1::Lease> lease = Ask(*worker, worker->lease.number());
    // The first exchange may settle what another worker has left, the second make this one's roster known.
    for (int i = 0; i < 2 && lease.ok() && lease->state() == v1::Lease::WAIT; ++i) {
      Exchange();
      lease = Ask(*worker, worker->lease.number());
    }
    EXPECT_TRUE(lease.ok()) << lease.status();
    if (lease->state() == v1::Lease::GRANTED) {
      worker->lease = *lease;
      worker->progress.set_lease(lease->number());
      worker->progress.set_lease_steps(0);
    }
    return lease->state();
  }

  static uint64_t SamplesOf(const v1::Minibatch& minibatch) {
    uint64_t samples = 0;
    for (const v1::SampleSpan& span : minibatch.spans()) samples += span.end() - span.begin();
    return samples;
  }

  // One step of its lease: loss 2 a sample, half of them right.
  void DoStep(Worker* worker) {
    const uint64_t step = worker->progress.lease_steps();
    const uint64_t samples = SamplesOf(worker->lease.minibatches(static_cast<int>(step)));
    worker->progress.set_lease_steps(step + 1);
    worker->progress.set_steps(worker->progress.steps() + 1);
    worker->progress.set_samples(worker->progress.samples() + samples);
    worker->progress.set_loss_sum(worker->progress.loss_sum() + 2.0 * static_cast<double>(samples));
    worker->progress.set_correct(worker->progress.correct() + samples / 2);
    for (FakeShard& shard : shards_) {
      shard.Contribute(worker->incarnation, worker->lease.first_version() + step, worker->progress.steps());
    }
  }

  void DoLease(const std::vector<Worker*>& workers) {
    for (int step = 0; step < workers[0]->lease.minibatches_size(); ++step) {
      for (Worker* worker : workers) {
        if (step < worker->lease.minibatches_size()) DoStep(worker);
      }
    }
  }

  absl::StatusOr<v1::HeartbeatReply> Beat(const Worker& worker, v1::Role role = v1::WORKER) {
    v1::HeartbeatRequest request;
    request.set_role(role);
    request.set_worker(worker.index);
    request.set_incarnation(worker.incarnation);
    *request.mutable_progress() = worker.progress;
    return master_->Heartbeat(request);
  }

  v1::LeaveReply Leave(const Worker& worker, const std::string& reason = "", bool failed = false,
                       bool stays = false) {
    v1::LeaveRequest request;
    request.set_worker(worker.index);
    request.set_incarnation(worker.incarnation);
    *request.mutable_progress() = worker.progress;
    request.set_reason(reason);
    request.set_failed(failed);
    request.set_stays(stays);
    return master_->Leave(request);
  }

  // A lone worker to the end of the budget.
  void TrainAlone() {
    Worker worker = Join();
    while (Next(&worker) == v1::Lease::GRANTED) DoLease({&worker});
    Leave(worker);
  }

  absl::StatusOr<v1::GetEvaluationReply> AskEvaluation(const Worker& evaluator) {
    v1::GetEvaluationRequest request;
    request.set_incarnation(evaluator.incarnation);
    return master_->GetEvaluation(request);
  }

  // Trains until an evaluation is due, and scores it: 50 test samples.
  absl::StatusOr<v1::ReportEvaluationReply> TrainAndScore(const Worker& evaluator, Worker* worker,
                                                          double loss, uint64_t correct) {
    while (AskEvaluation(evaluator)->evaluation() == 0) {
      EXPECT_EQ(Next(worker), v1::Lease::GRANTED);
      DoLease({worker});
      EXPECT_TRUE(Beat(*worker).ok());
    }
    return Score(evaluator, loss, correct);
  }
  absl::StatusOr<v1::ReportEvaluationReply> Score(const Worker& evaluator, double loss, uint64_t correct) {
    v1::EvaluationReport report;
    report.set_incarnation(evaluator.incarnation);
    report.set_evaluation(AskEvaluation(evaluator)->evaluation());
    report.set_samples(50);
    report.set_correct(correct);
    report.set_loss_sum(50 * loss);
    last_report_ = report;
    return master_->ReportEvaluation(report);
  }

  v1::EvaluationReport last_report_;
  v1::Job job_;
  ManualClock clock_;
  std::unique_ptr<Master> master_;
  std::vector<CompleteCheckpoint> complete_;
  std::vector<FakeShard> shards_;
};

// ------------------------------------------------------------------------------------------- admission

TEST_F(MasterTest, RefusesAnotherModelNamingTheTensor) {
  Start(MakeJob({}));
  v1::RegisterRequest request = Registration();
  request.mutable_tensors(0)->set_shape(1, 785);
  const absl::Status status = master_->Register(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("expected dense1.weight 10x784, got dense1.weight 10x785"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("host:7"));
}

TEST_F(MasterTest, OtherDataThanThatOfTheFirstWorkersWaitsUntilSamplesAreAssigned) {
  Start(MakeJob({.workers = 2}));
  Worker worker = Join();
  v1::RegisterRequest request = Registration();
  request.set_train_samples(kSamples + 1);
  request.set_pid(8);
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = master_->Register(request).status();
    EXPECT_TRUE(IsNotReady(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("the worker (host:8) waits, because it has 101 training samples, and the job has "
                          "100, as worker 0 (host:7) has; give all"));
  }
  EXPECT_THAT(master_->TakeEvents(), Contains(HasSubstr("(host:8) has 101 training samples")).Times(1));
  Worker other = Join();
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  const absl::Status status = master_->Register(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("(host:8) has 101 training samples, and the job has"));
  request.set_train_samples(0);
  EXPECT_EQ(master_->Register(request).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(MasterTest, MostWorkersDecideTheDataAgainstAFirstOne) {
  for (const bool names : {false, true}) {
    v1::Job job = MakeJob({.workers = 3});
    job.mutable_data()->mutable_image_folder();
    Start(job);
    v1::RegisterRequest wrong = Registration();
    names ? wrong.set_class_names(5) : wrong.set_train_samples(UINT32_MAX);
    ASSERT_TRUE(master_->Register(wrong).ok());
    v1::RegisterRequest right = Registration();
    right.set_pid(8);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(IsNotReady(master_->Register(right).status()));
    right.set_pid(9);
    EXPECT_TRUE(master_->Register(right).ok()) << "two of the job's three workers agree";
    EXPECT_THAT(master_->TakeEvents(), Contains(HasSubstr("worker 0 (host:7) has other data than 2 of the")));
    right.set_pid(8);
    EXPECT_TRUE(master_->Register(right).ok());
    EXPECT_EQ(master_->num_workers(), 2);
    EXPECT_TRUE(IsNotReady(master_->Register(wrong).status()));
    EXPECT_EQ(master_->total_samples(), kSamples);
  }
}

TEST_F(MasterTest, OnlyImageFoldersHaveNamesOfClasses) {
  Start(MakeJob({}));
  for (const v1::Role role : {v1::EVALUATOR, v1::WORKER}) {
    v1::RegisterRequest request = Registration(role);
    request.set_class_names(7);
    EXPECT_EQ(master_->Register(request).status().code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_TRUE(master_->Register(Registration()).ok());
}

TEST_F(MasterTest, WorkersDecideTheNamesOfClasses) {
  v1::Job job = MakeJob({.workers = 2});
  job.mutable_data()->mutable_image_folder();
  Start(job);
  v1::RegisterRequest evaluator = Registration(v1::EVALUATOR);
  evaluator.set_class_names(8);
  ASSERT_TRUE(master_->Register(evaluator).ok()) << "no worker is there to disagree";
  v1::RegisterRequest worker = Registration();
  worker.set_class_names(7);
  ASSERT_TRUE(master_->Register(worker).ok());
  EXPECT_THAT(master_->TakeEvents(), Contains(HasSubstr("evaluator 0 (host:7) has classes of other names")));
  const absl::Status status = master_->Register(evaluator).status();
  EXPECT_TRUE(IsNotReady(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the evaluator (host:7) waits, because it has classes of other names than worker 0"));
  evaluator.set_class_names(7);
  EXPECT_TRUE(master_->Register(evaluator).ok());
}

TEST_F(MasterTest, AResumedJobKnowsItsClasses) {
  v1::MasterState state;
  state.set_train_samples(kSamples);
  state.set_class_names(7);
  v1::Job job = MakeJob({});
  job.mutable_data()->mutable_image_folder();
  Start(job, 1, state);
  EXPECT_EQ(master_->Register(Registration()).status().code(), absl::StatusCode::kFailedPrecondition);
  v1::RegisterRequest request = Registration();
  request.set_class_names(7);
  EXPECT_TRUE(master_->Register(request).ok());
}

TEST_F(MasterTest, DataOfWorkersThatAreGoneAreForgotten) {
  v1::RegisterRequest request = Registration();
  request.set_train_samples(UINT32_MAX);
  for (const bool synchronous : {false, true}) {
    for (const uint32_t workers : {1, 2}) {  // one begins alone
      Start(MakeJob({.synchronous = synchronous, .workers = workers, .epochs = 2}));
      for (const bool leaves : {true, false}) {
        const absl::StatusOr<v1::RegisterReply> reply = master_->Register(request);
        ASSERT_TRUE(reply.ok()) << reply.status();
        EXPECT_TRUE(IsNotReady(master_->Register(Registration()).status()));
        Exchange();
        if (leaves) {
          Leave({.index = reply->worker(), .incarnation = reply->incarnation(), .lease = {}, .progress = {}});
        } else {
          clock_.Advance(11);
          master_->Tick();
        }
        EXPECT_EQ(master_->num_workers(), 0);
        Exchange();
      }
      if (workers == 1) {
        TrainAlone();
        EXPECT_EQ(master_->Status().samples(), 2 * kSamples);
      } else {
        Join();
        EXPECT_EQ(master_->total_samples(), 2 * kSamples);
      }
    }
  }
}

TEST_F(MasterTest, DataAreThoseOfTheFirstWorkerThatWasAssignedSamples) {
  for (const bool synchronous : {false, true}) {
    Start(MakeJob({.synchronous = synchronous}));
    Worker worker = Join();
    ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
    Leave(worker);
    Exchange();
    v1::RegisterRequest request = Registration();
    request.set_train_samples(kSamples + 1);
    EXPECT_EQ(master_->Register(request).status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(master_->Register(Registration()).ok());
  }
}

TEST_F(MasterTest, TheJobStatesHowManySamplesItsDataHave) {
  const auto start_with = [this](const std::string& data) {
    v1::Job job = MakeJob({});
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(data, job.mutable_data())) << data;
    Start(job);
  };
  for (const char* data :
       {"synthetic { samples: 100 }", "external { train_samples: 100 }",
        "drawn_digits { train_samples: 100 }", "generated_images { train_samples: 100 }"}) {
    start_with(data);
    v1::RegisterRequest request = Registration();
    for (const uint64_t samples : {uint64_t{99}, uint64_t{UINT32_MAX}}) {
      request.set_train_samples(samples);
      const absl::Status status = master_->Register(request).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << data;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("training samples, and the job's data have 100; start workers"));
    }
    EXPECT_TRUE(master_->Register(Registration()).ok()) << data;
  }
  start_with("mnist {}");
  EXPECT_THAT(std::string(master_->Register(Registration()).status().message()),
              HasSubstr("100 training samples, and the job's data have 60000"));
  for (const char* data : {"cifar10 {}", "table { train: 'rows.csv' }"}) {
    start_with(data);
    EXPECT_TRUE(master_->Register(Registration()).ok()) << "a worker counts them: " << data;
  }
}

TEST_F(MasterTest, AResumedJobKnowsItsData) {
  v1::MasterState state;
  state.set_train_samples(kSamples + 5);
  Start(MakeJob({}), 1, state);
  EXPECT_EQ(master_->Command().total_samples(), kSamples + 5);
  EXPECT_EQ(master_->Register(Registration()).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(MasterTest, RefusesADamagedState) {
  v1::MasterState state;
  state.set_train_samples(10);
  state.set_next_position(11);
  EXPECT_EQ(Master::Create(MakeJob({}), Tensors(), 1, &clock_, state).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(MasterTest, EvaluatorsNeedNoTrainingSamples) {
  Start(MakeJob({}));
  Join(v1::EVALUATOR);
  EXPECT_EQ(master_->Command().total_samples(), 0u) << "an evaluator does not say how much data there is";
}

// ---------------------------------------------------------------------------------------------- leases

TEST_F(MasterTest, AsynchronousLeasesHoldASecondOfTheWorkersSteps) {
  for (bool synchronous : {false, true}) {
    Start(MakeJob({.synchronous = synchronous, .epochs = 100}));
    Worker worker = Join();
    ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
    const int first = worker.lease.minibatches_size();
    DoLease({&worker});
    worker.progress.set_compute_seconds(0.05 * first);
    ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
    EXPECT_EQ(worker.lease.minibatches_size(), synchronous ? first : 20) << "synchronous: " << synchronous;
  }
}

TEST_F(MasterTest, ManyWorkersAreToCallLessOftenEach) {
  v1::Job job = MakeJob({.synchronous = false, .workers = 1});
  job.mutable_faults()->set_heartbeat_timeout_seconds(60);
  Start(job);
  const Worker first = Join();
  EXPECT_DOUBLE_EQ(Beat(first)->again_in_seconds(), 0.5);
  EXPECT_DOUBLE_EQ(master_->LongestLeaseWait(), 3);
  for (int i = 1; i < 1000; ++i) Join();
  EXPECT_DOUBLE_EQ(Beat(first)->again_in_seconds(), 5) << "200 a second of all of them";
  EXPECT_DOUBLE_EQ(master_->LongestLeaseWait(), 5);
  job.mutable_faults()->set_heartbeat_timeout_seconds(6);
  Start(job);
  EXPECT_DOUBLE_EQ(master_->LongestLeaseWait(), 2) << "a third of its lease";
}

TEST_F(MasterTest, NothingIsDealtBeforeAllWorkersHaveCome) {
  for (bool synchronous : {false, true}) {
    Start(MakeJob({.synchronous = synchronous, .workers = 2}));
    Worker first = Join();
    Exchange();
    absl::StatusOr<v1::Lease> lease = Ask(first, 0);
    ASSERT_TRUE(lease.ok());
    EXPECT_EQ(lease->state(), v1::Lease::WAIT);
    EXPECT_DOUBLE_EQ(lease->retry_seconds(), 0.1);
    EXPECT_EQ(master_->Status().phase(), v1::JobStatus::WAITING);
    Worker second = Join();
    EXPECT_EQ(Next(&first), v1::Lease::GRANTED);
    EXPECT_EQ(Next(&second), v1::Lease::GRANTED);
    Leave(second);
    Exchange();
    DoLease({&first});
    EXPECT_EQ(Next(&first), v1::Lease::GRANTED) << "it waits for that number only once";
  }
}

TEST_F(MasterTest, LeasesWaitForAllShardsToKnowTheMember) {
  for (bool synchronous : {false, true}) {
    Start(MakeJob({.synchronous = synchronous}));
    Worker worker = Join();
    EXPECT_EQ(Ask(worker, 0)->state(), v1::Lease::WAIT);
    shards_[0].Take(master_->Command());
    ASSERT_TRUE(master_->OnShardReport(shards_[0].Report()).ok());
    const absl::StatusOr<v1::Lease> lease = Ask(worker, 0);
    EXPECT_EQ(lease->state(), v1::Lease::WAIT) << "shard 1 has not heard of it";
    EXPECT_DOUBLE_EQ(lease->retry_seconds(), 0.005);
    shards_[1].Take(master_->Command());
    ASSERT_TRUE(master_->OnShardReport(shards_[1].Report()).ok());
    EXPECT_EQ(Ask(worker, 0)->state(), v1::Lease::GRANTED);
  }
}

TEST_F(MasterTest, LeasesHaveTheLocalStepsOfTheWorkersSpeed) {
  v1::Job job = MakeJob({.synchronous = false, .workers = 2});
  v1::PseudoGradient* const contribution =
      job.mutable_algorithm()->mutable_contribution()->mutable_pseudo_gradient();
  contribution->set_local_steps(16);
  contribution->set_steps_by_speed(true);
  Start(job);
  Worker fast = Join(), slow = Join();
  ASSERT_EQ(Next(&fast), v1::Lease::GRANTED);
  ASSERT_EQ(Next(&slow), v1::Lease::GRANTED);
  EXPECT_EQ(fast.lease.local_steps(), 16u) << "no speed is known";
  fast.progress.set_steps(2);
  fast.progress.set_compute_seconds(1);
  slow.progress.set_steps(1);
  slow.progress.set_compute_seconds(2);
  ASSERT_EQ(Next(&fast), v1::Lease::GRANTED);
  ASSERT_EQ(Next(&slow), v1::Lease::GRANTED);
  EXPECT_EQ(fast.lease.local_steps(), 16u);
  EXPECT_EQ(slow.lease.local_steps(), 4u);
  Start(MakeJob({.synchronous = false}));
  Worker other = Join();
  ASSERT_EQ(Next(&other), v1::Lease::GRANTED);
  EXPECT_EQ(other.lease.local_steps(), 0u);
}

TEST_F(MasterTest, OnlyTheLastLeaseOfASynchronousJobIsMarkedAsLast) {
  Start(MakeJob({.epochs = 40}));
  Worker worker = Join();
  std::vector<bool> last;
  while (Next(&worker) == v1::Lease::GRANTED) {
    last.push_back(worker.lease.last());
    DoLease({&worker});
    Exchange();
  }
  ASSERT_GT(last.size(), 1u);
  EXPECT_TRUE(last.back());
  EXPECT_EQ(std::count(last.begin(), last.end(), true), 1);
}

// Fragments that are in flight have different versions.
TEST_F(MasterTest, WorkersThatOverlapSettleWhereACheckpointIsTaken) {
  for (const uint32_t overlap : {0, 1}) {
    v1::Job job = MakeJob({.epochs = 40, .every_updates = 5});
    v1::PseudoGradient* const contribution =
        job.mutable_algorithm()->mutable_contribution()->mutable_pseudo_gradient();
    contribution->set_local_steps(2);
    contribution->set_overlap_steps(overlap);
    Start(job);
    Worker worker = Join();
    int settled = 0, leases = 0;
    while (Next(&worker) == v1::Lease::GRANTED) {
      ++leases;
      if (worker.lease.settle()) {
        ++settled;
        EXPECT_EQ(worker.lease.first_version(), master_->Command().checkpoint_version());
      }
      DoLease({&worker});
      Exchange();
    }
    EXPECT_GT(leases, 2);
    EXPECT_EQ(settled > 0, overlap > 0);
  }
}

TEST_F(MasterTest, ServersLearnTheFastestWorkersSecondsPerStepWithAQuorum) {
  v1::Job job = MakeJob({.synchronous = false, .workers = 2});
  Start(job);
  EXPECT_EQ(master_->Command().step_seconds(), 0);
  job.mutable_algorithm()->mutable_consistency()->mutable_quorum()->set_minimum(1);
  job.mutable_algorithm()->mutable_contribution()->mutable_pseudo_gradient()->set_local_steps(4);
  Start(job);
  Worker fast = Join(), slow = Join();
  ASSERT_EQ(Next(&fast), v1::Lease::GRANTED);
  ASSERT_EQ(Next(&slow), v1::Lease::GRANTED);
  EXPECT_EQ(master_->Command().step_seconds(), 0) << "no speed is known";
  slow.progress.set_steps(1);
  slow.progress.set_compute_seconds(2);
  ASSERT_EQ(Next(&slow), v1::Lease::GRANTED);
  EXPECT_EQ(master_->Command().step_seconds(), 2);
  fast.progress.set_steps(4);
  fast.progress.set_compute_seconds(1);
  ASSERT_EQ(Next(&fast), v1::Lease::GRANTED);
  const uint64_t generation = master_->Command().generation();
  EXPECT_EQ(master_->Command().step_seconds(), 0.25);
  fast.progress.set_compute_seconds(2);
  ASSERT_TRUE(Beat(fast).ok());
  EXPECT_EQ(master_->Command().step_seconds(), 0.5);
  EXPECT_EQ(master_->Command().generation(), generation);
}

// The answer when a waiting call is reconsidered, and whether the conditions have changed since.
TEST_F(MasterTest, WhatACallForALeaseWaitsForChangesItsConditions) {
  for (bool synchronous : {false, true}) {
    Start(MakeJob({.synchronous = synchronous, .workers = 2}));
    Worker first = Join();
    ASSERT_EQ(Ask(first, 0)->state(), v1::Lease::WAIT);
    EXPECT_TRUE(master_->MayWaitForLease(RequestOf(first, 0)));
    Master::LeaseConditions before = master_->lease_conditions();
    Exchange();
    EXPECT_TRUE(master_->lease_conditions() == before) << "one worker still waits for the other";
    Worker second = Join();
    EXPECT_FALSE(master_->lease_conditions() == before) << "training begins";
    // In synchronous mode asking makes the plan, of which the shards have to hear.
    EXPECT_EQ(master_->GetLeaseAgain(RequestOf(first, 0))->state(),
              synchronous ? v1::Lease::WAIT : v1::Lease::GRANTED);
    before = master_->lease_conditions();
    EXPECT_EQ(master_->GetLeaseAgain(RequestOf(second, 0))->state(), v1::Lease::WAIT);
    Exchange();
    EXPECT_FALSE(master_->lease_conditions() == before) << "all shards know both";
    EXPECT_EQ(master_->GetLeaseAgain(RequestOf(first, 0))->state(), v1::Lease::GRANTED);
    EXPECT_EQ(master_->GetLeaseAgain(RequestOf(second, 0))->state(), v1::Lease::GRANTED);
    before = master_->lease_conditions();
    master_->Stop("enough");
    EXPECT_FALSE(master_->lease_conditions() == before);
    EXPECT_EQ(master_->GetLeaseAgain(RequestOf(second, 1))->state(), v1::Lease::FINISHED);
  }
}

TEST_F(MasterTest, ACallForALeaseThatWaitsKeepsNoLostWorkerAlive) {
  Start(MakeJob({.synchronous = false, .workers = 2}));
  Worker worker = Join();
  ASSERT_EQ(Ask(worker, 0)->state(), v1::Lease::WAIT);
  clock_.Advance(1000);
  EXPECT_EQ(master_->GetLeaseAgain(RequestOf(worker, 0))->state(), v1::Lease::WAIT);
  master_->Tick();
  EXPECT_EQ(master_->GetLeaseAgain(RequestOf(worker, 0)).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(MasterTest, LaterChangesDoNotHoldUpThoseWhoAreIn) {
  Start(MakeJob({.synchronous = false}));
  Worker first = Join();
  EXPECT_EQ(Next(&first), v1::Lease::GRANTED);
  Worker second = Join();
  EXPECT_EQ(Ask(first, 1)->state(), v1::Lease::GRANTED);
  EXPECT_EQ(Ask(second, 0)->state(), v1::Lease::WAIT);
}

TEST_F(MasterTest, ALeaseAskedForAgainIsTheSame) {
  for (bool synchronous : {false, true}) {
    Start(MakeJob({.synchronous = synchronous}));
    Worker worker = Join();
    ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
    EXPECT_EQ(Ask(worker, 0)->SerializeAsString(), worker.lease.SerializeAsString());
    const v1::Lease first = worker.lease;
    ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
    EXPECT_EQ(worker.lease.number(), 2u);
    EXPECT_NE(worker.lease.minibatches(0).SerializeAsString(), first.minibatches(0).SerializeAsString());
    EXPECT_EQ(Ask(worker, 1)->SerializeAsString(), worker.lease.SerializeAsString());
    EXPECT_EQ(Ask(worker, 0).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(Ask(worker, 3).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(MasterTest, SynchronousMembersShareAPlanAndItsRoster) {
  Start(MakeJob({.workers = 2}));
  Worker first = Join();
  Worker second = Join();
  ASSERT_EQ(Next(&first), v1::Lease::GRANTED);
  ASSERT_EQ(Next(&second), v1::Lease::GRANTED);
  const v1::ShardCommand command = master_->Command();
  ASSERT_EQ(command.rosters_size(), 1);
  EXPECT_EQ(command.rosters(0).members_size(), 2);
  EXPECT_EQ(first.lease.minibatches(0).spans(0).begin(), 0u);
  EXPECT_EQ(second.lease.minibatches(0).spans(0).begin(), 4u);
}

TEST_F(MasterTest, AJoinerTakesPartFromTheNextPlanOn) {
  Start(MakeJob({.epochs = 10}));
  Worker first = Join();
  ASSERT_EQ(Next(&first), v1::Lease::GRANTED);
  Worker second = Join();
  EXPECT_EQ(Next(&second), v1::Lease::WAIT);
  DoLease({&first});
  ASSERT_EQ(Next(&first), v1::Lease::GRANTED);
  ASSERT_EQ(Next(&second), v1::Lease::GRANTED);
  EXPECT_EQ(second.lease.number(), 1u);
  EXPECT_EQ(second.lease.first_version(), 16u);
  EXPECT_EQ(first.lease.first_version(), 16u);
  EXPECT_EQ(second.lease.first_step(), 16u);
}

TEST_F(MasterTest, AbandonedPlanLeavesAnEmptyRosterThatShardsSkip) {
  Start(MakeJob({.epochs = 10}));
  Worker lost = Join();
  ASSERT_EQ(Next(&lost), v1::Lease::GRANTED);
  DoStep(&lost);
  Exchange();
  EXPECT_EQ(shards_[0].version(), 1u);
  clock_.Advance(11);
  master_->Tick();
  Worker next = Join();
  ASSERT_EQ(Next(&next), v1::Lease::GRANTED);
  EXPECT_EQ(next.lease.first_version(), 16u);
  EXPECT_EQ(next.lease.minibatches(0).spans(0).begin(), 4u) << "step 0 was applied: the shards said so";
  Exchange();
  EXPECT_EQ(shards_[0].version(), 16u);
}

// ---------------------------------------------------------------------------------------- losses, leaves

TEST_F(MasterTest, ALostWorkerIsUnknownAndItsSamplesGoToOthers) {
  Start(MakeJob({.synchronous = false, .workers = 2}));
  Worker lost = Join();
  Worker kept = Join();
  ASSERT_EQ(Next(&lost), v1::Lease::GRANTED);
  clock_.Advance(6);
  ASSERT_TRUE(Beat(kept).ok());
  clock_.Advance(6);
  master_->Tick();
  EXPECT_EQ(Beat(lost).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Ask(lost, 1).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(master_->Command().rosters(0).members_size(), 1);
  EXPECT_THAT(master_->Status().events(),
              Contains("worker 0 (host:7) sent no heartbeat for 12.0 s: considered lost; "
                       "its samples are assigned to other workers"));
  Exchange();
  ASSERT_EQ(Next(&kept), v1::Lease::GRANTED);
  EXPECT_EQ(kept.lease.minibatches(0).spans(0).begin(), 0u);
  const Worker back = Join();
  EXPECT_EQ(back.index, 0u);
  EXPECT_EQ(back.incarnation, 3u);
}

// The kernel closes a killed process's connections at once: no worker waits for the rest of its lease.
TEST_F(MasterTest, SynchronousJobGoesOnSoonAfterTheConnectionOfALostWorkerBroke) {
  Start(MakeJob({.workers = 2}));
  Worker lost = Join();
  Worker kept = Join();
  ASSERT_EQ(Next(&lost), v1::Lease::GRANTED);
  ASSERT_EQ(Next(&kept), v1::Lease::GRANTED);
  ASSERT_TRUE(Beat(lost).ok());
  shards_[1].Disconnect(lost.incarnation);
  shards_[1].Disconnect(kept.incarnation);
  for (int beats = 0; beats < 3; ++beats) {
    Exchange();
    clock_.Advance(0.5);
    ASSERT_TRUE(Beat(kept).ok());
    master_->Tick();
  }
  EXPECT_EQ(master_->num_workers(), 2) << "it may still be heard of";
  clock_.Advance(0.1);
  master_->Tick();
  EXPECT_EQ(master_->num_workers(), 1);
  EXPECT_THAT(master_->Status().events(),
              Contains(HasSubstr("worker 0 (host:7) lost its connection to server 1")));
  EXPECT_TRUE(Beat(kept).ok()) << "a live worker opens another connection";
  Exchange();
  DoLease({&kept});
  EXPECT_GT(shards_[0].version(), 0u);
}

// Workers of a large job are heard of less often.
TEST_F(MasterTest, DisconnectedWorkerMayMissThreeHeartbeatsHoweverManyWorkersThereAre) {
  Start(MakeJob({.synchronous = false, .workers = 500}));
  std::vector<Worker> workers;
  for (int i = 0; i < 500; ++i) workers.push_back(Join());
  Exchange();
  shards_[0].Disconnect(workers[7].incarnation);
  Exchange();
  clock_.Advance(7.5);
  master_->Tick();
  EXPECT_EQ(master_->num_workers(), 500);
  clock_.Advance(0.1);
  master_->Tick();
  EXPECT_EQ(master_->num_workers(), 499);
}

TEST_F(MasterTest, WaitsForNewWorkersWhenAllHaveLeft) {
  Start(MakeJob({}));
  Worker worker = Join();
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  Leave(worker, "drained");
  EXPECT_EQ(master_->Status().phase(), v1::JobStatus::WAITING);
  EXPECT_THAT(master_->Status().reason(), HasSubstr("waiting for new workers"));
  EXPECT_THAT(master_->Status().events(), Contains("worker 0 (host:7) left: drained"));
  TrainAlone();
  EXPECT_EQ(master_->Status().phase(), v1::JobStatus::FINISHING);
  EXPECT_EQ(master_->Status().samples(), kSamples);
}

TEST_F(MasterTest, FailsWhenTheLastWorkerHasFailed) {
  Start(MakeJob({.workers = 2}));
  const Worker first = Join();
  const Worker second = Join();
  Leave(first, "out of memory", true);
  EXPECT_EQ(master_->phase(), v1::JobStatus::TRAINING) << "another one is left";
  Leave(second, "the loss is NaN", true);
  EXPECT_EQ(master_->phase(), v1::JobStatus::FINISHING) << "a last checkpoint is saved";
  Exchange();
  Exchange();
  EXPECT_EQ(master_->phase(), v1::JobStatus::FAILED);
  EXPECT_THAT(master_->Status().reason(), HasSubstr("worker 1 (host:7), failed: the loss is NaN"));
  EXPECT_EQ(master_->Register(Registration()).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(MasterTest, WorkerThatLeavesAgainAndAgainDoesNotFillTheLog) {
  const std::string reason =
      std::string(900, 'x') + "\nE20261125 master_host.cc:1] the job failed\u202e\u009b";
  for (const bool alone : {false, true}) {  // alone, it begins and interrupts training
    Start(MakeJob({.workers = 1, .epochs = 2}));
    std::optional<Worker> other;
    if (!alone) other = Join();
    size_t bytes = 0, lines = 0;
    std::string last;
    const auto take = [&] {
      for (const std::string& event : master_->TakeEvents()) {
        EXPECT_THAT(event, Not(AnyOf(HasSubstr("\n"), HasSubstr("\u202e"), HasSubstr("\u009b"))));
        bytes += event.size();
        ++lines;
        last = event;
      }
    };
    for (int i = 0; i < 10'000; ++i) {
      Leave(Join(), reason);
      if (i % 250 == 249) {  // the rate of one address
        clock_.Advance(1);
        Exchange();
        if (other) {
          ASSERT_TRUE(Beat(*other).ok());
        }
        master_->Tick();
        take();
      }
    }
    EXPECT_LT(lines, 2200u);
    EXPECT_LT(bytes, 2u << 20);
    clock_.Advance(2);
    master_->Tick();
    take();
    EXPECT_THAT(last, HasSubstr(" further events of members are left out"));
    master_->Stop("enough");
    take();
    EXPECT_THAT(last, Not(HasSubstr("left out"))) << "events of the job are always there";
  }
}

TEST_F(MasterTest, LeavingTwiceDoesNoHarm) {
  Start(MakeJob({.workers = 2}));
  const Worker first = Join();
  Join();
  Leave(first);
  const Worker other = Join();
  ASSERT_EQ(other.index, first.index);
  Leave(first);
  EXPECT_TRUE(Beat(other).ok());
}

// --------------------------------------------------------------------------------------- the job's end

TEST_F(MasterTest, ADoneJobSavesALastCheckpointAndEndsWhenOutputsAreWritten) {
  for (bool synchronous : {false, true}) {
    Start(MakeJob({.synchronous = synchronous}));
    TrainAlone();
    EXPECT_EQ(master_->phase(), v1::JobStatus::FINISHING);
    EXPECT_NE(master_->Command().checkpoint(), 25u) << "the servers have not reported since the worker left";
    Exchange();
    EXPECT_EQ(master_->Command().checkpoint(), 25u);
    EXPECT_EQ(master_->phase(), v1::JobStatus::FINISHING);
    Exchange();
    EXPECT_EQ(master_->phase(), v1::JobStatus::DONE);
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
    EXPECT_TRUE(master_->Over());
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
  EXPECT_EQ(master_->phase(), v1::JobStatus::FINISHING);
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
  EXPECT_EQ(master_->phase(), v1::JobStatus::DONE);
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
  EXPECT_EQ(master_->phase(), v1::JobStatus::FINISHING);
  const std::vector<CompleteCheckpoint> complete = master_->TakeCompleteCheckpoints();
  ASSERT_EQ(complete.size(), 1u);
  master_->OnCheckpointRecorded(complete[0].number, absl::UnavailableError("the disk is away"));
  master_->Tick();
  EXPECT_EQ(master_->phase(), v1::JobStatus::FINISHING);
  EXPECT_THAT(master_->Status().reason(), HasSubstr("the disk is away"));
  EXPECT_EQ(master_->Status().last_checkpoint(), 0u);
  master_->OnCheckpointRecorded(complete[0].number, absl::OkStatus());
  EXPECT_EQ(master_->phase(), v1::JobStatus::DONE);
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
  EXPECT_EQ(master_->phase(), v1::JobStatus::FAILED);
  EXPECT_TRUE(master_->weights_are_final());
  Start(MakeJob({}));
  master_->Fail("server 1 is gone");
  EXPECT_FALSE(master_->weights_are_final());
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
    EXPECT_EQ(master_->phase(), v1::JobStatus::STOPPED);
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
  EXPECT_EQ(master_->phase(), v1::JobStatus::STOPPED);
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
    return master_->num_workers();
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
  EXPECT_EQ(master_->num_workers(), 1);
  clock_.Advance(1);
  master_->Tick();
  EXPECT_EQ(master_->num_workers(), 0);
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
  EXPECT_EQ(master_->phase(), v1::JobStatus::DONE);
}

TEST_F(MasterTest, FailsOnContributionsThatAreNotFinite) {
  Start(MakeJob({}));
  Join();
  v1::WorkerStatistics* statistics = shards_[1].extra()->add_workers();
  statistics->set_worker(3);
  statistics->set_non_finite_in_a_row(9);
  Exchange();
  EXPECT_EQ(master_->phase(), v1::JobStatus::TRAINING);
  statistics->set_non_finite_in_a_row(10);
  Exchange();
  EXPECT_EQ(master_->phase(), v1::JobStatus::FAILED);
  EXPECT_THAT(master_->Status().reason(), HasSubstr("worker 3 sent 10 contributions in a row"));
  EXPECT_THAT(master_->Status().reason(), HasSubstr("optimizer.learning_rate"));
}

TEST_F(MasterTest, AFailedJobTellsWorkersBeforeTheServersEnd) {
  Start(MakeJob({}));
  Worker worker = Join();
  master_->Fail("server 1 is gone");
  master_->OnOutputsWritten();
  EXPECT_FALSE(master_->Over());
  EXPECT_TRUE(Beat(worker)->stop());
  EXPECT_EQ(Next(&worker), v1::Lease::FINISHED);
  EXPECT_EQ(Leave(worker).job_failed(), "server 1 is gone");
  EXPECT_TRUE(master_->Over());
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
  EXPECT_FALSE(master_->Over());
  master_->Watch(3);  // it has heard
  clock_.Advance(1.99);
  master_->Tick();
  EXPECT_FALSE(master_->Over());
  clock_.Advance(0.01);
  master_->Tick();
  EXPECT_TRUE(master_->Over());
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
  EXPECT_TRUE(master_->Over());
}

TEST_F(MasterTest, AWorkerThatIsDoneStaysUntilTheLastCheckpointIsRecorded) {
  Start(MakeJob({}));
  Worker worker = Join();
  while (Next(&worker) == v1::Lease::GRANTED) DoLease({&worker});
  const auto stays = [&] {
    return Leave(worker, "", /*failed=*/false, /*stays=*/true).again_in_seconds() > 0;
  };
  EXPECT_TRUE(stays());
  EXPECT_EQ(master_->phase(), v1::JobStatus::FINISHING);
  Exchange();
  EXPECT_TRUE(stays());
  Exchange();
  master_->OnOutputsWritten();
  EXPECT_EQ(master_->phase(), v1::JobStatus::DONE);
  EXPECT_FALSE(master_->Over()) << "the worker does not know yet";
  EXPECT_FALSE(stays());
  EXPECT_TRUE(master_->Over());
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
  EXPECT_TRUE(master_->Over());
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
  EXPECT_FALSE(master_->Over()) << "the worker reads the weights";
  EXPECT_EQ(Leave(first, "", /*failed=*/false, /*stays=*/true).again_in_seconds(), 0);
  EXPECT_TRUE(master_->Over());
}

TEST_F(MasterTest, AWorkerThatLeavesAJobThatGoesOnNeedNotStay) {
  Start(MakeJob({.epochs = 10}));
  Join();
  const Worker second = Join();
  EXPECT_EQ(Leave(second, "asked to stop", /*failed=*/false, /*stays=*/true).again_in_seconds(), 0);
}

// ------------------------------------------------------------------------------- checkpoints, evaluation

TEST_F(MasterTest, RegularCheckpointsAreWholeOnceAllShardsHaveThem) {
  Start(MakeJob({.epochs = 10, .every_updates = 5}));
  Worker worker = Join();
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  for (int i = 0; i < 12; ++i) DoStep(&worker);
  ASSERT_TRUE(master_->OnShardReport(shards_[0].Report()).ok());
  EXPECT_TRUE(master_->TakeCompleteCheckpoints().empty());
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
    EXPECT_TRUE(master_->CheckStateIsWanted(worker.incarnation, checkpoint).ok());
    master_->OnStateSaved(worker.incarnation, checkpoint, status);
    EXPECT_FALSE(master_->CheckStateIsWanted(worker.incarnation, checkpoint).ok());
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
  EXPECT_EQ(master_->num_workers(), 1);
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
  EXPECT_EQ(master_->phase(), v1::JobStatus::STOPPED);
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
  EXPECT_EQ(master_->phase(), v1::JobStatus::STOPPED);
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

TEST_F(MasterTest, EvaluationsFollowTheSamplesAndEndWithAFinalOne) {
  v1::Job job = MakeJob({.epochs = 2});
  job.mutable_evaluation()->set_every_epochs(0.5);
  Start(job);
  const Worker evaluator = Join(v1::EVALUATOR);
  Worker worker = Join();
  EXPECT_EQ(AskEvaluation(evaluator)->evaluation(), 0u);
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  DoLease({&worker});  // 64 of 100 samples
  Exchange();
  EXPECT_EQ(AskEvaluation(evaluator)->evaluation(), 1u);
  while (Next(&worker) == v1::Lease::GRANTED) DoLease({&worker});
  EXPECT_EQ(AskEvaluation(evaluator)->evaluation(), 0u) << "the final one follows";
  Leave(worker);
  Exchange();
  Exchange();
  EXPECT_EQ(master_->Status().reason(), "waiting for the final evaluation");
  const absl::StatusOr<v1::GetEvaluationReply> last = AskEvaluation(evaluator);
  EXPECT_TRUE(last->final());
  v1::EvaluationReport report;
  report.set_incarnation(evaluator.incarnation);
  report.set_evaluation(last->evaluation());
  report.set_samples(50);
  report.set_correct(40);
  report.set_loss_sum(25);
  ASSERT_TRUE(master_->ReportEvaluation(report).ok());
  EXPECT_EQ(master_->phase(), v1::JobStatus::DONE);
  EXPECT_TRUE(AskEvaluation(evaluator)->stop());
  EXPECT_DOUBLE_EQ(master_->Status().test_accuracy(), 0.8);
  EXPECT_DOUBLE_EQ(master_->Status().test_loss(), 0.5);
  EXPECT_EQ(master_->Status().test_samples(), 50u);
}

// An evaluator that sends heartbeats, and sometimes does nothing else.
class HangingEvaluatorTest : public MasterTest {
 protected:
  static constexpr double kStuck = 60;

  void StartWith(uint64_t epochs) {
    v1::Job job = MakeJob({.epochs = epochs});
    job.mutable_faults()->set_stuck_seconds(kStuck);
    Start(job);
    evaluator_ = Join(v1::EVALUATOR);
    worker_ = Join();
  }
  // Passes `seconds`, in which it has scored a minibatch in each of the first `minibatches`.
  void Pass(int seconds, int minibatches = 0) {
    for (int i = 0; i < seconds; ++i) {
      clock_.Advance(1);
      if (i < minibatches) evaluator_.progress.set_steps(evaluator_.progress.steps() + 1);
      Beat(evaluator_, v1::EVALUATOR).IgnoreError();
      Beat(worker_).IgnoreError();
      Exchange();
      master_->Tick();
    }
  }
  void TrainToTheEnd() {
    while (Next(&worker_) == v1::Lease::GRANTED) DoLease({&worker_});
    Leave(worker_);
    for (int i = 0; i < 3; ++i) Exchange();
    EXPECT_EQ(master_->Status().reason(), "waiting for the final evaluation");
  }

  Worker evaluator_, worker_;
};

TEST_F(HangingEvaluatorTest, IsLostAndTheJobIsDoneWithoutItsScore) {
  StartWith(/*epochs=*/1);
  Pass(1);
  TrainToTheEnd();
  EXPECT_TRUE(AskEvaluation(evaluator_)->final());
  Pass(static_cast<int>(kStuck) - 1);
  EXPECT_EQ(master_->Status().evaluators(), 1u);
  EXPECT_EQ(master_->phase(), v1::JobStatus::FINISHING);
  Pass(2);
  EXPECT_EQ(Beat(evaluator_, v1::EVALUATOR).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(master_->Status().events(),
              Contains("no_progress: evaluator 0 (host:7) has made no progress for 60 s "
                       "(faults.stuck_seconds): considered lost; its evaluation has no score"));
  EXPECT_EQ(master_->phase(), v1::JobStatus::DONE);
  EXPECT_THAT(master_->Status().reason(), HasSubstr("without a score of its final weights"));
  EXPECT_EQ(master_->Status().test_samples(), 0u);
}

TEST_F(HangingEvaluatorTest, IsLostAlsoBeforeItHasAskedForAnEvaluation) {
  StartWith(/*epochs=*/1);
  TrainToTheEnd();
  Pass(static_cast<int>(kStuck) + 2);
  EXPECT_EQ(master_->phase(), v1::JobStatus::DONE);
}

TEST_F(HangingEvaluatorTest, IsKeptWhileItScoresMinibatches) {
  StartWith(/*epochs=*/1);
  TrainToTheEnd();
  EXPECT_TRUE(AskEvaluation(evaluator_)->final());
  Pass(10 * static_cast<int>(kStuck), /*minibatches=*/10 * static_cast<int>(kStuck));
  EXPECT_TRUE(Score(evaluator_, 0.5, 40).ok());
  EXPECT_EQ(master_->phase(), v1::JobStatus::DONE);
  EXPECT_EQ(master_->Status().reason(), "");
}

TEST_F(HangingEvaluatorTest, HasTheTimeOfTwentyEvaluations) {
  StartWith(/*epochs=*/2);
  while (AskEvaluation(evaluator_)->evaluation() == 0) {
    ASSERT_EQ(Next(&worker_), v1::Lease::GRANTED);
    DoLease({&worker_});
    Pass(1);
  }
  v1::EvaluationReport report;
  report.set_incarnation(evaluator_.incarnation);
  report.set_evaluation(1);
  report.set_samples(50);
  Pass(30);
  ASSERT_TRUE(master_->ReportEvaluation(report).ok());
  TrainToTheEnd();
  EXPECT_TRUE(AskEvaluation(evaluator_)->final());
  Pass(20 * 30 - 1);
  EXPECT_EQ(master_->Status().evaluators(), 1u);
  Pass(2);
  EXPECT_EQ(master_->phase(), v1::JobStatus::DONE);
}

TEST_F(HangingEvaluatorTest, ThatReturnsWasOnlySlowAndHasTwiceTheTime) {
  StartWith(/*epochs=*/1'000);
  EXPECT_EQ(AskEvaluation(evaluator_)->evaluation(), 0u);
  Pass(static_cast<int>(kStuck) + 2);
  EXPECT_EQ(master_->Status().evaluators(), 0u);
  evaluator_ = Join(v1::EVALUATOR);
  Pass(2 * static_cast<int>(kStuck) - 2);
  EXPECT_EQ(master_->Status().evaluators(), 1u);
  Pass(4);
  EXPECT_EQ(master_->Status().evaluators(), 0u);
}

TEST_F(MasterTest, StatisticNamedLikeAWeightIsRefusedAndTheEvaluationStaysDue) {
  Start(MakeJob({.epochs = 8}));
  const Worker evaluator = Join(v1::EVALUATOR);
  Worker worker = Join();
  ASSERT_TRUE(TrainAndScore(evaluator, &worker, 1, 30).ok());
  while (AskEvaluation(evaluator)->evaluation() == 0) {
    ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
    DoLease({&worker});
    ASSERT_TRUE(Beat(worker).ok());
  }
  v1::EvaluationReport report = last_report_;
  report.set_evaluation(2);
  v1::Statistic* const statistic = report.add_statistics();
  for (const char* name : {"dense1.weight", "dense1.bias", "dense1.running_mean", "other"}) {
    statistic->set_name(name);
    const absl::Status status = master_->ReportEvaluation(report).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
  }
  EXPECT_EQ(master_->newest_evaluation(), 1u);
  EXPECT_EQ(AskEvaluation(evaluator)->evaluation(), 2u);
  EXPECT_TRUE(Score(evaluator, 0.5, 40).ok());
  EXPECT_EQ(master_->newest_evaluation(), 2u);
}

// Losses 1, 1, 1 with patience 1: the third makes the rate fall, in every command and in what a checkpoint
// keeps.
TEST_F(MasterTest, PlateauOfTheTestLossIsSentToAllShardsAndKept) {
  v1::Job job = MakeJob({.epochs = 8});
  Start(job);
  EXPECT_FALSE(master_->Command().has_plateau_factor()) << "of another schedule";
  EXPECT_FALSE(master_->Status().has_plateau_factor());
  v1::Schedule* const schedule = job.mutable_optimizer()->mutable_schedule();
  schedule->set_decay(v1::Schedule::PLATEAU);
  schedule->set_factor(0.25f);
  schedule->set_patience(1);
  Start(job);
  const Worker evaluator = Join(v1::EVALUATOR);
  Worker worker = Join();
  std::vector<double> factors;
  for (int k = 1; k <= 3; ++k) {
    while (AskEvaluation(evaluator)->evaluation() == 0) {
      ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
      DoLease({&worker});
      ASSERT_TRUE(Beat(worker).ok());
    }
    v1::EvaluationReport report;
    report.set_incarnation(evaluator.incarnation);
    report.set_evaluation(AskEvaluation(evaluator)->evaluation());
    report.set_samples(50);
    report.set_loss_sum(50);
    ASSERT_TRUE(master_->ReportEvaluation(report).ok());
    ASSERT_TRUE(master_->ReportEvaluation(report).ok()) << "sent again";
    factors.push_back(master_->Command().plateau_factor());
  }
  EXPECT_EQ(factors, (std::vector<double>{1, 1, 0.25}));
  EXPECT_EQ(master_->Status().plateau_factor(), 0.25);
  EXPECT_THAT(master_->TakeEvents(), Contains(HasSubstr("the learning rate is now multiplied by 0.25")));
  Start(job, 2, master_->StateAt({.version = shards_[0].version()}));
  EXPECT_EQ(master_->Command().plateau_factor(), 0.25) << "after a restart";
  job.mutable_optimizer()->mutable_schedule()->set_decay(v1::Schedule::CONSTANT);
  const v1::MasterState state = master_->StateAt({.version = 0});
  Start(job, 2, state);
  EXPECT_FALSE(master_->Command().has_plateau_factor()) << "resumed with another schedule";
}

TEST_F(MasterTest, AReachedTargetEndsTheJobInOrder) {
  v1::Job job = MakeJob({.epochs = 8});
  job.mutable_evaluation()->set_target_loss(0.5f);
  Start(job);
  const Worker evaluator = Join(v1::EVALUATOR);
  Worker worker = Join();
  ASSERT_TRUE(TrainAndScore(evaluator, &worker, 0.75, 25).ok());
  EXPECT_EQ(master_->phase(), v1::JobStatus::TRAINING);
  ASSERT_TRUE(TrainAndScore(evaluator, &worker, 0.5, 40).ok());
  EXPECT_EQ(master_->phase(), v1::JobStatus::FINISHING);
  const absl::StatusOr<v1::HeartbeatReply> beat = Beat(worker);
  EXPECT_TRUE(beat->stop());
  EXPECT_THAT(beat->reason(), HasSubstr("test loss 0.5 reached evaluation.target_loss 0.5 after "));
  EXPECT_EQ(Ask(worker, worker.lease.number())->state(), v1::Lease::FINISHED);
  Leave(worker);
  Exchange();
  Exchange();
  EXPECT_EQ(master_->Status().last_checkpoint(), shards_[0].version());
  EXPECT_EQ(master_->Status().reason(), "waiting for the final evaluation");
  EXPECT_EQ(master_->Status().best_evaluation(), 2u);
  ASSERT_TRUE(AskEvaluation(evaluator)->final());
  ASSERT_TRUE(Score(evaluator, 0.25, 45).ok());
  const v1::JobStatus status = master_->Status();
  EXPECT_EQ(status.phase(), v1::JobStatus::DONE);
  EXPECT_EQ(status.reason(), "");
  EXPECT_THAT(status.ended_early(), HasSubstr("test loss 0.5 reached evaluation.target_loss 0.5 after "));
  EXPECT_LT(status.samples(), status.total_samples());
  EXPECT_EQ(status.best_evaluation(), 3u) << "the final one counts";
  EXPECT_DOUBLE_EQ(status.best_test_loss(), 0.25);
  EXPECT_DOUBLE_EQ(status.best_test_accuracy(), 0.9);
  EXPECT_EQ(status.best_at_samples(), status.samples());
  EXPECT_THAT(master_->TakeEvents(), Contains(HasSubstr("done (test loss 0.5 reached")));
}

TEST_F(MasterTest, PatienceEndsTheJobAndIsKeptOverARestart) {
  v1::Job job = MakeJob({.epochs = 8});
  job.mutable_evaluation()->set_patience(2);
  job.mutable_evaluation()->set_best_by(v1::Evaluation::ACCURACY);
  Start(job);
  Worker evaluator = Join(v1::EVALUATOR);
  Worker worker = Join();
  ASSERT_TRUE(TrainAndScore(evaluator, &worker, 1, 30).ok());
  const uint64_t at = master_->Status().best_at_samples();
  ASSERT_TRUE(TrainAndScore(evaluator, &worker, 0.5, 30).ok());
  const v1::JobStatus before = master_->Status();
  EXPECT_EQ(before.evaluations_since_best(), 1u);
  const v1::MasterState state = master_->StateAt({.version = shards_[0].version()});
  const uint64_t version = shards_[0].version();
  Start(job, 2, state);
  ASSERT_EQ(shards_[0].version(), version);
  EXPECT_EQ(master_->Status().best_evaluation(), 1u) << "after a restart";
  EXPECT_EQ(master_->Status().best_at_samples(), at);
  evaluator = Join(v1::EVALUATOR);
  worker = Join();
  ASSERT_TRUE(TrainAndScore(evaluator, &worker, 0.25, 29).ok());
  EXPECT_EQ(master_->phase(), v1::JobStatus::FINISHING);
  EXPECT_THAT(master_->Status().ended_early(),
              HasSubstr("test accuracy has not become better than 0.6, of evaluation 1, in 2 evaluations"));
}

// Whichever checkpoint a job that has had enough goes on from, it evaluates nothing again.
TEST_F(MasterTest, JobThatIsResumedAfterItsLastEvaluationEndsAtOnce) {
  for (const bool by_patience : {true, false}) {
    v1::Job job = MakeJob({.epochs = 8});
    if (by_patience) {
      job.mutable_evaluation()->set_patience(1);
    } else {
      job.mutable_evaluation()->set_target_accuracy(0.5f);
    }
    Start(job);
    const Worker evaluator = Join(v1::EVALUATOR);
    Worker worker = Join();
    ASSERT_TRUE(TrainAndScore(evaluator, &worker, 1, 20).ok());
    EXPECT_EQ(master_->phase(), v1::JobStatus::TRAINING);
    ASSERT_TRUE(TrainAndScore(evaluator, &worker, 1, 25).ok());
    const std::string reason = master_->Status().ended_early();
    EXPECT_THAT(reason, HasSubstr(", as evaluator 0 (host:7) reports"));
    const v1::MasterState state = master_->StateAt({.version = shards_[0].version()});
    Start(job, 2, state);
    master_->Tick();
    for (int i = 0; i < 3; ++i) Exchange();
    EXPECT_EQ(master_->phase(), v1::JobStatus::DONE);
    EXPECT_NE(master_->Status().ended_early(), "");
    EXPECT_THAT(reason, StartsWith(master_->Status().ended_early()));
    job.mutable_evaluation()->clear_target_accuracy();
    job.mutable_evaluation()->set_patience(5);
    Start(job, 2, state);
    master_->Tick();
    EXPECT_EQ(master_->phase(), v1::JobStatus::WAITING) << "resumed with more patience";
  }
}

// The job went back: model-best.safetensors has the weights of a later and better evaluation of the run that
// was lost. Training ends as it would have without the loss.
TEST_F(MasterTest, PatienceCountsFromTheHistoryOfTheCheckpoint) {
  v1::Job job = MakeJob({.epochs = 8});
  job.mutable_evaluation()->set_patience(2);
  job.mutable_evaluation()->set_keep_best(true);
  const auto scores = [&](std::optional<double> kept_loss) {
    Start(job);
    if (kept_loss) {
      v1::BestState kept;
      kept.set_evaluation(7);
      kept.set_loss(*kept_loss);
      master_->SetKept(kept);
    }
    const Worker evaluator = Join(v1::EVALUATOR);
    Worker worker = Join();
    std::vector<bool> keep;
    for (const double loss : {1.0, 0.9, 0.8, 0.7}) {
      const absl::StatusOr<v1::ReportEvaluationReply> reply = TrainAndScore(evaluator, &worker, loss, 30);
      EXPECT_TRUE(reply.ok()) << reply.status();
      keep.push_back(reply.ok() && reply->keep());
      EXPECT_EQ(master_->phase(), v1::JobStatus::TRAINING);
      if (keep.back()) master_->OnBestKept(last_report_.evaluation(), absl::OkStatus());
    }
    EXPECT_EQ(master_->Status().evaluations_since_best(), 0u);
    EXPECT_DOUBLE_EQ(master_->Status().best_test_loss(), 0.7);
    return keep;
  };
  EXPECT_THAT(scores(std::nullopt), testing::ElementsAre(true, true, true, true));
  EXPECT_THAT(scores(0.75), testing::ElementsAre(false, false, false, true)) << "the file has better ones";
}

TEST_F(MasterTest, ATargetThatIsReachedAtTheVeryEndEndsNothingEarly) {
  v1::Job job = MakeJob({});
  job.mutable_evaluation()->set_target_loss(0.5f);
  Start(job);
  const Worker evaluator = Join(v1::EVALUATOR);
  TrainAlone();
  Exchange();
  Exchange();
  ASSERT_TRUE(Score(evaluator, 0.25, 45).ok());
  EXPECT_EQ(master_->phase(), v1::JobStatus::DONE);
  EXPECT_EQ(master_->Status().ended_early(), "");
}

TEST_F(MasterTest, OnlyTheBestWeightsAreAskedFor) {
  v1::Job job = MakeJob({.epochs = 8});
  Start(job);
  Worker evaluator = Join(v1::EVALUATOR);
  Worker worker = Join();
  EXPECT_FALSE(TrainAndScore(evaluator, &worker, 1, 30)->keep()) << "keep_best is not set";
  job.mutable_evaluation()->set_keep_best(true);
  Start(job);
  evaluator = Join(v1::EVALUATOR);
  worker = Join();
  const auto wanted = [&](uint64_t evaluation) {
    return master_->BestWanted(evaluator.incarnation, evaluation);
  };
  EXPECT_EQ(wanted(0).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(wanted(1).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(TrainAndScore(evaluator, &worker, 1, 30)->keep());
  EXPECT_TRUE(master_->ReportEvaluation(last_report_)->keep()) << "sent again, since the answer was lost";
  ASSERT_TRUE(wanted(1).ok());
  EXPECT_DOUBLE_EQ(wanted(1)->loss(), 1);
  EXPECT_DOUBLE_EQ(wanted(1)->accuracy(), 0.6);
  EXPECT_EQ(wanted(2).status().message(),
            "the weights of evaluation 2 are refused: expected those of evaluation 1");
  EXPECT_THAT(master_->TakeEvents(), Contains(HasSubstr("the weights of evaluation 2 are refused")));
  EXPECT_EQ(master_->BestWanted(worker.incarnation, 1).status().code(), absl::StatusCode::kNotFound);
  master_->OnBestKept(1, absl::OkStatus());
  EXPECT_FALSE(wanted(1).ok()) << "it is kept already";
  EXPECT_FALSE(master_->ReportEvaluation(last_report_)->keep());
  EXPECT_FALSE(TrainAndScore(evaluator, &worker, 2, 50)->keep()) << "worse";
  EXPECT_TRUE(TrainAndScore(evaluator, &worker, 0.5, 30)->keep());
  master_->OnBestKept(3, absl::ResourceExhaustedError("disk full"));
  EXPECT_THAT(master_->TakeEvents(),
              Contains("the weights of evaluation 3 were not saved: disk full; those of "
                       "the previous best evaluation, if any, are kept"));
  EXPECT_EQ(master_->phase(), v1::JobStatus::TRAINING);
  EXPECT_EQ(master_->Status().best_evaluation(), 3u);
}

// The disk was full at the best evaluation: others that are better than the weights in the file replace them.
TEST_F(MasterTest, WeightsAreAskedForUntilTheFileHasTheBest) {
  v1::Job job = MakeJob({.epochs = 9});
  job.mutable_evaluation()->set_keep_best(true);
  Start(job);
  const Worker evaluator = Join(v1::EVALUATOR);
  Worker worker = Join();
  EXPECT_TRUE(TrainAndScore(evaluator, &worker, 1, 30)->keep());
  master_->OnBestKept(1, absl::OkStatus());
  EXPECT_TRUE(TrainAndScore(evaluator, &worker, 0.5, 30)->keep());
  master_->OnBestKept(2, absl::ResourceExhaustedError("disk full"));
  EXPECT_FALSE(TrainAndScore(evaluator, &worker, 1.5, 30)->keep()) << "worse than those in the file";
  EXPECT_TRUE(TrainAndScore(evaluator, &worker, 0.75, 30)->keep());
  EXPECT_DOUBLE_EQ(master_->BestWanted(evaluator.incarnation, 4)->loss(), 0.75);
  master_->OnBestKept(4, absl::OkStatus());
  EXPECT_TRUE(TrainAndScore(evaluator, &worker, 0.625, 30)->keep());
  master_->OnBestKept(5, absl::OkStatus());
  EXPECT_EQ(master_->Status().best_evaluation(), 2u);
  EXPECT_TRUE(TrainAndScore(evaluator, &worker, 0.25, 30)->keep());
  master_->OnBestKept(6, absl::OkStatus());
  EXPECT_FALSE(TrainAndScore(evaluator, &worker, 0.375, 30)->keep()) << "the file has the best";
}

// A job goes on from evaluation 2, while the weights of a later evaluation 3 are there from its first life.
TEST_F(MasterTest, AnEvaluationWithTheNumberOfAKeptOneIsNotTakenForIt) {
  v1::Job job = MakeJob({.epochs = 8});
  job.mutable_evaluation()->set_keep_best(true);
  v1::MasterState state;
  state.set_train_samples(kSamples);
  state.set_next_evaluation(3);
  state.mutable_best()->set_evaluation(3);
  state.mutable_best()->set_loss(0.5);
  Start(job, 2, state);
  master_->SetKept(state.best());
  const Worker evaluator = Join(v1::EVALUATOR);
  Worker worker = Join();
  EXPECT_FALSE(TrainAndScore(evaluator, &worker, 0.75, 30)->keep());
  ASSERT_EQ(last_report_.evaluation(), 3u);
  EXPECT_FALSE(master_->BestWanted(evaluator.incarnation, 3).ok());
  EXPECT_TRUE(TrainAndScore(evaluator, &worker, 0.25, 30)->keep());
}

class FinalBestTest : public MasterTest {
 protected:
  // Up to the final evaluation, whose weights are wanted.
  void GoToTheEnd() {
    v1::Job job = MakeJob({});
    job.mutable_evaluation()->set_keep_best(true);
    Start(job);
    evaluator_ = Join(v1::EVALUATOR);
    TrainAlone();
    Exchange();
    Exchange();
    ASSERT_TRUE(Score(evaluator_, 0.25, 45)->keep());
    EXPECT_EQ(master_->phase(), v1::JobStatus::FINISHING) << "it waits for the weights";
  }
  Worker evaluator_;
};

TEST_F(FinalBestTest, JobEndsWhenItsBestWeightsAreKept) {
  ASSERT_NO_FATAL_FAILURE(GoToTheEnd());
  clock_.Advance(5);
  master_->Tick();
  EXPECT_EQ(master_->phase(), v1::JobStatus::FINISHING);
  master_->OnBestKept(last_report_.evaluation(), absl::OkStatus());
  EXPECT_EQ(master_->phase(), v1::JobStatus::DONE);
}

TEST_F(FinalBestTest, JobEndsWhenTheyCannotBeKept) {
  ASSERT_NO_FATAL_FAILURE(GoToTheEnd());
  master_->OnBestKept(last_report_.evaluation(), absl::ResourceExhaustedError("disk full"));
  EXPECT_EQ(master_->phase(), v1::JobStatus::DONE);
}

TEST_F(FinalBestTest, JobEndsWhenTheEvaluatorHasGivenThemUp) {
  ASSERT_NO_FATAL_FAILURE(GoToTheEnd());
  ASSERT_TRUE(AskEvaluation(evaluator_).ok());
  EXPECT_TRUE(AskEvaluation(evaluator_)->stop());
  EXPECT_EQ(master_->phase(), v1::JobStatus::DONE);
}

TEST_F(FinalBestTest, JobEndsWhenTheEvaluatorIsLost) {
  ASSERT_NO_FATAL_FAILURE(GoToTheEnd());
  clock_.Advance(11);
  master_->Tick();
  EXPECT_EQ(master_->phase(), v1::JobStatus::DONE);
}

TEST_F(MasterTest, ALostEvaluatorDoesNotHoldUpTheEnd) {
  Start(MakeJob({}));
  const Worker evaluator = Join(v1::EVALUATOR);
  TrainAlone();
  Exchange();
  Exchange();
  EXPECT_EQ(master_->phase(), v1::JobStatus::FINISHING);
  clock_.Advance(11);
  master_->Tick();
  EXPECT_EQ(master_->phase(), v1::JobStatus::DONE);
  EXPECT_TRUE(AskEvaluation(evaluator)->stop()) << "also for one that has left";
}

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
      EXPECT_EQ(master_->num_workers(), stated == assigned ? 2 : 1);
    }
    EXPECT_THAT(master_->TakeEvents(),
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
  EXPECT_THAT(master_->TakeEvents(), Contains(HasSubstr("server 0 has counted 35 samples, more than were")));
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

// ---------------------------------------------------------------------------------------------- status

TEST_F(MasterTest, StatusTellsTheLearningRateOfTheFirstServer) {
  Start(MakeJob({.synchronous = false, .workers = 2, .epochs = 4}), 2);
  shards_[0].extra()->set_learning_rate(0.25);
  shards_[1].extra()->set_learning_rate(7);
  Exchange();
  EXPECT_EQ(master_->Status().learning_rate(), 0.25);
  shards_[0].extra()->mutable_momentum()->set_rate_factor(0.5f);
  Exchange();
  EXPECT_EQ(master_->Status().learning_rate(), 0.125);
}

TEST_F(MasterTest, StatusTellsRatesOverTheLastSeconds) {
  Start(MakeJob({.synchronous = false, .epochs = 4}));
  Worker worker = Join();
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  for (int i = 0; i < 5; ++i) {
    clock_.Advance(1);
    DoStep(&worker);
    ASSERT_TRUE(Beat(worker).ok());
  }
  Exchange();
  const v1::JobStatus status = master_->Status();
  EXPECT_EQ(status.samples(), 20u);
  EXPECT_DOUBLE_EQ(status.epochs(), 0.2);
  EXPECT_EQ(status.total_samples(), 400u);
  EXPECT_DOUBLE_EQ(status.samples_per_second(), 4);
  EXPECT_DOUBLE_EQ(status.seconds_left(), 95);
  EXPECT_DOUBLE_EQ(status.train_loss(), 2);
  EXPECT_DOUBLE_EQ(status.train_accuracy(), 0.5);
  EXPECT_DOUBLE_EQ(status.wall_seconds(), 5);
  ASSERT_EQ(status.workers_size(), 1);
  EXPECT_EQ(status.workers(0).progress().samples(), 20u);
}

TEST_F(MasterTest, StatusTellsTheJobsSettingsAndWhoTakesPart) {
  v1::Job job = MakeJob({.synchronous = false, .workers = 2});
  job.mutable_model()->add_layers();
  Start(job);
  EXPECT_EQ(master_->Status().settings().workers(), 2u);
  EXPECT_FALSE(master_->Status().settings().has_model());
  EXPECT_EQ(master_->Status().evaluators(), 0u);
  const Worker worker = Join();
  Join(v1::EVALUATOR);
  EXPECT_EQ(master_->Status().evaluators(), 1u);
  ASSERT_EQ(master_->Status().workers_size(), 1);
  EXPECT_EQ(master_->Status().workers(0).incarnation(), worker.incarnation);
}

TEST_F(MasterTest, StatusKeepsTheWorkOfThoseThatHaveLeft) {
  Start(MakeJob({.synchronous = false, .epochs = 4}));
  for (int i = 0; i < 3; ++i) {
    Worker worker = Join();
    ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
    for (int step = 0; step < 5; ++step) DoStep(&worker);
    Leave(worker);
    Exchange();
  }
  EXPECT_EQ(master_->Status().samples(), 60u);
}

TEST_F(MasterTest, StatusAddsUpTheShards) {
  Start(MakeJob({.synchronous = false}));
  Join();
  for (FakeShard& shard : shards_) {
    shard.extra()->set_bytes_pushed(100);
    v1::WorkerStatistics* statistics = shard.extra()->add_workers();
    statistics->set_worker(0);
    statistics->set_applied(4);
    statistics->set_late(1);
    statistics->set_split(2);
    for (uint64_t value : {0, 3}) statistics->add_staleness_values(value);
    for (uint64_t count : {3, 1}) statistics->add_staleness_counts(count);
  }
  Exchange();
  const v1::JobStatus status = master_->Status();
  EXPECT_EQ(status.bytes_pushed(), 200u);
  EXPECT_EQ(status.pushes_applied(), 4u) << "of shard 0";
  EXPECT_EQ(status.pushes_late(), 1u);
  EXPECT_EQ(status.pushes_split(), 2u);
  EXPECT_DOUBLE_EQ(status.staleness_mean(), 0.75);
  EXPECT_EQ(status.staleness_p50(), 0);
  EXPECT_EQ(status.staleness_p99(), 3);
  EXPECT_EQ(status.workers(0).staleness_max(), 3);
  EXPECT_EQ(status.shards_size(), 2);
}

TEST_F(MasterTest, ProgressThatWasOvertakenChangesNothing) {
  Start(MakeJob({.synchronous = false}));
  Worker worker = Join();
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  DoStep(&worker);
  const Worker earlier = worker;
  DoStep(&worker);
  ASSERT_TRUE(Beat(worker).ok());
  ASSERT_TRUE(Beat(earlier).ok());
  EXPECT_EQ(master_->Status().workers(0).progress().steps(), 2u);
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
  job.mutable_faults()->set_stuck_seconds(60);
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
    EXPECT_EQ(master_->num_workers(), 2) << limit;
    Pass(4, &idle);
    EXPECT_EQ(master_->num_workers(), 1) << limit;
  }
  const absl::Status status = master_->Register(Registration()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the worker (host:7) may register in 2"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("set a higher faults.stuck_seconds"));
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
    EXPECT_EQ(master_->num_workers(), 1);
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
    EXPECT_EQ(master_->num_workers(), 2);
    Pass(5, &idle);
    EXPECT_EQ(master_->num_workers(), 1);
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
  EXPECT_EQ(master_->num_workers(), 0);
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
  EXPECT_EQ(master_->phase(), v1::JobStatus::FAILED);
  EXPECT_THAT(master_->Status().reason(),
              HasSubstr("server 1 has had a NaN or infinite weight since update 7: training has diverged"));
  EXPECT_FALSE(master_->weights_are_final());
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
  EXPECT_EQ(master_->phase(), v1::JobStatus::FAILED);
  EXPECT_EQ(master_->Status().reason(),
            "server 1 is at version 6 after version 7: it has lost updates; "
            "start all servers again with --resume");
}

TEST_F(MasterTest, ServerThatIsReplacedBeforeTrainingReportsFromTheBeginning) {
  Start(MakeJob({}));
  EXPECT_FALSE(master_->has_begun());
  v1::ShardReport report;
  report.set_shard(1);
  report.set_version(7);
  ASSERT_TRUE(master_->OnShardReport(report).ok());
  master_->OnServerReplaced(1, "here:7001");
  report.set_version(0);
  EXPECT_TRUE(master_->OnShardReport(report).ok());
  Join();
  EXPECT_TRUE(master_->has_begun());
}

TEST_F(MasterTest, NamesReportsOfShardsThatTheJobDoesNotHave) {
  Start(MakeJob({}), 1);
  v1::ShardReport report;
  report.set_shard(1);
  EXPECT_EQ(master_->OnShardReport(report).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace catchment
