#include "cli/live/progress.h"

namespace catchment {

void ProgressPrinter::Update(const v1::JobStatus& status) {
  // The status does not number evaluations; one with the same result as the last needs no new line.
  const bool scored = status.test_samples() > 0 &&
                      (status.test_accuracy() != last_accuracy_ || status.test_loss() != last_loss_);
  if (scored) {
    last_accuracy_ = status.test_accuracy();
    last_loss_ = status.test_loss();
    Note(EvaluationLine(status));
  }
  line_.Draw(ProgressLine(status));
}

}  // namespace catchment
