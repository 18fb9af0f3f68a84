// The directory of one run (--out), and what may start there.
//
//   job.textproto           the job with all defaults filled in
//   program.txt             the command of --program
//   logs/                   one log file for each process
//   metrics.jsonl           measurements over time (by the master)
//   tensorboard/            the same for TensorBoard (by the master)
//   checkpoints/            (by the servers)
//   initial.safetensors     the initial weights, if a program described its model
//   model.safetensors       the trained weights (by the master, at the end)
//   model-best.safetensors  those of the best evaluation so far (by the master, with evaluation.keep_best)
//   summary.json            the result (by the master, at the end)
//   command.lock            held by the command that uses the directory
//   master.lock             held by the master
//   master.address          its address while it runs, with its run in master.run
//   catchment.claim         these names, which belong to Catchment (common/checkpoint/directory_claim.h)
#ifndef CATCHMENT_CLI_BASE_RUN_DIRECTORY_H_
#define CATCHMENT_CLI_BASE_RUN_DIRECTORY_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/directory_lock.h"
#include "common/base/file_access.h"
#include "common/checkpoint/directory_claim.h"
#include "nlohmann/json.hpp"
#include "proto/job.pb.h"

namespace catchment {

// A directory that no other command uses while this object exists, or the process that made it.
class LockedDirectory {
 public:
  // Claims `names` in the directory, which is created if it does not exist, and changes nothing else.
  // FailedPrecondition if `command` ("catchment train") uses it in another process, whose host and pid it
  // names; the errors of ClaimNames.
  static absl::StatusOr<LockedDirectory> Open(const std::string& path, const std::string& command,
                                              const Names& names, Unclaimed unclaimed);

  const std::string& path() const { return path_; }

 private:
  LockedDirectory(std::string path, DirectoryLock lock) : path_(std::move(path)), lock_(std::move(lock)) {}

  std::string path_;
  DirectoryLock lock_;
};

enum class StartMode {
  kFresh,      // refuses a directory with a result or checkpoints
  kResume,     // continues from the checkpoints
  kOverwrite,  // deletes the files of an earlier run first
};

// Returns true if there is a complete checkpoint in the directory of a run.
bool HasCheckpoint(const std::string& run_directory);

// Returns an error if files that are not Catchment's are in the way of a run in the directory. Changes
// nothing. `unclaimed`: the origin of files without a record.
absl::Status CheckRunDirectory(const std::string& path, Unclaimed unclaimed = Unclaimed::kForeign);

// Claims what the script of a batch system has in the directory before its master claims the rest: `job`, the
// name of a file that the caller has written, and logs unless they exist. A job that ends before its master
// starts can then be started again. Errors: those of ClaimNames.
absl::Status ClaimForBatch(const std::string& directory, const std::string& job);

// Deletes the checkpoints of a run, and their directory if nothing else is in it.
absl::Status DeleteRunCheckpoints(const std::string& run_directory);

// Deletes the files of an earlier run in a directory that the caller has locked, except for its job. Errors:
// those of CheckRunDirectory; FailedPrecondition if one of the files is a link.
absl::Status DeleteRun(const std::string& run_directory);

class RunDirectory {
 public:
  // Creates the directory and the folder logs in it. FailedPrecondition names its contents and the remedy:
  // --resume, --overwrite or another --out; or that another command or a master is using it.
  static absl::StatusOr<RunDirectory> Open(const std::string& path, StartMode mode,
                                           Unclaimed unclaimed = Unclaimed::kForeign);

  const std::string& path() const { return directory_.path(); }
  std::string job() const { return path() + "/job.textproto"; }
  std::string program() const { return path() + "/program.txt"; }
  std::string logs() const { return path() + "/logs"; }
  std::string metrics() const { return path() + "/metrics.jsonl"; }
  std::string tensorboard() const { return path() + "/tensorboard"; }
  std::string checkpoints() const { return path() + "/checkpoints"; }
  std::string model() const { return path() + "/model.safetensors"; }
  std::string initial_weights() const { return path() + "/initial.safetensors"; }
  std::string best_model() const { return path() + "/model-best.safetensors"; }
  std::string summary() const { return path() + "/summary.json"; }
  bool HasCheckpoint() const { return catchment::HasCheckpoint(path()); }

  // Replaces the job, unless it is the same.
  absl::Status WriteJob(const v1::Job& complete) const;

 private:
  explicit RunDirectory(LockedDirectory directory) : directory_(std::move(directory)) {}
  absl::Status Prepare(StartMode mode) const;
  absl::Status RefuseLeftovers() const;

  LockedDirectory directory_;
};

// Returns the command of the program that a run in the directory was started with; empty: it had none.
std::string ReadProgram(const std::string& run_directory);

// Returns the content of a summary.json. Errors name the file: those of reading it; InvalidArgument if it is
// not a JSON object.
absl::StatusOr<nlohmann::json> ReadSummary(const std::string& file);

// Replaces the content of a file. Errors: those of OpenFile; Unavailable if it cannot be written.
absl::Status WriteFile(const std::string& path, const std::string& text,
                       FileNamedBy named_by = FileNamedBy::kDirectory);
// Deletes a file; no error if there is none.
absl::Status Delete(const std::string& path);

}  // namespace catchment

#endif  // CATCHMENT_CLI_BASE_RUN_DIRECTORY_H_
