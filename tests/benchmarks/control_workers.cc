#include "tests/benchmarks/control_workers.h"

#include <grpcpp/alarm.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/net/rpc.h"
#include "common/wire/protocol.h"
#include "common/wire/token.h"

namespace catchment {
namespace {

// As those of catchment_worker (worker/loop: heartbeat.cc, lease_source.cc, master_client.h).
constexpr double kHeartbeatSeconds = 0.5;
constexpr double kCallSeconds = 10;
constexpr double kWaitSeconds = 20;
constexpr double kComeSeconds = 0.05;

std::chrono::system_clock::time_point After(double seconds) {
  return std::chrono::system_clock::now() + std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6));
}

}  // namespace

void ControlRecord::Begin() {
  MutexLock lock(&mu_);
  counts_ = true;
  lease_seconds_.clear();
}

void ControlRecord::OnGranted(double waited_seconds) {
  MutexLock lock(&mu_);
  if (counts_) lease_seconds_.push_back(waited_seconds);
}

void ControlRecord::OnError(const absl::Status& status) {
  MutexLock lock(&mu_);
  error_.Update(status);
}

std::vector<double> ControlRecord::TakeLeaseSeconds() {
  MutexLock lock(&mu_);
  return std::exchange(lease_seconds_, {});
}

absl::Status ControlRecord::error() const {
  MutexLock lock(&mu_);
  return error_;
}

// One timer or call of each kind is under way at a time; all run on the queue's thread.
class SimulatedWorkers::Worker {
 public:
  Worker(SimulatedWorkers* all, int index)
      : all_(*all),
        // Their steps differ, so that they do not all ask at once.
        step_seconds_(all->options_.step_seconds * (0.8 + 0.4 * index / all->options_.workers)),
        works_(index > 0 || !all->options_.first_never_works),
        stub_(v1::MasterService::NewStub(
            ConnectForControl(all->options_.master, grpc::InsecureChannelCredentials()))) {}

  absl::Status Start() {
    absl::Status status = Register();
    // The master limits how many members of one address register in a second.
    for (int i = 0; i < 600 && absl::IsUnavailable(status); ++i) {
      usleep(100'000);
      status = Register();
    }
    if (!status.ok()) return status;
    heartbeat_timeout_seconds_ = me_.heartbeat_timeout_seconds();
    lease_request_.set_wait_seconds(kWaitSeconds);
    lease_request_.set_worker(me_.worker());
    lease_request_.set_incarnation(me_.incarnation());
    heartbeat_request_.set_worker(me_.worker());
    heartbeat_request_.set_incarnation(me_.incarnation());
    under_way_ = 2;
    heartbeat_timer_.Set(all_.thread_.queue(), After(kHeartbeatSeconds), heartbeat_due_.Tag());
    lease_timer_.Set(all_.thread_.queue(), After(0), lease_due_.Tag());
    return absl::OkStatus();
  }

  void End() { ending_ = true; }
  bool ended() const { return under_way_ == 0; }

 private:
  absl::Status Register() {
    return FromGrpc(stub_->Register(DeadlineContext(kCallSeconds).get(), all_.registration_, &me_));
  }
  void OnHeartbeatDue(bool) {
    if (ending_) return Leave();
    *heartbeat_request_.mutable_progress() = progress_;
    context_of_heartbeat_ = DeadlineContext(kCallSeconds);
    context_of_heartbeat_->AddMetadata(kTokenMetadata, me_.token());
    all_.record_.OnCall();
    heartbeat_call_ =
        stub_->AsyncHeartbeat(context_of_heartbeat_.get(), heartbeat_request_, all_.thread_.queue());
    heartbeat_call_->Finish(&heartbeat_reply_, &heartbeat_status_, heartbeat_done_.Tag());
  }

  void OnHeartbeatDone(bool) {
    if (ending_ || Failed(heartbeat_status_)) return Leave();
    const double seconds = std::min(std::max(kHeartbeatSeconds, heartbeat_reply_.again_in_seconds()),
                                    heartbeat_timeout_seconds_ / 4);
    heartbeat_timer_.Set(all_.thread_.queue(), After(seconds), heartbeat_due_.Tag());
  }

  // The lease's next step is done, or a pause is over.
  void OnLeaseDue(bool) {
    if (ending_) return Leave();
    // The first ones shall not do all the work before the last ones come.
    if (lease_.number() > 0 && all_.record_.working() < all_.options_.workers) return Sleep(kComeSeconds);
    if (step_ < lease_.minibatches_size() && !DoStep()) return Leave();
    if (step_ < lease_.minibatches_size()) return Sleep(step_seconds_);
    if (asked_at_ == 0) asked_at_ = all_.clock_.Now();
    *lease_request_.mutable_progress() = progress_;
    lease_request_.set_after(lease_.number());
    context_of_lease_ = DeadlineContext(kCallSeconds + kWaitSeconds);
    context_of_lease_->AddMetadata(kTokenMetadata, me_.token());
    all_.record_.OnCall();
    lease_call_ = stub_->AsyncGetLease(context_of_lease_.get(), lease_request_, all_.thread_.queue());
    lease_call_->Finish(&reply_, &lease_status_, lease_done_.Tag());
  }

  bool DoStep() {
    ++step_;
    const absl::Status status =
        all_.servers_.Push(lease_request_.worker(), lease_request_.incarnation(), progress_.steps() + 1);
    if (!status.ok()) {
      all_.record_.OnError(status);
      return false;
    }
    progress_.set_steps(progress_.steps() + 1);
    progress_.set_compute_seconds(progress_.compute_seconds() + step_seconds_);
    uint64_t samples = 0;
    for (const v1::SampleSpan& span : lease_.minibatches(step_ - 1).spans()) {
      samples += span.end() - span.begin();
    }
    progress_.set_samples(progress_.samples() + samples);
    progress_.set_lease(lease_.number());
    progress_.set_lease_steps(step_);
    return true;
  }

  void OnLeaseDone(bool) {
    if (ending_ || Failed(lease_status_)) return Leave();
    if (reply_.state() == v1::Lease::WAIT) return Wait();
    if (reply_.state() == v1::Lease::FINISHED) {
      all_.record_.OnError(absl::AbortedError("the job has ended"));
      return Leave();
    }
    if (lease_.number() == 0) all_.record_.OnWorking();
    all_.record_.OnGranted(all_.clock_.Now() - std::exchange(asked_at_, 0));
    lease_ = reply_;
    step_ = 0;
    if (!works_) return Leave();
    Sleep(step_seconds_);
  }

  void Wait() {
    if (reply_.flush() && flushed_ < lease_.number()) {
      flushed_ = lease_.number();
      const absl::Status status = all_.servers_.Flush(all_.registration_.run_id(), me_, progress_.steps());
      if (!status.ok()) {
        all_.record_.OnError(status);
        return Leave();
      }
    }
    Sleep(reply_.retry_seconds());
  }

  bool Failed(const grpc::Status& status) {
    if (status.ok()) return false;
    all_.record_.OnError(FromGrpc(status));
    return true;
  }
  void Sleep(double seconds) { lease_timer_.Set(all_.thread_.queue(), After(seconds), lease_due_.Tag()); }
  void Leave() { --under_way_; }

  SimulatedWorkers& all_;
  const double step_seconds_;
  const bool works_;
  const std::unique_ptr<v1::MasterService::Stub> stub_;
  std::atomic<bool> ending_ = false;
  std::atomic<int> under_way_ = 0;
  v1::RegisterReply me_;
  v1::Progress progress_;
  double heartbeat_timeout_seconds_ = 0;

  MemberCompletion<Worker> heartbeat_due_{this, &Worker::OnHeartbeatDue};
  MemberCompletion<Worker> heartbeat_done_{this, &Worker::OnHeartbeatDone};
  grpc::Alarm heartbeat_timer_;
  v1::HeartbeatRequest heartbeat_request_;
  v1::HeartbeatReply heartbeat_reply_;
  grpc::Status heartbeat_status_;
  std::unique_ptr<grpc::ClientContext> context_of_heartbeat_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::HeartbeatReply>> heartbeat_call_;

  MemberCompletion<Worker> lease_due_{this, &Worker::OnLeaseDue};
  MemberCompletion<Worker> lease_done_{this, &Worker::OnLeaseDone};
  grpc::Alarm lease_timer_;
  double asked_at_ = 0;  // 0: it does not wait for a lease
  v1::GetLeaseRequest lease_request_;
  v1::Lease reply_;
  v1::Lease lease_;       // that it works on
  int step_ = 0;          // of its minibatches, done
  uint64_t flushed_ = 0;  // number of the last lease after which all shards were given what they lacked
  grpc::Status lease_status_;
  std::unique_ptr<grpc::ClientContext> context_of_lease_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<v1::Lease>> lease_call_;
};

SimulatedWorkers::SimulatedWorkers(Options options, const std::vector<TensorSpec>& tensors, uint64_t run_id,
                                   SimulatedServers* servers, ControlRecord* record)
    : options_(std::move(options)),
      servers_(*servers),
      record_(*record),
      thread_(std::make_unique<grpc::CompletionQueue>(), "workers") {
  for (const TensorSpec& tensor : tensors) {
    v1::TensorInfo* const info = registration_.add_tensors();
    info->set_name(tensor.name);
    info->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  }
  registration_.set_train_samples(options_.train_samples);
  registration_.set_host("simulated");
  registration_.set_device("none");
  registration_.set_run_id(run_id);
  registration_.set_protocol_version(kProtocolVersion);
  registration_.set_build(BuildVersion());
}

SimulatedWorkers::~SimulatedWorkers() {
  for (const auto& worker : workers_) worker->End();
  for (const auto& worker : workers_) {
    while (!worker->ended()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

absl::Status SimulatedWorkers::Start() {
  for (int i = 0; i < options_.workers; ++i) {
    workers_.push_back(std::make_unique<Worker>(this, i));
    RETURN_IF_ERROR(workers_.back()->Start());
  }
  return absl::OkStatus();
}

}  // namespace catchment
