#include "worker/loop/lease_source.h"

#include "common/base/status_macros.h"

namespace catchment {
namespace {

// The time for which a call may wait at the master. The master bounds it further if there are few workers.
constexpr double kWaitSeconds = 20;

}  // namespace

LeaseSource::LeaseSource(uint32_t worker, uint64_t incarnation, LeaseCalls* calls,
                         std::function<v1::Progress()> progress)
    : worker_(worker), incarnation_(incarnation), calls_(*calls), progress_(std::move(progress)) {}

absl::StatusOr<std::optional<BatchPlan>> LeaseSource::Next() {
  while (next_ == lease_.minibatches_size()) {
    const absl::StatusOr<Renewal> renewal = Renew();
    if (absl::IsCancelled(renewal.status())) return std::nullopt;
    RETURN_IF_ERROR(renewal.status());
    if (*renewal == Renewal::kEnd) return std::nullopt;
    if (*renewal == Renewal::kTagged) return BatchPlan{.tag = tag_, .spans = {}};
  }
  if (calls_.IsStopped()) return std::nullopt;
  BatchPlan plan;
  for (const v1::SampleSpan& span : lease_.minibatches(next_).spans()) {
    plan.spans.push_back({span.epoch(), span.begin(), span.end()});
  }
  plan.tag = lease_.number() << 32 | static_cast<uint64_t>(++next_);
  return plan;
}

absl::StatusOr<LeaseSource::Renewal> LeaseSource::Renew() {
  v1::GetLeaseRequest request;
  request.set_worker(worker_);
  request.set_incarnation(incarnation_);
  request.set_after(lease_.number());
  request.set_wait_seconds(kWaitSeconds);
  while (!calls_.IsStopped()) {
    *request.mutable_progress() = progress_();
    ASSIGN_OR_RETURN(v1::Lease lease, calls_.GetLease(request));
    if (tag_ = TakeRequest(lease); tag_ != 0) return Renewal::kTagged;
    if (lease.state() == v1::Lease::FINISHED) return Renewal::kEnd;
    if (lease.state() == v1::Lease::WAIT) {
      PauseUntilDone(request.progress(), lease.retry_seconds());
      continue;
    }
    lease_ = std::move(lease);
    next_ = 0;
    MutexLock lock(&mu_);
    if (!first_version_.has_value()) first_version_ = lease_.first_version();
    total_samples_ = lease_.total_samples();
    local_steps_ = lease_.local_steps();
    if (lease_.last() || lease_.settle()) {
      marked_.push_back({lease_.number(), static_cast<uint32_t>(lease_.minibatches_size()), lease_.last(),
                         lease_.settle()});
    }
    return Renewal::kGranted;
  }
  return Renewal::kEnd;
}

uint64_t LeaseSource::TakeRequest(const v1::Lease& answer) {
  if (answer.save_state() > saved_) {
    saved_ = answer.save_state();
    return kSaveState + saved_;
  }
  if (answer.flush() && flushed_ < lease_.number()) {
    flushed_ = lease_.number();
    return kFlush;
  }
  if (answer.stopped() && !stopped_) {
    stopped_ = true;
    return kStopped;
  }
  return 0;
}

bool LeaseSource::IsDone(const v1::Progress& progress) const {
  return progress.lease() == lease_.number() &&
         progress.lease_steps() == static_cast<uint64_t>(lease_.minibatches_size());
}

void LeaseSource::PauseUntilDone(const v1::Progress& reported, double seconds) const {
  const bool reported_done = IsDone(reported);
  calls_.PauseUntil([&] { return !reported_done && IsDone(progress_()); }, seconds);
}

uint64_t LeaseSource::first_version() const {
  MutexLock lock(&mu_);
  return first_version_.value_or(0);
}

Algorithm::Step LeaseSource::StepOf(uint64_t tag, absl::Span<const Span> spans, uint64_t samples_per_epoch) {
  Algorithm::Step step;
  for (const Span& span : spans) step.samples += static_cast<uint32_t>(span.end - span.begin);
  MutexLock lock(&mu_);
  step.local_steps = local_steps_;
  const Place place = PlaceOf(tag);
  while (!marked_.empty() && marked_.front().number < place.lease) marked_.pop_front();
  if (!marked_.empty() && marked_.front().number == place.lease) {
    const Marked& lease = marked_.front();
    if (lease.last) step.left = lease.steps - static_cast<uint32_t>(place.step);
    step.settle = lease.settle && place.step == 1;
  }
  if (total_samples_ > 0 && !spans.empty()) {
    const Span& first = spans.front();
    const double position = static_cast<double>(first.epoch) * static_cast<double>(samples_per_epoch) +
                            static_cast<double>(first.begin);
    step.progress = position / static_cast<double>(total_samples_);
  }
  return step;
}

}  // namespace catchment
