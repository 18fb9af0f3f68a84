// The master's answer to GetStatus.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/job/data_sources.h"
#include "server/control/master.h"

namespace catchment {
namespace {

template <typename Message>  // JobStatus or WorkerStatus
void FillStaleness(const StalenessDistribution& staleness, Message* message) {
  message->set_staleness_mean(staleness.mean());
  message->set_staleness_p50(staleness.quantile(0.5));
  message->set_staleness_p99(staleness.quantile(0.99));
  message->set_staleness_max(staleness.max());
}

}  // namespace

void Master::Watch(double seconds) {
  if (!state_machine_.ended()) watched_until_ = std::max(watched_until_, clock_->Now() + seconds);
}

v1::JobStatus Master::Status() const {
  v1::JobStatus status;
  status.set_job(job_.name());
  *status.mutable_settings() = settings_;
  status.set_phase(phase());
  status.set_reason(state_machine_.reason());
  if (phase() == v1::JobStatus::TRAINING && !SaveError().empty()) {
    status.set_reason(absl::StrCat("a checkpoint could not be saved: ", SaveError()));
  }
  status.set_wall_seconds(state_machine_.trained_seconds(clock_->Now()));
  status.set_last_checkpoint(checkpoints_.recorded());
  if (plateau_) status.set_plateau_factor(plateau_->factor());
  FillProgress(&status);
  FillBest(&status);
  FillShards(&status);
  for (const Member* worker : membership_.workers()) *status.add_workers() = StatusOf(*worker);
  status.set_evaluators(membership_.num_evaluators());
  status.mutable_events()->Add(events_.last().begin(), events_.last().end());
  return status;
}

void Master::FillProgress(v1::JobStatus* status) const {
  if (ledger_ != nullptr) {
    status->set_samples(ledger_->done_samples());
    status->set_epochs(done_epochs());
  }
  status->set_total_samples(total_samples_);
  status->set_train_samples(train_samples_);
  status->set_data_checksum(data_checksum_);
  status->set_repeated_samples(repeated_samples_);
  work_.Fill(status);
  status->set_train_loss(meter_.mean_loss());
  status->set_train_accuracy(meter_.accuracy());
  if (phase() == v1::JobStatus::TRAINING) {
    const double rate = meter_.samples_per_second(clock_->Now());
    const uint64_t left = total_samples_ - std::min(total_samples_, status->samples());
    status->set_samples_per_second(rate);
    if (rate > 0) status->set_seconds_left(static_cast<double>(left) / rate);
  }
  const v1::EvaluationReport& evaluation = evaluations_.last();
  if (evaluation.samples() == 0) return;
  const double samples = static_cast<double>(evaluation.samples());
  status->set_test_samples(evaluation.samples());
  status->set_test_loss(evaluation.loss_sum() / samples);
  status->set_test_accuracy(static_cast<double>(evaluation.correct()) / samples);
  status->set_tested_at_samples(evaluations_.last_moment().samples);
  status->set_tested_at_seconds(evaluations_.last_moment().seconds);
}

void Master::FillBest(v1::JobStatus* status) const {
  const v1::BestState& best = early_stopping_.state();
  status->set_has_accuracy(HasClasses(job_.data()));
  status->set_best_evaluation(best.evaluation());
  status->set_best_test_loss(best.loss());
  status->set_best_test_accuracy(best.accuracy());
  status->set_best_at_samples(best.samples());
  status->set_evaluations_since_best(best.since());
  if (phase() != v1::JobStatus::FAILED) status->set_ended_early(state_machine_.ended_early());
}

void Master::FillShards(v1::JobStatus* status) const {
  FillStaleness(shard_reports_.staleness(), status);
  for (const auto& report : shard_reports_.reports()) {
    if (!report) continue;
    *status->add_shards() = *report;
    status->set_bytes_pushed(status->bytes_pushed() + report->bytes_pushed());
    status->set_bytes_pulled(status->bytes_pulled() + report->bytes_pulled());
    if (report->shard() != 0) continue;
    status->set_updates(report->version());
    const v1::MomentumState& momentum = report->momentum();
    status->set_learning_rate(report->learning_rate() *
                              (momentum.has_rate_factor() ? momentum.rate_factor() : 1));
    for (const v1::WorkerStatistics& worker : report->workers()) {
      status->set_pushes_applied(status->pushes_applied() + worker.applied());
      status->set_pushes_late(status->pushes_late() + worker.late());
      status->set_pushes_non_finite(status->pushes_non_finite() + worker.non_finite());
      status->set_pushes_duplicate(status->pushes_duplicate() + worker.duplicate());
      status->set_pushes_split(status->pushes_split() + worker.split());
    }
  }
}

v1::WorkerStatus Master::StatusOf(const Member& worker) const {
  v1::WorkerStatus status;
  status.set_worker(worker.index);
  status.set_incarnation(worker.incarnation);
  status.set_host(worker.host);
  status.set_pid(worker.pid);
  status.set_device(worker.device);
  status.set_seconds_since_heartbeat(clock_->Now() - worker.heard_at);
  status.set_seconds_without_progress(watch_.SecondsWithout(worker.incarnation, clock_->Now()));
  *status.mutable_progress() = worker.progress;
  FillStaleness(shard_reports_.StalenessOf(worker.index), &status);
  return status;
}

}  // namespace catchment
