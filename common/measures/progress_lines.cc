#include "common/measures/progress_lines.h"

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
  return absl::StrCat(" | ", Count(static_cast<int64_t>(status.samples_per_second())), "/s");
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

}  // namespace

std::string DescribePhase(const v1::JobStatus& status) {
  std::string phase = v1::JobStatus::Phase_Name(status.phase());
  absl::AsciiStrToLower(&phase);
  return status.reason().empty() ? phase : absl::StrCat(phase, ": ", status.reason());
}

std::string ProgressLine(const v1::JobStatus& status) {
  if (status.phase() != v1::JobStatus::TRAINING) return PhaseLine(status);
  std::string line = absl::StrFormat("epoch %.2f", status.epochs());
  if (status.samples_per_second() > 0) absl::StrAppend(&line, " | ", Seconds(status.seconds_left()), " left");
  absl::StrAppend(&line, " | ", Samples(status.samples(), status), Rate(status));
  absl::StrAppendFormat(&line, " | loss %.4f", status.train_loss());
  if (status.has_accuracy()) absl::StrAppend(&line, ", train ", Percent(status.train_accuracy()));
  if (status.test_samples() > 0) absl::StrAppend(&line, ", test ", TestScore(status));
  return absl::StrCat(line, " | ", Staleness(status));
}

std::string EvaluationLine(const v1::JobStatus& status) {
  const std::string accuracy =
      status.has_accuracy() ? absl::StrCat("test accuracy ", Percent(status.test_accuracy()), ", ") : "";
  return absl::StrFormat("epoch %.2f: %stest loss %.4f | %s%s | %s | %s", TestedEpoch(status), accuracy,
                         status.test_loss(), Samples(status.tested_at_samples(), status), Rate(status),
                         Staleness(status), Seconds(status.tested_at_seconds()));
}

}  // namespace catchment
