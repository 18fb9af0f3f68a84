// Runs of a server that is not the master.
#ifndef CATCHMENT_SERVER_PROCESS_SERVER_RUN_H_
#define CATCHMENT_SERVER_PROCESS_SERVER_RUN_H_

#include "absl/status/statusor.h"
#include "common/job/parameter_layout.h"
#include "server/process/server_config.h"
#include "server/process/server_edge.h"

namespace catchment {

// Serves one run. Returns true if the server must begin again, with the new contents of `config`.
absl::StatusOr<bool> RunServer(const ParameterLayout& layout, ServerConfig* config, ServerEdge* edge);

// Tells the master why this server ends.
void ReportFailure(const ServerConfig& config, const absl::Status& why);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_PROCESS_SERVER_RUN_H_
