// Writes the files of a job that depend on all servers: manifests of checkpoints, and at the end the weights
// and the summary.
#ifndef CATCHMENT_SERVER_HOST_FINAL_OUTPUTS_H_
#define CATCHMENT_SERVER_HOST_FINAL_OUTPUTS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/job/parameter_layout.h"
#include "common/net/rpc.h"
#include "server/control/effects.h"
#include "server/control/master.h"
#include "server/control/run_options.h"
#include "server/outputs/outputs.h"
#include "server/shard/shard.h"

namespace catchment {

// The places of a run's files and servers.
struct OutputSources {
  std::string checkpoint_dir;
  std::shared_ptr<grpc::ChannelCredentials> credentials;
  const Shard* local = nullptr;  // the shard in this process; null: all are read from their servers
};

// Writes the weights block by block, as they are read from the shards; from the last checkpoint if a server
// cannot be read. The weights must be final. Logs errors, and returns the first.
absl::Status WriteFinalOutputs(const RunOptions& run, const OutputSources& sources,
                               const ParameterLayout& layout, const FinalOutputs& ended, Outputs* outputs);

// Checks that the shards' files can be read, and then writes the manifest, so that a recorded checkpoint can
// always be resumed from. Deletes checkpoints that the job need not keep. `directory` may be empty: there is
// nothing to write.
absl::Status RecordCheckpoint(const std::string& directory, const RunOptions& run,
                              const ParameterLayout& layout, const CompleteCheckpoint& checkpoint);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_HOST_FINAL_OUTPUTS_H_
