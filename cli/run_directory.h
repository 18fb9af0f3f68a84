// The directory of one run (--out): what is in it, and whether a run may start there.
//
//   job.textproto       the job with all defaults filled in
//   logs/               one log file per process
//   metrics.jsonl       measurements over time (by the master)
//   tensorboard/        the same for TensorBoard (by the master)
//   checkpoints/        (by the servers)
//   initial.safetensors the weights that training starts from, where a program described its model (by the
//   command) model.safetensors   the trained weights (by the master, at the end) model-best.safetensors those
//   of the best evaluation so far (by the master, with evaluation.keep_best) summary.json        the result
//   (by the master, at the end)
#ifndef CATCHMENT_CLI_RUN_DIRECTORY_H_
#define CATCHMENT_CLI_RUN_DIRECTORY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace catchment {

enum class StartMode {
  kFresh,      // refuses a directory that holds a result or checkpoints
  kResume,     // goes on from its checkpoints
  kOverwrite,  // deletes an earlier run's files first
};

// While it lives, no other command can use the directory.
class RunDirectory {
 public:
  // Makes the directory and the folder logs in it. FailedPrecondition says what is there and what to do:
  // --resume, --overwrite or another --out; also when another command is using it.
  static absl::StatusOr<RunDirectory> Open(const std::string& path, StartMode mode);

  RunDirectory(RunDirectory&& other) noexcept;
  RunDirectory& operator=(RunDirectory&& other) = delete;
  ~RunDirectory();

  const std::string& path() const { return path_; }
  std::string job() const { return path_ + "/job.textproto"; }
  std::string logs() const { return path_ + "/logs"; }
  std::string metrics() const { return path_ + "/metrics.jsonl"; }
  std::string tensorboard() const { return path_ + "/tensorboard"; }
  std::string checkpoints() const { return path_ + "/checkpoints"; }
  std::string model() const { return path_ + "/model.safetensors"; }
  std::string initial_weights() const { return path_ + "/initial.safetensors"; }
  std::string best_model() const { return path_ + "/model-best.safetensors"; }
  std::string summary() const { return path_ + "/summary.json"; }
  // One of a complete checkpoint, that is.
  bool HasCheckpoint() const;

 private:
  RunDirectory(std::string path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}
  absl::Status Prepare(StartMode mode) const;
  absl::Status RefuseLeftovers() const;

  std::string path_;
  int lock_fd_ = -1;
};

absl::Status WriteFile(const std::string& path, const std::string& text);

}  // namespace catchment

#endif  // CATCHMENT_CLI_RUN_DIRECTORY_H_
