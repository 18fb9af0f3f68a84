#include "server/master/shard_board.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace catchment {

absl::Status ShardBoard::Update(const v1::ShardReport& report) {
  if (report.shard() >= reports_.size()) {
    return absl::InvalidArgumentError(absl::StrCat("a report of shard ", report.shard(), ", but the job has ",
                                                   reports_.size(),
                                                   " servers; start all with one --servers"));
  }
  std::optional<v1::ShardReport>& last = reports_[report.shard()];
  if (last && report.version() < last->version()) {
    return absl::FailedPreconditionError(absl::StrCat("server ", report.shard(), " is at version ",
                                                      report.version(), ", and was at ", last->version(),
                                                      " before: it has lost updates"));
  }
  last = report;
  return absl::OkStatus();
}

void ShardBoard::Forget(uint32_t shard) { reports_.at(shard).reset(); }

bool ShardBoard::all_reported() const {
  return std::all_of(reports_.begin(), reports_.end(), [](const auto& report) { return report.has_value(); });
}

uint64_t ShardBoard::lowest_generation() const {
  uint64_t lowest = UINT64_MAX;
  for (const auto& report : reports_) lowest = std::min(lowest, report ? report->generation() : 0);
  return lowest;
}

uint64_t ShardBoard::lowest_version() const {
  uint64_t lowest = UINT64_MAX;
  for (const auto& report : reports_) lowest = std::min(lowest, report ? report->version() : 0);
  return lowest;
}

uint64_t ShardBoard::highest_version() const {
  uint64_t highest = 0;
  for (const auto& report : reports_) highest = std::max(highest, report ? report->version() : 0);
  return highest;
}

std::string ShardBoard::save_error() const {
  for (const auto& report : reports_) {
    if (report && !report->save_error().empty()) {
      return absl::StrCat("server ", report->shard(), ": ", report->save_error());
    }
  }
  return "";
}

StalenessDistribution ShardBoard::Staleness(std::optional<uint32_t> worker) const {
  StalenessDistribution staleness;
  for (const auto& report : reports_) {
    if (!report) continue;
    for (const v1::WorkerStatistics& statistics : report->workers()) {
      if (!worker || statistics.worker() == *worker) staleness.Add(statistics);
    }
  }
  return staleness;
}

}  // namespace catchment
