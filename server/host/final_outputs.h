// Writes the weights and the summary of a job that has ended.
#ifndef CATCHMENT_SERVER_HOST_FINAL_OUTPUTS_H_
#define CATCHMENT_SERVER_HOST_FINAL_OUTPUTS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "common/job/parameter_layout.h"
#include "common/net/rpc.h"
#include "server/control/effects.h"
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

}  // namespace catchment

#endif  // CATCHMENT_SERVER_HOST_FINAL_OUTPUTS_H_
