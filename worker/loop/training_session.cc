#include "worker/loop/training_session.h"

#include <glog/logging.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/algorithm_facts.h"
#include "common/job/data_sources.h"
#include "common/job/learning_rate.h"
#include "common/job/program_metrics.h"
#include "worker/attach/attached_model.h"
#include "worker/loop/slowed_pass.h"
#include "worker/loop/state_transfer.h"

namespace catchment {
namespace {

constexpr int kBatchesAhead = 3;
// The minibatches ahead for an attached program, which may load samples in several processes.
constexpr int kAttachedBatchesAhead = 16;
// The least time that a worker that is to end waits for servers that do not respond.
constexpr double kStopSeconds = 5;

// Returns true if a call did not reach the master, or was cancelled.
bool IsOutOfReach(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsCancelled(status);
}

// Returns the error that prevents the model from continuing.
absl::Status StatusOf(const Session& session) {
  return session.attached == nullptr ? absl::OkStatus() : session.attached->status();
}

// Returns how long a worker that is to end waits for servers that do not respond: at least as long as a block
// takes over the slowest network that the job allows.
double StopPatience(const v1::Job& job, const ParameterLayout& layout) {
  const double bytes_per_second = 1024.0 * std::max(1u, job.faults().slowest_kib_per_second());
  const double block_seconds = static_cast<double>(layout.most_in_block()) * sizeof(float) / bytes_per_second;
  return std::max(kStopSeconds, std::min(block_seconds, job.faults().connect_timeout_seconds()));
}

ParameterClient::Options ClientOptions(const v1::RegisterReply& me, const WorkerOptions& options,
                                       Session* session) {
  return {.servers = session->servers,
          .credentials = options.credentials,
          .job = session->job.name(),
          .worker = me.worker(),
          .incarnation = me.incarnation(),
          .connect_timeout_seconds = session->job.faults().connect_timeout_seconds(),
          .compression = session->job.compression(),
          .run_id = session->run_id,
          .token = me.token(),
          .shared_memory = options.shared_memory && session->job.shared_memory(),
          .inputs = session->attached != nullptr ? &session->attached->shared_gradient() : nullptr};
}

// Stands between a pass and the observer that follows it. Sets the gradient of frozen parameters to 0.
class FrozenPass final : public PassObserver {
 public:
  FrozenPass(const RateFactors* factors, absl::Span<float> gradient, PassObserver* observer)
      : factors_(*factors), gradient_(gradient), observer_(*observer) {}

  void BeforeForward(Range parameters) override { observer_.BeforeForward(parameters); }
  void AfterBackward(Range parameters) override {
    factors_.ForEach(parameters, [this](Range part, float factor) {
      if (factor == 0) std::fill_n(&gradient_[part.begin], part.size(), 0.0f);
    });
    observer_.AfterBackward(parameters);
  }

 private:
  const RateFactors& factors_;
  const absl::Span<float> gradient_;
  PassObserver& observer_;
};

EpochOrder OrderOf(const Session& session) {
  return EpochOrder(session.job.seed(), session.data.train.size());
}

}  // namespace

TrainingSession::TrainingSession(const v1::RegisterReply& me, const WorkerOptions& options,
                                 const Clock* clock, Session* session, MasterClient* master)
    : me_(me),
      clock_(*clock),
      session_(*session),
      master_(*master),
      slowdown_(SlowdownOf(session->job, me.worker())),
      stop_patience_(StopPatience(session->job, session->layout)),
      client_(ClientOptions(me, options, session), &session->layout, clock),
      algorithm_(MakeAlgorithm(session->job, session->layout.size(), &client_,
                               session->attached != nullptr ? session->attached->memory() : ModelMemory(),
                               &session->layout)),
      gradient_optimizer_(GradientOptimizer(session->job)),
      factors_(gradient_optimizer_, &session->layout, session->layout.size()),
      lease_calls_(master, &end_),
      leases_(me.worker(), me.incarnation(), &lease_calls_, [this] { return progress(); }),
      augmentation_(session->job.data().augmentation(), session->data.train.input_shape(),
                    session->job.seed()),
      loader_(
          &session->data.train, &augmentation_, OrderOf(*session),
          {.depth = session->attached != nullptr ? kAttachedBatchesAhead : kBatchesAhead,
           .threads = LoaderThreads(session->job.data()),
           .pin_inputs = [session](absl::Span<const float> inputs) { return session->model->Pin(inputs); }},
          Plans(), clock),
      loop_(SamplesPerEpoch(session->job, session->data.train.size()), algorithm_.get(), &leases_, this) {
  if (!session->residual.empty()) client_.SetResidual(std::exchange(session->residual, {}));
}

TrainingSession::~TrainingSession() {
  end_.Set();
  session_.residual = client_.TakeResidual();
  session_.version = client_.highest_version();
}

NextPlan TrainingSession::Plans() {
  NextPlan plans = [this] { return leases_.Next(); };
  if (session_.attached == nullptr) return plans;
  return AnnouncePlans(std::move(plans), OrderOf(session_), session_.attached);
}

// --------------------------------------------------------------------------------------------------- its end

void TrainingSession::EndLost(const absl::Status& why) {
  {
    MutexLock lock(&mu_);
    lost_ = why;
  }
  end_.Set();
  client_.Cancel();
}

absl::Status TrainingSession::lost() const {
  MutexLock lock(&mu_);
  return lost_;
}

bool TrainingSession::EndStalled() {
  if (client_.stalled_seconds() < stop_patience_) return false;
  client_.Cancel();
  return true;
}

// ---------------------------------------------------------------------------------------------------- steps

absl::StatusOr<std::optional<StepLoop::Minibatch>> TrainingSession::NextMinibatch() {
  ASSIGN_OR_RETURN(batch_, loader_.Next());
  if (batch_ == nullptr) return std::nullopt;
  return StepLoop::Minibatch{batch_->tag, batch_->spans};
}

absl::Status TrainingSession::Failure() const { return StatusOf(session_); }

void TrainingSession::OnStep(const StepLoop::Minibatch& minibatch, const Algorithm::Step& step) {
  if (session_.attached == nullptr || minibatch.spans.empty()) return;
  session_.attached->DescribeStep(step.progress, minibatch.spans.front().epoch,
                                  LearningRate(gradient_optimizer_, step.progress));
}

void TrainingSession::AddMeasurements(v1::Progress* progress) {
  if (session_.attached == nullptr || batch_->spans.empty()) return;
  for (const v1::FromProgram::Metric& metric : session_.attached->metrics())
    AddProgramMetric(metric.name(), metric.sum(), metric.count(), progress->mutable_program_metrics());
}

absl::StatusOr<Score> TrainingSession::Compute(absl::Span<const float> weights, absl::Span<float> gradient,
                                               PassObserver* observer) {
  const LoadedBatch& batch = *batch_;
  Pin(weights);
  Pin(gradient);
  FrozenPass frozen(&factors_, gradient, observer);
  if (factors_.has_frozen()) observer = &frozen;
  std::optional<SlowedPass> slowed;
  if (slowdown_ > 1) {
    slowed.emplace(
        slowdown_, [this] { return SecondsWithProcessor(clock_); },
        [this](double seconds) { end_.Pause(seconds); }, observer);
    observer = &*slowed;
  }
  const Score score =
      session_.model->Train(weights,
                            {batch.inputs.data(), batch.labels.data(), batch.sample_ids.data(),
                             static_cast<int>(batch.samples), batch.targets.data()},
                            gradient, observer);
  if (!StatusOf(session_).ok()) {
    // The rest of the gradient will never be ready, so the push in progress cannot complete.
    client_.Cancel();
  } else if (slowed) {
    slowed->End();
  }
  return score;
}

void TrainingSession::Pin(absl::Span<const float> values) {
  const auto [pinning, is_new] = pinned_.try_emplace(values.data());
  if (is_new) pinning->second = session_.model->Pin(values);
}

// ----------------------------------------------------------------------------------- requests of the master

WorkerState TrainingSession::ListState() {
  WorkerState state;
  algorithm_->ListState(IsSynchronous(session_.job.algorithm().consistency()), &state);
  client_.ListState(&state);
  return state;
}

absl::Status TrainingSession::SaveState(uint64_t checkpoint) {
  const absl::Status status =
      catchment::SaveState(ListState(), {me_.worker(), me_.incarnation()}, checkpoint, &master_);
  if (status.ok() || IsOutOfReach(status)) return status;
  // The master knows the reason, and completes the checkpoint without the state.
  LOG(WARNING) << "checkpoint " << checkpoint << " does not have this worker's state: " << status.message();
  return absl::OkStatus();
}

absl::Status TrainingSession::OnStarted() {
  if (!me_.restore_state()) return absl::OkStatus();
  WorkerState state = ListState();
  const absl::Status status = LoadState({me_.worker(), me_.incarnation()}, &master_, &state);
  LOG_IF(INFO, status.ok()) << "this worker continues with its state from the checkpoint";
  if (status.ok() || IsOutOfReach(status)) return status;
  return absl::DataLossError(absl::StrCat(
      "the state that worker ", me_.worker(), " had at the checkpoint cannot be restored: ", status.message(),
      "; to continue without it, resume with checkpoint.worker_state: false"));
}

// ------------------------------------------------------------------------------------------------- progress

void TrainingSession::Publish(v1::Progress* progress) {
  client_.totals().FillProgress(progress);
  progress->set_shared_memory_servers(client_.shared_memory_servers());
  progress->set_bytes_read(loader_.bytes_read());
  progress->set_read_seconds(loader_.read_seconds());
  MutexLock lock(&mu_);
  progress_ = *progress;
}

v1::Progress TrainingSession::progress() const {
  MutexLock lock(&mu_);
  return progress_;
}

}  // namespace catchment
