#include "server/control/shard_reports.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "common/job/algorithm_facts.h"

namespace catchment {
namespace {

int Entries(const v1::WorkerStatistics& statistics) {
  return std::min(statistics.staleness_values_size(), statistics.staleness_counts_size());
}

// Replaces `before` by `after` in both sums. Values are normally ascending, so that equal values are matched.
void Correct(const v1::WorkerStatistics& before, const v1::WorkerStatistics& after,
             const std::array<StalenessDistribution*, 2>& sums) {
  const auto replace = [&sums](uint64_t value, uint64_t old_count, uint64_t new_count) {
    for (StalenessDistribution* sum : sums) sum->Replace(value, old_count, new_count);
  };
  const int old_entries = Entries(before), new_entries = Entries(after);
  for (int b = 0, a = 0; b < old_entries || a < new_entries;) {
    const bool both = b < old_entries && a < new_entries;
    if (both && before.staleness_values(b) == after.staleness_values(a)) {
      replace(before.staleness_values(b), before.staleness_counts(b), after.staleness_counts(a));
      ++b;
      ++a;
    } else if (a == new_entries || (both && before.staleness_values(b) < after.staleness_values(a))) {
      replace(before.staleness_values(b), before.staleness_counts(b), 0);
      ++b;
    } else {
      replace(after.staleness_values(a), 0, after.staleness_counts(a));
      ++a;
    }
  }
}

template <typename Message>  // JobStatus or WorkerStatus
void FillStaleness(const StalenessDistribution& staleness, Message* message) {
  message->set_staleness_mean(staleness.mean());
  message->set_staleness_p50(staleness.quantile(0.5));
  message->set_staleness_p99(staleness.quantile(0.99));
  message->set_staleness_max(staleness.max());
}

}  // namespace

absl::Status ShardReports::Update(const v1::ShardReport& report) {
  if (report.shard() >= reports_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("received a report of shard ", report.shard(),
                                                   ", but the job has ", reports_.size(),
                                                   " servers; give all servers the same --servers"));
  }
  // Memory is kept for each index.
  for (const v1::PushMark& mark : report.marks()) {
    if (mark.worker() < kMaxWorkers) continue;
    return absl::InvalidArgumentError(absl::StrCat("server ", report.shard(), " reports worker ",
                                                   mark.worker(), "; their indexes are below ", kMaxWorkers));
  }
  std::optional<v1::ShardReport>& last = reports_[report.shard()];
  if (last && report.version() < last->version()) {
    return absl::FailedPreconditionError(absl::StrCat("server ", report.shard(), " is at version ",
                                                      report.version(), " after version ", last->version(),
                                                      ": it has lost updates"));
  }
  const bool first = !last.has_value();
  if (first) last.emplace();
  Workers workers;
  workers.Swap(last->mutable_workers());
  v1::QuorumStatistics quorum;
  const bool had_quorum = last->has_quorum();
  if (had_quorum) quorum.Swap(last->mutable_quorum());
  // Assigning to the previous report reuses the memory of its marks.
  *last = report;
  last->clear_marks();
  last->clear_without_statistics();
  if (report.without_statistics() && !first) {
    last->mutable_workers()->Swap(&workers);
    if (had_quorum) last->mutable_quorum()->Swap(&quorum);
  } else {
    ReplaceStatistics(workers, last->workers());
  }
  return absl::OkStatus();
}

void ShardReports::Forget(uint32_t shard) {
  std::optional<v1::ShardReport>& last = reports_.at(shard);
  if (last) ReplaceStatistics(last->workers(), Workers());
  last.reset();
}

bool ShardReports::all_reported() const {
  return std::all_of(reports_.begin(), reports_.end(), [](const auto& report) { return report.has_value(); });
}

uint64_t ShardReports::lowest_generation() const {
  uint64_t lowest = UINT64_MAX;
  for (const auto& report : reports_) lowest = std::min(lowest, report ? report->generation() : 0);
  return lowest;
}

uint64_t ShardReports::lowest_version() const {
  uint64_t lowest = UINT64_MAX;
  for (const auto& report : reports_) lowest = std::min(lowest, report ? report->version() : 0);
  return lowest;
}

uint64_t ShardReports::highest_version() const {
  uint64_t highest = 0;
  for (const auto& report : reports_) highest = std::max(highest, report ? report->version() : 0);
  return highest;
}

uint64_t ShardReports::bytes_pushed() const {
  uint64_t bytes = 0;
  for (const auto& report : reports_) bytes += report ? report->bytes_pushed() : 0;
  return bytes;
}

std::string ShardReports::save_error() const {
  for (const auto& report : reports_) {
    if (report && !report->save_error().empty()) {
      return absl::StrCat("server ", report->shard(), ": ", OneLine(report->save_error()));
    }
  }
  return "";
}

const StalenessDistribution& ShardReports::StalenessOf(uint32_t worker) const {
  static const StalenessDistribution* const kNone = new StalenessDistribution();
  const auto found = staleness_of_workers_.find(worker);
  return found == staleness_of_workers_.end() ? *kNone : found->second;
}

void ShardReports::ReplaceStatistics(const Workers& before, const Workers& after) {
  static const v1::WorkerStatistics* const kNone = new v1::WorkerStatistics();
  // A shard lists its workers in a fixed order, so entries at the same position usually belong to the same
  // worker. Otherwise the old entry is subtracted and the new one added.
  for (int i = 0; i < std::max(before.size(), after.size()); ++i) {
    const bool same = i < std::min(before.size(), after.size()) && before[i].worker() == after[i].worker();
    if (i < before.size()) {
      Correct(before[i], same ? after[i] : *kNone, {&staleness_, &staleness_of_workers_[before[i].worker()]});
    }
    if (i < after.size() && !same) {
      Correct(*kNone, after[i], {&staleness_, &staleness_of_workers_[after[i].worker()]});
    }
  }
}

void ShardReports::Fill(v1::JobStatus* status) const {
  FillStaleness(staleness_, status);
  for (const auto& report : reports_) {
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
  for (v1::WorkerStatus& worker : *status->mutable_workers())
    FillStaleness(StalenessOf(worker.worker()), &worker);
}

}  // namespace catchment
