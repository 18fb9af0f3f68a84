// `catchment health HOST:PORT`: asks a server's gRPC health service, for probes that run a command.
#ifndef CATCHMENT_CLI_HEALTH_H_
#define CATCHMENT_CLI_HEALTH_H_

#include <ostream>
#include <string>
#include <vector>

namespace catchment {

// Returns the exit code: 0 where it serves, 1 where it does not or cannot be asked, 2 for a wrong command
// line. The answer goes to `out`, errors go to `err`.
int RunHealth(const std::vector<std::string>& args, std::ostream* out, std::ostream* err);

}  // namespace catchment

#endif  // CATCHMENT_CLI_HEALTH_H_
