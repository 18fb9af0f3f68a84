// `catchment advise JOB|RUN_DIR|HOST:PORT`: says which preset, momentum and learning rate to take with a
// number of workers, and how many servers, by simulating them all (trials.h), with the numbers that this
// rests on.
#ifndef CATCHMENT_CLI_ADVISE_ADVISE_H_
#define CATCHMENT_CLI_ADVISE_ADVISE_H_

#include <string>
#include <vector>

#include "cli/base/terminal.h"

namespace catchment {

// Runs a command line. Returns the exit code, which --help explains.
int RunAdviseCommand(const std::vector<std::string>& args, const Streams& streams);

}  // namespace catchment

#endif  // CATCHMENT_CLI_ADVISE_ADVISE_H_
