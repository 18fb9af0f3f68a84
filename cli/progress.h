// What `catchment train` says while a job runs.
#ifndef CATCHMENT_CLI_PROGRESS_H_
#define CATCHMENT_CLI_PROGRESS_H_

#include <ostream>
#include <string>

#include "proto/master.pb.h"

namespace catchment {

// One line: epoch, time left, samples, rate, loss, accuracies, staleness, what matters most first, since a
// narrow terminal cuts it; what it waits for while it does not train.
std::string ProgressLine(const v1::JobStatus& status);

// One line for a new score of the test set.
std::string EvaluationLine(const v1::JobStatus& status);

// Cut to `columns`, with an ellipsis; 0: not cut.
std::string FitLine(const std::string& line, int columns);

// Receives the progress of a job while it runs.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void Update(const v1::JobStatus& status) = 0;
  // A line, or several, that stay.
  virtual void Note(const std::string& text) = 0;
  // The job is over; what is to stay is written next.
  virtual void Clear() = 0;
};

// Writes to one stream. On a terminal the last line is the progress, redrawn in place; elsewhere only notes
// and evaluations are written.
class ProgressPrinter : public TrainObserver {
 public:
  // `columns` is the terminal's width; 0: not a terminal.
  ProgressPrinter(std::ostream* out, int columns) : out_(out), columns_(columns) {}

  void Update(const v1::JobStatus& status) override;
  void Note(const std::string& text) override;
  // Takes the progress line away.
  void Clear() override;

 private:
  std::ostream* const out_;
  const int columns_;
  bool drawn_ = false;
  double last_accuracy_ = -1;
  double last_loss_ = -1;
};

// The terminal's columns behind the file descriptor; 0 when it is none.
int TerminalColumns(int fd);

}  // namespace catchment

#endif  // CATCHMENT_CLI_PROGRESS_H_
