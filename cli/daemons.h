// Where the daemons' programs are.
#ifndef CATCHMENT_CLI_DAEMONS_H_
#define CATCHMENT_CLI_DAEMONS_H_

#include <string>

#include "absl/status/statusor.h"

namespace catchment {

struct DaemonPaths {
  std::string server;
  std::string worker;
};

// Beside the command (an installation), or in ../server and ../worker (Bazel's output). `directory` is the
// command's own. NotFound names every place looked at.
absl::StatusOr<DaemonPaths> FindDaemons(const std::string& directory);

// The directory of the running program's file.
absl::StatusOr<std::string> OwnDirectory();

// Those of the running command.
absl::StatusOr<DaemonPaths> FindOwnDaemons();

}  // namespace catchment

#endif  // CATCHMENT_CLI_DAEMONS_H_
