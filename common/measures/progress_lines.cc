#include "common/measures/progress_lines.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/text.h"

namespace catchment {
namespace {

std::string Samples(uint64_t samples, const v1::JobStatus& status) {
  if (status.total_samples() == 0) return absl::StrCat(Count(samples), " samples");
  return absl::StrCat(Count(samples), "/", Count(status.total_samples()), " samples");
}

// Returns the epoch of the weights that were scored; training has gone on since.
double TestedEpoch(const v1::JobStatus& status) {
  if (status.samples() == 0) return 0;
  return status.epochs() * static_cast<double>(status.tested_at_samples()) /
         static_cast<double>(status.samples());
}

std::string Staleness(const v1::JobStatus& status) {
  return absl::StrFormat("staleness %.2f, p99 %s", status.staleness_mean(), Short(status.staleness_p99()));
}

// Returns an empty text if the rate is unknown: before the first steps and after training.
std::string Rate(const v1::JobStatus& status) {
  if (status.samples_per_second() <= 0) return "";
  return absl::StrCat(Count(static_cast<int64_t>(status.samples_per_second())), "/s");
}

std::string PhaseLine(const v1::JobStatus& status) {
  // The reason is sufficient: "waiting for workers: 1 of 2 are here".
  if (status.phase() == v1::JobStatus::WAITING && !status.reason().empty()) return status.reason();
  return DescribePhase(status);
}

std::string TestScore(const v1::JobStatus& status) {
  return status.has_accuracy() ? Percent(status.test_accuracy())
                               : absl::StrFormat("loss %.4f", status.test_loss());
}

// Joins the parts that are not empty, as far as they fit.
std::string Fitting(const std::vector<std::string>& parts, int columns) {
  std::string line;
  for (const std::string& part : parts) {
    const std::string more = absl::StrCat(line.empty() ? "" : " | ", part);
    if (part.empty() ||
        (columns > 0 && !line.empty() && line.size() + more.size() > static_cast<size_t>(columns)))
      continue;
    line += more;
  }
  return line;
}

}  // namespace

std::string DescribePhase(const v1::JobStatus& status) {
  std::string phase = v1::JobStatus::Phase_Name(status.phase());
  absl::AsciiStrToLower(&phase);
  return status.reason().empty() ? phase : absl::StrCat(phase, ": ", status.reason());
}

std::optional<double> ShareDone(const v1::JobStatus& status) {
  if (status.total_samples() > 0)
    return static_cast<double>(status.samples()) / static_cast<double>(status.total_samples());
  const double seconds = status.wall_seconds() + status.seconds_left();
  return status.seconds_left() > 0 ? std::optional(status.wall_seconds() / seconds) : std::nullopt;
}

std::string ProgressLine(const v1::JobStatus& status, int columns) {
  if (status.phase() != v1::JobStatus::TRAINING) return PhaseLine(status);
  std::vector<std::string> parts;
  if (const std::optional<double> share = ShareDone(status))
    parts.push_back(absl::StrFormat("%d %%", static_cast<int>(100 * *share)));
  if (status.test_samples() > 0) parts.push_back(absl::StrCat("test ", TestScore(status)));
  if (status.samples_per_second() > 0) parts.push_back(absl::StrCat(Seconds(status.seconds_left()), " left"));
  if (status.samples() > 0) parts.push_back(absl::StrFormat("loss %.4f", status.train_loss()));
  parts.push_back(Rate(status));
  if (status.samples() > 0 && status.has_accuracy())
    parts.push_back(absl::StrCat("train ", Percent(status.train_accuracy())));
  parts.push_back(absl::StrFormat("epoch %.2f", status.epochs()));
  parts.push_back(Samples(status.samples(), status));
  parts.push_back(Staleness(status));
  return Fitting(parts, columns);
}

std::string EvaluationLine(const v1::JobStatus& status, int columns) {
  std::vector<std::string> parts;
  const std::string loss = absl::StrFormat("test loss %.4f", status.test_loss());
  if (status.has_accuracy()) parts = {absl::StrCat("test accuracy ", Percent(status.test_accuracy()))};
  parts.push_back(loss);
  parts.front().insert(0, absl::StrFormat("epoch %.2f: ", TestedEpoch(status)));
  parts.push_back(Seconds(status.tested_at_seconds()));
  parts.push_back(Rate(status));
  parts.push_back(Samples(status.tested_at_samples(), status));
  parts.push_back(Staleness(status));
  return Fitting(parts, columns);
}

}  // namespace catchment
