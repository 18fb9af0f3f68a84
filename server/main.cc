// catchment_server: holds one shard of a job's weights. The server with --index=0 is also the job's master. A
// gradient passes through edge/train_stream.h, shard/shard.h, shard/gate.h, a rule in rules/, and optim/;
// calls of the master pass through edge/master_service.h, host/master_host.h and control/master.h.
#include <glog/logging.h>

#include "absl/status/statusor.h"
#include "common/base/status_macros.h"
#include "common/program/daemon.h"
#include "server/process/runs.h"
#include "server/process/server_config.h"
#include "server/process/server_edge.h"
#include "server/process/server_flags.h"

namespace catchment {
namespace {

// Serves one run of the job after another.
absl::Status Serve(const ParameterLayout& layout, ServerConfig* config, ServerEdge* edge) {
  while (true) {
    ASSIGN_OR_RETURN(const bool again,
                     config->index == 0 ? RunMaster(layout, config, edge) : RunServer(layout, config, edge));
    if (!again) return absl::OkStatus();
  }
}

absl::StatusOr<DaemonEnd> Main(const ServerFlags& flags, MetricsEndpoint* metrics) {
  ASSIGN_OR_RETURN(ServerConfig config, ReadConfig(flags));
  config.metrics = metrics;
  RETURN_IF_ERROR(FindStart(&config));
  RETURN_IF_ERROR(PrepareCheckpointDirectory(config));
  ASSIGN_OR_RETURN(const ParameterLayout layout, MakeLayout(config));
  LOG_IF(WARNING, IsInsecure(config)) << kInsecureWarning;
  if (!config.ended) {
    ServerEdge edge;
    RETURN_IF_ERROR(edge.Open(layout, &config));
    const absl::Status status = Serve(layout, &config, &edge);
    if (!status.ok()) {
      ReportFailure(config, status);
      return status;
    }
  }
  if (config.ended) return TellEnd(layout, &config);
  return DaemonEnd{config.end};
}

}  // namespace
}  // namespace catchment

int main(int argc, char** argv) {
  catchment::ServerFlags flags;
  catchment::CommandLine line = catchment::MakeCommandLine(&flags);
  catchment::RunDaemon(argc, argv, &line, [&flags](catchment::MetricsEndpoint* metrics) {
    return catchment::Main(flags, metrics);
  });
}
