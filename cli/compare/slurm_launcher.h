// Runs as jobs of Slurm, each of which executes deploy/slurm/catchment.sbatch in the run's directory, which
// all nodes must see.
//
// All runs are submitted at once, and those that follow one when it has ended. If Slurm refuses one while
// others have not ended, it is submitted again after the next one has. A run's directory has the number of
// its job (kSbatchLog), so that a later command waits for a job that has not ended instead of submitting
// another. A job that is lost (a node failed, it was preempted, Slurm has forgotten it) is submitted again. A
// signal ends the command and leaves the jobs.
//
// Threads: an object is used by one thread.
#ifndef CATCHMENT_CLI_COMPARE_SLURM_LAUNCHER_H_
#define CATCHMENT_CLI_COMPARE_SLURM_LAUNCHER_H_

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/base/process.h"
#include "cli/compare/launcher.h"
#include "cli/compare/slurm_job.h"
#include "common/base/clock.h"

namespace catchment {

// Units: seconds.
struct SlurmBounds {
  double poll = 5;       // between two requests for the queue
  double silence = 600;  // without an answer to them
  // The time until the files of a job that has ended are seen here: networked file systems cache directories.
  double visible = 60;
};

class SlurmLauncher : public Launcher {
 public:
  // Finds Slurm's commands in $PATH, and the batch script in the bundle of this program. NotFound names what
  // is missing.
  static absl::StatusOr<std::unique_ptr<Launcher>> Create(const CompareOptions& options,
                                                          SignalWaiter* signals);

  // Owns neither the options nor the signals.
  SlurmLauncher(const CompareOptions& options, SlurmPrograms programs, const SlurmBounds& bounds,
                SignalWaiter* signals)
      : options_(options), programs_(std::move(programs)), bounds_(bounds), signals_(signals) {}

  absl::Status Launch(std::vector<PlannedRun> runs, const FollowingRuns& following,
                      const CompareDirectory& directory, CompareProgress* progress, int* signal) override;
  bool concurrent() const override { return true; }

 private:
  // A run that has not ended.
  struct OpenRun {
    PlannedRun run;
    std::string path;      // absolute
    std::string job;       // its number; empty: it is to be submitted
    int submissions = 0;   // by this command
    double ended_at = -1;  // when its job was first seen to have ended; -1: not yet
    std::string refusal;   // why it could not be submitted
  };

  // Opens a run. Waits for the job that an earlier command has submitted, if it has not ended.
  absl::Status Open(PlannedRun run, const CompareDirectory& directory);
  // Submits all runs without a job. If no run has one then, all have failed.
  absl::Status SubmitAll(const CompareDirectory& directory);
  absl::Status Submit(const CompareDirectory& directory, OpenRun* open) const;

  // Returns the queue after a pause. Errors: Aborted after a signal; Unavailable.
  absl::StatusOr<SlurmQueue> AwaitQueue(const CompareDirectory& directory, int* signal) const;

  // Ends the runs that have ended. Runs whose jobs were lost have none then. FailedPrecondition, after
  // cancelling all jobs, if the nodes do not see the directory.
  absl::Status Update(const CompareDirectory& directory);
  // Returns true if the run has ended, with its result in *result.
  absl::StatusOr<bool> HasEnded(const std::string& state, OpenRun* open, std::string* result) const;
  // Reports runs with their results, and opens those that follow.
  absl::Status EndAll(const std::vector<std::pair<OpenRun, std::string>>& ended,
                      const CompareDirectory& directory);
  void CancelAll() const;
  // Returns the numbers of the jobs: "12 13".
  std::string Jobs() const;

  const CompareOptions& options_;
  const SlurmPrograms programs_;
  const SlurmBounds bounds_;
  SignalWaiter* const signals_;
  const SteadyClock clock_;

  CompareProgress* progress_ = nullptr;
  const FollowingRuns* following_ = nullptr;
  SlurmQueue queue_;  // as it was last
  std::vector<OpenRun> open_;
  bool submit_ = true;  // a job has ended since the last submission
};

// FailedPrecondition if Slurm jobs of a comparison in the directory `out`, which is to be deleted, have not
// ended.
absl::Status CheckNoJobs(const std::string& out);

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_SLURM_LAUNCHER_H_
