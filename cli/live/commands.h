// The subcommands that query or stop a running job. Each runs one command line with RunCommandLine and
// returns its exit code.
#ifndef CATCHMENT_CLI_LIVE_COMMANDS_H_
#define CATCHMENT_CLI_LIVE_COMMANDS_H_

#include <string>
#include <vector>

#include "cli/base/terminal.h"

namespace catchment {

// `catchment stop MASTER`: stops a running job and waits for its end. Exit code 0: it has ended; 1: it has
// failed, or refuses; 3: no master could be reached; 128 + N: signal N ended the command.
int RunStop(const std::vector<std::string>& args, const Streams& streams);

// `catchment trace DIR`: joins the files that daemons with --trace=DIR wrote into DIR/trace.json
// (common/trace/trace_file.h). Exit code 0: joined; 1: there are none, or one is not a trace.
int RunTrace(const std::vector<std::string>& args, const Streams& streams);

// `catchment health HOST:PORT`: queries the gRPC health service of a server, for probes that run a command.
// Exit code 0: it serves; 1: it does not, or cannot be reached.
int RunHealth(const std::vector<std::string>& args, const Streams& streams);

// `catchment status MASTER`: shows the state of a running job, once or repeatedly, as text or JSON, with
// warnings about what delays it. Exit code 0: the job has not failed; 1: it has; 3: no master could be
// reached; 128 + N: signal N ended --watch.
int RunStatus(const std::vector<std::string>& args, const Streams& streams);

}  // namespace catchment

#endif  // CATCHMENT_CLI_LIVE_COMMANDS_H_
