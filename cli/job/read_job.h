// Reads the job of a command line: from a file, from what a program says of its model, and from overrides.
#ifndef CATCHMENT_CLI_JOB_READ_JOB_H_
#define CATCHMENT_CLI_JOB_READ_JOB_H_

#include <optional>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/base/process.h"
#include "cli/base/temporary_directory.h"
#include "common/program/command_line.h"
#include "proto/job.pb.h"

namespace catchment {

// Declares --set.
void AddSetFlag(std::vector<std::string>* set, FlagSet* flags);

// Prints why the job of the file at `path` is not valid, or cannot be read; `path` is empty for one that a
// program described. Returns kExitFailed.
int PrintInvalid(const std::string& path, const absl::Status& status, std::ostream* err);

// Reads a job file, applies the overrides `set`, "path=value" (common/job/text_format.h), and fills in all
// defaults. `workers`, if not 0, is the job's number of workers unless an override sets it. Errors: those of
// the file, of the overrides, and of the job, each on one line.
absl::StatusOr<v1::Job> LoadCompleteJob(const std::string& path, std::vector<std::string> set, int workers);

// Does the same with a job that has been read.
absl::StatusOr<v1::Job> CompleteJob(v1::Job job, std::vector<std::string> set, int workers);

// The description that a program gives of its model and data (python/catchment/_description.py). Its files
// are in a temporary directory until this object is destroyed.
class ProgramDescription {
 public:
  // Runs `command` with /bin/sh until it has written its description, which it does instead of joining a job.
  // Errors: Aborted after a signal; Internal, with the last lines of its output, if it ends without a
  // description. `signals` may be null.
  static absl::StatusOr<ProgramDescription> Ask(const std::string& command, SignalWaiter* signals);

  // Returns a job with model.external, model.initial_weights and data.external.
  const v1::Job& part() const { return part_; }

  // Copies the weights to `path` and sets the initial weights of `job` to that file, unless it has others.
  // Errors: those of writing the file.
  absl::Status KeepWeights(const std::string& path, v1::Job* job) const;
  absl::Status CopyWeights(const std::string& path) const;

 private:
  explicit ProgramDescription(TemporaryDirectory directory) : directory_(std::move(directory)) {}
  absl::Status Run(const std::string& command, SignalWaiter* signals) const;
  absl::Status Read(const std::string& command);

  TemporaryDirectory directory_;
  v1::Job part_;
};

// Returns the job of the file at `path`, completed with the description of `program`, which is kept in
// *description. Does not run the program if the file has model.external. Either may be empty, but not both.
// Errors: InvalidArgument if there is a program and the file has another model or data; those of LoadJob and
// of Ask.
absl::StatusOr<v1::Job> ReadJob(const std::string& path, const std::string& program, SignalWaiter* signals,
                                std::optional<ProgramDescription>* description);

}  // namespace catchment

#endif  // CATCHMENT_CLI_JOB_READ_JOB_H_
