// Shows the progress of a running job.
#ifndef CATCHMENT_CLI_LIVE_PROGRESS_H_
#define CATCHMENT_CLI_LIVE_PROGRESS_H_

#include <ostream>
#include <string>
#include <utility>

#include "cli/base/terminal.h"
#include "common/measures/progress_lines.h"
#include "proto/master.pb.h"

namespace catchment {

// Receives the progress of a job while it runs.
class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void Update(const v1::JobStatus& status) = 0;
  // Receives a message of one or more lines.
  virtual void Note(const std::string& text) = 0;
  // Removes the display of the progress: the job has ended.
  virtual void Clear() = 0;
};

// Writes notes and evaluations to a stream, and on a terminal the progress below them, with a bar, redrawn in
// place.
class ProgressPrinter : public TrainObserver {
 public:
  // `size` returns that of the terminal.
  ProgressPrinter(std::ostream* out, Streams::Size size) : out_(*out), line_(out, std::move(size)) {}

  void Update(const v1::JobStatus& status) override;
  void Note(const std::string& text) override { line_.Write(text); }
  void Clear() override { line_.Clear(); }
  // Writes a warning, which stays.
  void Warn(const std::string& text);

 private:
  std::ostream& out_;
  StatusLine line_;
  double last_accuracy_ = -1;
  double last_loss_ = -1;
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_LIVE_PROGRESS_H_
