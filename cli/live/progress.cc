#include "cli/live/progress.h"

#include <algorithm>
#include <optional>

namespace catchment {
namespace {

constexpr int kLongestBar = 30;

}  // namespace

void ProgressPrinter::Update(const v1::JobStatus& status) {
  const int columns = line_.columns();
  // The status does not number evaluations; one with the same result as the last needs no new line.
  const bool scored = status.test_samples() > 0 &&
                      (status.test_accuracy() != last_accuracy_ || status.test_loss() != last_loss_);
  if (scored) {
    last_accuracy_ = status.test_accuracy();
    last_loss_ = status.test_loss();
    Note(EvaluationLine(status, columns));
  }
  const std::optional<double> share = ShareDone(status);
  if (columns == 0 || status.phase() != v1::JobStatus::TRAINING || !share.has_value())
    return line_.Draw(ProgressLine(status, columns));
  const int shortest = columns / 8;
  const std::string text = ProgressLine(status, std::max(1, columns - shortest - 1));
  const int left = columns - ShownColumns(text) - 1;
  line_.Draw(" " + text, Bar(*share, std::clamp(left, 0, kLongestBar)));
}

void ProgressPrinter::Warn(const std::string& text) {
  line_.Clear();
  out_ << Coloured{Colour::kYellow, text} << std::endl;
}

}  // namespace catchment
