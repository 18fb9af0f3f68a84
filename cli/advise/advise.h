// `catchment advise JOB|RUN_DIR|HOST:PORT`: says how many workers and servers suit a job, which momentum, and which
// presets are worth comparing (recommendations.h), with the numbers that this rests on.
#ifndef CATCHMENT_CLI_ADVISE_ADVISE_H_
#define CATCHMENT_CLI_ADVISE_ADVISE_H_

#include <string>
#include <vector>

#include "cli/terminal.h"

namespace catchment {

// Runs a command line. Returns the exit code, which --help explains.
int RunAdviseCommand(const std::vector<std::string>& args, const Streams& streams);

}  // namespace catchment

#endif  // CATCHMENT_CLI_ADVISE_ADVISE_H_
