// A master whose shards, workers and evaluators the test plays.
#ifndef CATCHMENT_TESTS_SERVER_CONTROL_MASTER_FIXTURE_H_
#define CATCHMENT_TESTS_SERVER_CONTROL_MASTER_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/control/master.h"
#include "tests/server/control/fake_shard.h"
#include "tests/server/control/testing.h"

namespace catchment {

class MasterTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kSamples = 100;

  // Returns the texts of the events since the previous call.
  std::vector<std::string> FreshEvents() {
    std::vector<std::string> texts;
    for (const JobEvent& event : master_->events().TakeFresh()) texts.push_back(event.text);
    return texts;
  }

  struct Worker {
    uint32_t index = 0;
    uint64_t incarnation = 0;
    v1::Lease lease;
    v1::Progress progress;
  };

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
    for (CompleteCheckpoint& checkpoint : master_->checkpoints().TakeComplete()) {
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
  SettableClock clock_;
  std::unique_ptr<Master> master_;
  std::vector<CompleteCheckpoint> complete_;
  std::vector<FakeShard> shards_;
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_SERVER_CONTROL_MASTER_FIXTURE_H_
