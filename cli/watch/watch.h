// `catchment watch MASTER`: serves a page that shows a running job, until the user ends it.
#ifndef CATCHMENT_CLI_WATCH_WATCH_H_
#define CATCHMENT_CLI_WATCH_WATCH_H_

#include <string>
#include <vector>

#include "cli/base/terminal.h"

namespace catchment {

// Runs the command line. Returns the exit code: 0: the user ended it; 1: it cannot listen; 2: wrong command
// line; 3: no master could be reached.
int RunWatch(const std::vector<std::string>& args, const Streams& streams);

}  // namespace catchment

#endif  // CATCHMENT_CLI_WATCH_WATCH_H_
