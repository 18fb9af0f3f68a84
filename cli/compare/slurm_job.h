// Writes sbatch's command lines and parses the output of Slurm's commands. cli/compare/slurm_launcher.h
// executes them.
//
// Threads: pure functions.
#ifndef CATCHMENT_CLI_COMPARE_SLURM_JOB_H_
#define CATCHMENT_CLI_COMPARE_SLURM_JOB_H_

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/compare/compare.h"
#include "cli/compare/compare_plan.h"

namespace catchment {

// Returns an error that names the flag of a comparison that runs on Slurm do not support, or the number of
// workers for which there is no layout.
absl::Status CheckForSlurm(const CompareOptions& options);

// The nodes of a run. Each worker has a task, and with GPUs one of them.
struct SlurmLayout {
  int nodes = 1;
  int gpus_per_node = 0;  // as many as workers on a node; 0: none
};

// Without GPUs: --nodes nodes, or one for each worker if that is fewer. With GPUs: the fewest nodes that the
// workers can be divided equally between, with at most --gpus_per_node on each. InvalidArgument if there is
// none.
absl::StatusOr<SlurmLayout> LayOut(const SlurmOptions& options, int workers);

// The files that submit a run, with their paths.
struct SlurmPrograms {
  std::string sbatch;
  std::string squeue;
  std::string scancel;
  std::string script;  // deploy/slurm/catchment.sbatch
};

// Returns the command that submits a run with the job `directory`/job.textproto. `directory` is absolute. A
// job whose node is lost is not put into the queue again by Slurm: without a checkpoint it starts again, in
// an empty directory.
std::vector<std::string> SbatchCommand(const SlurmPrograms& programs, const CompareOptions& options,
                                       const SlurmLayout& layout, const PlannedRun& run,
                                       const std::string& directory);

// Returns the command that lists the user's jobs, as ParseQueue reads them.
std::vector<std::string> SqueueCommand(const SlurmPrograms& programs);

// Files within a run's directory. PrepareRun deletes them.
inline constexpr char kSbatchLog[] = "/logs/sbatch.log";  // what sbatch printed: the job's number
inline constexpr char kBatchLog[] = "/logs/slurm.log";    // of the batch script

// Returns the job's number in the output of sbatch; empty if there is none.
std::string ParseJobId(const std::string& output);

using SlurmQueue = std::map<std::string, std::string>;  // the state by the number of a job: "12" -> "RUNNING"
SlurmQueue ParseQueue(const std::string& output);

enum class SlurmPhase {
  kActive,  // it waits, runs, or is about to end
  kEnded,   // by itself, by its limits, or by its user
  kLost,    // by no fault of its own, or Slurm does not know it any more
};
// `state` is that of squeue; empty for a job that it does not list.
SlurmPhase PhaseOf(const std::string& state);

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_SLURM_JOB_H_
