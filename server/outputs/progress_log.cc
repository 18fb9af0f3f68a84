#include "server/outputs/progress_log.h"

#include <limits>

#include "common/measures/progress_lines.h"

namespace catchment {
namespace {

// Returns the number of samples at the next tenth of the budget; without a budget in samples there is none.
uint64_t NextTenth(const v1::JobStatus& status) {
  const uint64_t all = status.total_samples();
  if (all == 0) return std::numeric_limits<uint64_t>::max();
  const uint64_t tenth = 10 * status.samples() / all + 1;
  return (all * tenth + 9) / 10;
}

}  // namespace

std::vector<ProgressLog::Entry> ProgressLog::Entries(const v1::JobStatus& status, bool scored, double now) {
  std::vector<Entry> entries;
  if (scored) entries.push_back({"evaluation", EvaluationLine(status)});
  if (!IsDue(status.samples(), now)) return entries;
  const bool is_first = next_samples_ == 1 && now < next_time_;
  next_time_ = now + kSeconds;
  next_samples_ = NextTenth(status);
  // The first steps say nothing about the rate.
  if (!is_first) entries.push_back({"progress", ProgressLine(status)});
  return entries;
}

}  // namespace catchment
