// `catchment status MASTER`: shows how a running job goes, once or again and again, for people or as JSON,
// and warns of what holds it up. Read on in cli/status_text.h, cli/status_json.h and cli/advice.h.
#ifndef CATCHMENT_CLI_STATUS_H_
#define CATCHMENT_CLI_STATUS_H_

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "cli/screen.h"

namespace catchment {

struct StatusStreams {
  std::ostream* out;
  std::ostream* err;
  // Of the terminal that `out` is; by default it is none.
  std::function<ScreenSize()> size = [] { return ScreenSize(); };
};

// Returns the exit code: 0 for a job that has not failed, 1 for one that has, 2 for a wrong command line, 3
// where no master could be asked, 128 + N when signal N ended --watch.
int RunStatus(const std::vector<std::string>& args, const StatusStreams& streams);

// With this process's standard streams.
int StatusMain(const std::vector<std::string>& args);

}  // namespace catchment

#endif  // CATCHMENT_CLI_STATUS_H_
