// The outcome of a command in a test: its exit code and its output.
#ifndef CATCHMENT_TESTS_CLI_COMMAND_OUTCOME_H_
#define CATCHMENT_TESTS_CLI_COMMAND_OUTCOME_H_

#include <sstream>
#include <string>
#include <vector>

#include "cli/base/terminal.h"

namespace catchment {

struct CommandOutcome {
  int code = 0;
  std::string out;
  std::string err;
};

inline CommandOutcome RunToOutcome(int (*command)(const std::vector<std::string>& args,
                                                  const Streams& streams),
                                   const std::vector<std::string>& args) {
  std::ostringstream out, err;
  const int code = command(args, {&out, &err});
  return {code, out.str(), err.str()};
}

}  // namespace catchment

#endif  // CATCHMENT_TESTS_CLI_COMMAND_OUTCOME_H_
