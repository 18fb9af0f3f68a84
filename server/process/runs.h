// The runs of a server's process, by its start and by whether it is the master.
#ifndef CATCHMENT_SERVER_PROCESS_RUNS_H_
#define CATCHMENT_SERVER_PROCESS_RUNS_H_

#include "absl/status/status.h"
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

// Serves one run. Returns true if the server must begin again, with the new contents of `config`.
absl::StatusOr<bool> RunServer(const ParameterLayout& layout, ServerConfig* config, ServerEdge* edge);

// Tells the master why this server ends.
void ReportFailure(const ServerConfig& config, const absl::Status& why);

// Finds what the server begins with. The master decides for all servers: it asks those that begin with
// another checkpoint to begin again.
absl::Status FindStart(ServerConfig* config);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_PROCESS_RUNS_H_
