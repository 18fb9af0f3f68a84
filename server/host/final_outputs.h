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

namespace catchment {

// The places of a run's files and servers.
struct OutputSources {
  std::string checkpoint_dir;
  std::shared_ptr<grpc::ChannelCredentials> credentials;
};

// Reads the weights from the servers or, if one cannot be read, from the last checkpoint. Logs errors, and
// returns the first.
absl::Status WriteFinalOutputs(const RunOptions& run, const OutputSources& sources,
                               const ParameterLayout& layout, const FinalOutputs& ended, Outputs* outputs);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_HOST_FINAL_OUTPUTS_H_
