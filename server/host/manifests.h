// Writes the manifests of checkpoints that all servers have saved.
#ifndef CATCHMENT_SERVER_HOST_MANIFESTS_H_
#define CATCHMENT_SERVER_HOST_MANIFESTS_H_

#include <string>

#include "absl/status/status.h"
#include "common/job/parameter_layout.h"
#include "server/control/master.h"
#include "server/control/run_options.h"

namespace catchment {

// Checks that the shards' files can be read, and then writes the manifest, so that a recorded checkpoint can
// always be resumed from. Deletes checkpoints that the job need not keep. `directory` may be empty: there is
// nothing to write.
absl::Status RecordCheckpoint(const std::string& directory, const RunOptions& run,
                              const ParameterLayout& layout, const CompleteCheckpoint& checkpoint);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_HOST_MANIFESTS_H_
