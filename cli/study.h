// The commands that look at many runs or at a page of one, which are Python's (python/catchment/study).
#ifndef CATCHMENT_CLI_STUDY_H_
#define CATCHMENT_CLI_STUDY_H_

#include <string>
#include <vector>

#include "cli/base/terminal.h"
#include "cli/command_tables.h"

namespace catchment {

// Replaces this process by Python's with the command: $CATCHMENT_PYTHON, or python3. The package is beside
// this program. Returns the exit code if that is not possible, after printing the reason.
int RunStudy(const std::string& command, const std::vector<std::string>& args, const Streams& streams);

// Returns the command lines of all these commands; none if Python cannot be started.
Commands DescribeStudy();

}  // namespace catchment

#endif  // CATCHMENT_CLI_STUDY_H_
