// A program's own description of its model (python/catchment/_description.py): what a job file need not say.
#ifndef CATCHMENT_CLI_PROGRAM_DESCRIPTION_H_
#define CATCHMENT_CLI_PROGRAM_DESCRIPTION_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/process.h"
#include "proto/job.pb.h"

namespace catchment {

// A program was asked; its files lie in a temporary directory until the description ends.
class ProgramDescription {
 public:
  // Runs `command` with /bin/sh until it has described itself, which it does in place of joining a job.
  // Aborted when a signal to end comes; Internal where it ends without a description, with the last lines
  // that it printed. `signals` may be null.
  static absl::StatusOr<ProgramDescription> Ask(const std::string& command, SignalWaiter* signals);

  ProgramDescription(ProgramDescription&& other) noexcept;
  ProgramDescription& operator=(ProgramDescription&& other) = delete;
  ~ProgramDescription();

  // model.external, model.initial_weights and data.external.
  const v1::Job& part() const { return part_; }

  // Copies the weights to `path` and has `job` name them, unless it names others. Errors: those of writing
  // the file.
  absl::Status KeepWeights(const std::string& path, v1::Job* job) const;
  absl::Status CopyWeights(const std::string& path) const;

 private:
  explicit ProgramDescription(std::string directory) : directory_(std::move(directory)) {}
  absl::Status Run(const std::string& command, SignalWaiter* signals) const;
  absl::Status Read(const std::string& command);

  std::string directory_;  // empty: moved from
  v1::Job part_;
};

// Returns the job as the file at `path` has it, with what the program says of it, which *description then
// keeps; a job with model.external says that itself, and the program is not asked. `path` may be empty where
// there is a program, and `program` where there is none. Errors: InvalidArgument for a file with a model or
// data of its own beside a program; those of LoadJob and of Ask.
absl::StatusOr<v1::Job> ReadJob(const std::string& path, const std::string& program, SignalWaiter* signals,
                                std::optional<ProgramDescription>* description);

}  // namespace catchment

#endif  // CATCHMENT_CLI_PROGRAM_DESCRIPTION_H_
