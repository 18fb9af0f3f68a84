// Decides what a server's process begins with: the initial weights, a checkpoint, the state that its standby
// keeps, or the news that the job has ended.
#ifndef CATCHMENT_SERVER_PROCESS_FIRST_START_H_
#define CATCHMENT_SERVER_PROCESS_FIRST_START_H_

#include "absl/status/status.h"
#include "server/process/server_config.h"

namespace catchment {

// Finds what the server begins with. The master decides for all servers: it asks those that begin with
// another checkpoint to begin again.
absl::Status FindStart(ServerConfig* config);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_PROCESS_FIRST_START_H_
