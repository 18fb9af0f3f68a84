// Decides what a run of a job begins with: what a person asks for, or, after a server or the master was lost,
// the newest complete checkpoint of the job.
#ifndef CATCHMENT_SERVER_HOST_RUN_START_H_
#define CATCHMENT_SERVER_HOST_RUN_START_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "server/control/job_history.h"

namespace catchment {

struct RunStart {
  std::optional<v1::Manifest> checkpoint;  // none: the initial weights
  v1::RunRecord record;                    // with the recoveries, including this one
  std::optional<RunLoss> loss;             // that the run recovers from

  uint64_t checkpoint_number() const { return checkpoint ? checkpoint->number() : 0; }
  // Returns the highest version of a shard at the beginning.
  uint64_t version() const;
};

// Returns what a master process begins with. If the record in `directory` says that the same job has not
// ended, the process takes the place of a master that was lost. Otherwise the job begins from its initial
// weights, or with `resume` from the newest complete checkpoint. `directory` may be empty: there are no
// checkpoints. Errors: FailedPrecondition if the directory has checkpoints and `resume` is false, or if the
// checkpoint is of a different job; those of FindLatest and of reading the record.
absl::StatusOr<RunStart> StartJob(const std::string& directory, const v1::Job& job, bool resume);

// Returns the record of the job's last run if it has not ended: the process takes the place of a master that
// was lost. Nothing if it has, or if there is none. Errors: those of reading the record.
absl::StatusOr<std::optional<v1::RunRecord>> UnfinishedRun(const std::string& directory, const v1::Job& job);

// Returns what the next run begins with after `loss`. `record`: of the run that was lost.
absl::StatusOr<RunStart> GoBack(const std::string& directory, const v1::Job& job, const v1::RunRecord& record,
                                const RunLoss& loss);

// Returns the record of a job that has ended. Nothing with any other record, and one of an earlier release.
// Errors: those of reading the record.
absl::StatusOr<std::optional<v1::RunRecord>> EndedRun(const std::string& directory, const v1::Job& job);

// Returns the same record, but only if the master was lost before all servers knew of the end.
absl::StatusOr<std::optional<v1::RunRecord>> UntoldEnd(const std::string& directory, const v1::Job& job);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_HOST_RUN_START_H_
