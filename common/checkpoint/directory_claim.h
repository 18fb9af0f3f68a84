// The names in a directory that belong to Catchment: it writes and deletes only what has such a name.
//
// A name is claimed before anything is written under it, and only if there is nothing yet, or an empty
// directory. DIRECTORY/catchment.claim records the names, one on each line, so that later runs know what
// earlier ones wrote and never mistake a user's logs/ or metrics.jsonl for it.
//
// The caller holds the lock of the directory (common/base/directory_lock.h).
// Errors: FailedPrecondition names the file that is not Catchment's, and the remedy; those of files.
#ifndef CATCHMENT_COMMON_CHECKPOINT_DIRECTORY_CLAIM_H_
#define CATCHMENT_COMMON_CHECKPOINT_DIRECTORY_CLAIM_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace catchment {

using Names = std::vector<std::string>;

// The origin of files that have the names, and that no record claims.
enum class Unclaimed {
  kForeign,  // they are not Catchment's, and are refused
  kOurs,     // an earlier version wrote them, as the caller has verified
};

// Returns the names that the record claims; none if there is no record. FailedPrecondition if the file is
// not a record.
absl::StatusOr<std::set<std::string>> ClaimedNames(const std::string& directory);

// Returns an error if a name cannot be claimed. Changes nothing, so a command can call it before all others.
absl::Status CheckClaim(const std::string& directory, const Names& names,
                        Unclaimed unclaimed = Unclaimed::kForeign);

// Claims the names; creates the directory if necessary. On an error nothing has changed.
absl::Status ClaimNames(const std::string& directory, const Names& names,
                        Unclaimed unclaimed = Unclaimed::kForeign);

// Returns the names that a master writes in its --out, with `checkpoints`.
const Names& MasterNames();

// Returns kOurs if the record of a job (run_record.h), or a complete checkpoint, is in the directory for
// checkpoints.
Unclaimed ProvenByRun(const std::string& checkpoint_directory);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CHECKPOINT_DIRECTORY_CLAIM_H_
