#include "simulation/simulated_worker.h"

#include <glog/logging.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "common/job/algorithm_facts.h"
#include "worker/loop/step_loop.h"

namespace catchment {
namespace {

// As for a TrainingSession: the minibatch in use, and those that are prepared.
constexpr size_t kBatchesAhead = 3;
// As in Heartbeat.
constexpr double kUsualHeartbeat = 0.5;
constexpr double kForwardShare = 1.0 / 3;
// Streams of the job's seed.
constexpr uint64_t kTimeStream = 0x74696d65;
constexpr uint64_t kFailureStream = 0x6661696c;
constexpr uint64_t kStartStream = 0x73746172;

// Makes a call to the master from a process: it arrives after the latency, and so does its reply. Returns
// nothing if `is_stopped` becomes true before.
template <typename Reply, typename Request, typename IsStopped>
std::optional<absl::StatusOr<Reply>> CallMaster(const SimulatedCluster& cluster, SimulatedProcess* process,
                                                const Request& request, IsStopped is_stopped) {
  const auto reply = std::make_shared<std::optional<absl::StatusOr<v1::Reply>>>();
  const auto receive = [reply, process, network = cluster.network](const absl::StatusOr<v1::Reply>& made) {
    network->SendSmall([=] {
      *reply = made;
      process->Wake();
    });
  };
  cluster.network->SendSmall(
      [receive, master = cluster.master, call = MakeCall(request)] { master->Answer(call, receive); });
  while (!reply->has_value() && !is_stopped()) process->Wait();
  if (!reply->has_value()) return std::nullopt;
  return TakeReply<Reply>(**std::move(reply));
}

}  // namespace

// One registration.
class SimulatedWorker::Session final : public LeaseCalls, private StepLoop::Surroundings {
 public:
  Session(SimulatedWorker* worker, const v1::RegisterReply& me)
      : worker_(*worker),
        cluster_(worker->cluster_),
        events_(worker->events_),
        me_(me),
        slowdown_(SlowdownOf(*cluster_.job, me.worker())),
        client_({.worker = me.worker(),
                 .incarnation = me.incarnation(),
                 .compression = cluster_.job->compression(),
                 .wire_scale = cluster_.model->wire_scale(),
                 .goodput = cluster_.goodput},
                cluster_.layout, cluster_.servers, cluster_.network, &worker->port_, &worker->trainer_,
                &events_),
        algorithm_(
            MakeAlgorithm(*cluster_.job, cluster_.layout->size(), &client_, ModelMemory(), cluster_.layout)),
        leases_(me.worker(), me.incarnation(), this, [this] { return progress_; }),
        loop_(SamplesPerEpoch(*cluster_.job, cluster_.model->train_samples()), algorithm_.get(), &leases_,
              this) {
    ScheduleHeartbeat(alive_, kUsualHeartbeat);
  }
  ~Session() override { *alive_ = false; }

  // For the trainer.
  absl::Status Run() { return loop_.Run(); }
  // For the loader: prepares minibatches until there are no more.
  void Load() {
    while (!ended_) {
      while (!ended_ && ready_.size() + lent_ >= kBatchesAhead) worker_.loader_.Wait();
      if (ended_) break;
      absl::StatusOr<std::optional<BatchPlan>> plan = leases_.Next();
      if (!plan.ok()) load_status_ = plan.status();
      if (!plan.ok() || !plan->has_value()) break;
      ready_.push_back(**std::move(plan));
      worker_.trainer_.Wake();
    }
    loaded_ = true;
    worker_.trainer_.Wake();
  }
  bool loaded() const { return loaded_; }

  void End() override {
    ended_ = true;
    worker_.trainer_.Interrupt();
    worker_.loader_.Interrupt();
  }
  // The process is lost. It hangs for `open_for` seconds, if that is above 0, until its connections break.
  void Fail(double open_for = 0) {
    failed_ = true;
    client_.Hang(open_for);
    End();
  }
  bool failed() const { return failed_; }
  const v1::RegisterReply& me() const { return me_; }
  const v1::Progress& progress() const { return progress_; }

 private:
  // LeaseCalls, for the loader.
  absl::StatusOr<v1::Lease> GetLease(const v1::GetLeaseRequest& request) override {
    std::optional<absl::StatusOr<v1::Lease>> lease =
        CallMaster<v1::Lease>(cluster_, &worker_.loader_, request, [this] { return ended_; });
    if (!lease) return absl::CancelledError("the simulated worker ends");
    return *std::move(lease);
  }
  bool IsStopped() const override { return ended_; }
  void PauseUntil(absl::FunctionRef<bool()> is_done, double seconds) const override {
    const double end = events_.Now() + seconds;
    events_.At(end, [worker = &worker_] { worker->loader_.Wake(); });
    while (!ended_ && events_.Now() < end && !is_done()) worker_.loader_.Wait();
  }

  // StepLoop::Surroundings.
  double Now() const override { return events_.Now(); }
  bool IsEnded() const override { return ended_; }
  bool HasMinibatch() const override { return !ready_.empty() || loaded_; }
  absl::StatusOr<std::optional<StepLoop::Minibatch>> NextMinibatch() override {
    lent_ = 0;
    worker_.loader_.Wake();
    const double begin = events_.Now();
    while (!HasMinibatch() && !ended_) worker_.trainer_.Wait();
    waited_seconds_ += events_.Now() - begin;
    if (ended_) return std::nullopt;
    if (ready_.empty() && !load_status_.ok()) return load_status_;
    if (ready_.empty()) return std::nullopt;
    plan_ = std::move(ready_.front());
    ready_.pop_front();
    lent_ = 1;
    return StepLoop::Minibatch{plan_.tag, plan_.spans};
  }
  double WaitedSeconds() const override { return waited_seconds_; }
  double BlockedSeconds() const override { return client_.totals().blocked_seconds(); }
  absl::Status SaveState(uint64_t checkpoint) override {
    cluster_.master->OnStateSaved(me_.incarnation(), checkpoint);
    return absl::OkStatus();
  }
  void Publish(v1::Progress* progress) override {
    client_.totals().FillProgress(progress);
    progress_ = *progress;
    // The loader may wait for this.
    if (ready_.empty()) worker_.loader_.Wake();
  }
  absl::StatusOr<Score> Compute(absl::Span<const float> weights, absl::Span<float> gradient,
                                PassObserver* observer) override {
    const std::vector<Range>& layers = cluster_.model->layers();
    const double seconds = slowdown_ * worker_.StepSeconds() + (computed_ ? 0 : worker_.StartSeconds());
    const double per_layer = seconds / static_cast<double>(layers.size());
    computed_ = true;
    for (const Range& layer : layers) {
      observer->BeforeForward(layer);
      Work(kForwardShare * per_layer);
    }
    absl::StatusOr<Score> score;
    Fiber::CallOutside([&] { score = cluster_.model->Train(weights, plan_, gradient); });
    for (auto layer = layers.rbegin(); layer != layers.rend(); ++layer) {
      Work((1 - kForwardShare) * per_layer);
      observer->AfterBackward(*layer);
    }
    return score;
  }
  void Work(double seconds) {
    const double begin = events_.Now();
    cluster_.goodput->BeginComputing();
    worker_.trainer_.SleepUntil(begin + seconds);
    cluster_.goodput->EndComputing();
    client_.AddComputed(events_.Now() - begin);
  }

  void ScheduleHeartbeat(std::shared_ptr<bool> alive, double seconds) {
    seconds = std::min(seconds, me_.heartbeat_timeout_seconds() / 4);
    events_.After(seconds, [this, alive = std::move(alive)] {
      if (!*alive || failed_) return;
      v1::HeartbeatRequest request;
      request.set_worker(me_.worker());
      request.set_incarnation(me_.incarnation());
      *request.mutable_progress() = progress_;
      const auto reply = cluster_.master->Ask<v1::HeartbeatReply>(std::move(request));
      if (!reply.ok()) return Fail();
      if (reply->stop()) End();
      ScheduleHeartbeat(alive, std::max(kUsualHeartbeat, reply->again_in_seconds()));
    });
  }

  SimulatedWorker& worker_;
  const SimulatedCluster& cluster_;
  EventQueue& events_;
  const v1::RegisterReply me_;
  const double slowdown_;
  const std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // this object exists
  SimulatedParameters client_;
  const std::unique_ptr<Algorithm> algorithm_;
  LeaseSource leases_;
  StepLoop loop_;
  std::deque<BatchPlan> ready_;
  BatchPlan plan_;  // in use by the trainer
  size_t lent_ = 0;
  bool loaded_ = false;  // the loader has ended
  absl::Status load_status_;
  bool computed_ = false;  // at least one step
  bool ended_ = false;
  bool failed_ = false;
  double waited_seconds_ = 0;
  v1::Progress progress_;  // as published
};

SimulatedWorker::SimulatedWorker(const SimulatedCluster* cluster, uint32_t index)
    : index_(index),
      cluster_(*cluster),
      events_(*cluster->events),
      random_(Derive(Derive(cluster->job->seed(), kTimeStream), index)),
      starts_(Derive(Derive(cluster->job->seed(), kStartStream), index)),
      failures_(Derive(Derive(cluster->job->seed(), kFailureStream), index)),
      trainer_(cluster->events, [this] { Train(); }),
      loader_(cluster->events, [this] { Load(); }) {}

SimulatedWorker::~SimulatedWorker() = default;

void SimulatedWorker::Start() {
  trainer_.Start();
  loader_.Start();
}

void SimulatedWorker::Cancel() {
  cancelled_ = true;
  if (session_ != nullptr) session_->Fail();
  trainer_.Interrupt();
  loader_.Interrupt();
}

double SimulatedWorker::StepSeconds() {
  double seconds = cluster_.step.Sample(&random_);
  if (cluster_.slow_steps > 0 && random_.Uniform() < cluster_.slow_steps)
    seconds *= cluster_.slow_step_factor;
  return seconds;
}

double SimulatedWorker::StartSeconds() {
  return cluster_.start.mean > 0 ? cluster_.start.Sample(&starts_) : 0;
}

// The loader's thread lives as long as the worker, and serves one session after another.
void SimulatedWorker::Load() {
  while (!over_ && !cancelled_) {
    if (session_ != nullptr && !session_->loaded()) {
      session_->Load();
    } else {
      loader_.Wait();
    }
  }
}

void SimulatedWorker::Train() {
  while (!cancelled_) {
    status_ = RunSession();
    const bool failed = session_ != nullptr && session_->failed();
    session_.reset();
    if (!failed || cancelled_) break;
    status_ = absl::OkStatus();
    trainer_.Clear();
    loader_.Clear();
    trainer_.SleepUntil(events_.Now() + cluster_.failures.away_seconds);
  }
  over_ = true;
  loader_.Wake();
}

absl::Status SimulatedWorker::RunSession() {
  v1::RegisterRequest request;
  for (const TensorSpec& tensor : cluster_.model->tensors()) {
    v1::TensorInfo* const info = request.add_tensors();
    info->set_name(tensor.name);
    info->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  }
  request.set_train_samples(cluster_.model->train_samples());
  request.set_data_checksum(cluster_.model->data_checksum());
  request.set_host("simulated");
  request.set_pid(index_);
  request.set_device(cluster_.model->description());
  const auto is_cancelled = [this] { return cancelled_; };
  const auto me = CallMaster<v1::RegisterReply>(cluster_, &trainer_, request, is_cancelled);
  if (!me) return absl::CancelledError("the simulation ends");
  if (!me->ok()) return me->status();
  session_ = std::make_unique<Session>(this, **me);
  loader_.Wake();
  ScheduleFailure();
  const absl::Status status = session_->Run();
  session_->End();
  while (!session_->loaded()) trainer_.Wait();
  if (session_->failed()) return absl::OkStatus();
  trainer_.Clear();
  loader_.Clear();
  v1::LeaveRequest leave;
  leave.set_worker(session_->me().worker());
  leave.set_incarnation(session_->me().incarnation());
  *leave.mutable_progress() = session_->progress();
  leave.set_failed(!status.ok());
  leave.set_reason(std::string(status.message()));
  CallMaster<v1::LeaveReply>(cluster_, &trainer_, leave, is_cancelled);
  return status;
}

void SimulatedWorker::ScheduleFailure() {
  if (cluster_.failures.mean_seconds <= 0) return;
  const Distribution time{.kind = Distribution::kExponential, .mean = cluster_.failures.mean_seconds};
  events_.After(time.Sample(&failures_),
                [this, incarnation = session_->me().incarnation()] { Fail(incarnation); });
}

void SimulatedWorker::Fail(uint64_t incarnation) {
  if (session_ == nullptr || session_->me().incarnation() != incarnation) return;
  session_->Fail(cluster_.failures.hangs ? cluster_.failures.away_seconds : 0);
}

}  // namespace catchment
