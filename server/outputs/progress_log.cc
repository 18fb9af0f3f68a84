#include "server/outputs/progress_log.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "common/progress_lines.h"

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

std::vector<std::string> ProgressLog::Lines(const v1::JobStatus& status, bool scored, double now) {
  std::vector<std::string> lines;
  if (scored) lines.push_back(EvaluationLine(status));
  if (!IsDue(status.samples(), now)) return lines;
  const bool is_first = next_samples_ == 1 && now < next_time_;
  next_time_ = now + kSeconds;
  next_samples_ = NextTenth(status);
  // The first steps say nothing about the rate.
  if (!is_first) lines.push_back(ProgressLine(status));
  return lines;
}

}  // namespace catchment
