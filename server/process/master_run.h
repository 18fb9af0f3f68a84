// Runs of the server with index 0, which is also the master.
#ifndef CATCHMENT_SERVER_PROCESS_MASTER_RUN_H_
#define CATCHMENT_SERVER_PROCESS_MASTER_RUN_H_

#include "absl/status/statusor.h"
#include "common/job/parameter_layout.h"
#include "common/program/daemon.h"
#include "proto/checkpoint.pb.h"
#include "server/process/server_config.h"
#include "server/process/server_edge.h"

namespace catchment {

// Serves one run. Returns true if the job goes back: config->start is then the start of the next run.
absl::StatusOr<bool> RunMaster(const ParameterLayout& layout, ServerConfig* config, ServerEdge* edge);

// Tells members that still ask for the job of config->ended how it has ended, in the place of a master that
// was lost, or has ended its run, too early for them.
absl::StatusOr<DaemonEnd> TellEnd(const ParameterLayout& layout, ServerConfig* config);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_PROCESS_MASTER_RUN_H_
