// The subcommands of `catchment` except train (cli/train.h) and compare (cli/compare/). Each returns its exit
// code, and writes errors to `err`.
#ifndef CATCHMENT_CLI_COMMANDS_H_
#define CATCHMENT_CLI_COMMANDS_H_

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "cli/screen.h"
#include "worker/data/data_paths.h"

namespace catchment {

// `catchment validate JOB`: checks a job and explains it. Exit codes: 0 for a valid job, 1 for an invalid
// one, 2 for a wrong command line.
int RunValidate(const std::vector<std::string>& args, std::ostream* out, std::ostream* err);

std::string ValidateHelp();

// `catchment pack JOB --out=DIR`: writes a job's data as packed shards (worker/data/table/formats.h), and the
// `data` for the job to `out`. Exit codes: 0, 1 for an error in the job, the data or the directory, 2 for a
// wrong command line.
int RunPack(const std::vector<std::string>& args, const DataPaths& paths, std::ostream* out,
            std::ostream* err);

// `catchment health HOST:PORT`: asks a server's gRPC health service, for probes that run a command. Exit
// codes: 0 if it serves, 1 if it does not or cannot be reached, 2 for a wrong command line.
int RunHealth(const std::vector<std::string>& args, std::ostream* out, std::ostream* err);

struct StatusStreams {
  std::ostream* out;
  std::ostream* err;
  // Returns the size of the terminal `out`; by default `out` is not a terminal.
  std::function<ScreenSize()> size = [] { return ScreenSize(); };
};

// `catchment status MASTER`: shows the state of a running job, once or repeatedly, as text or JSON, with
// warnings about what delays it. Exit codes: 0 for a job that has not failed, 1 for one that has, 2 for a
// wrong command line, 3 if no master could be reached, 128 + N if signal N ended --watch.
int RunStatus(const std::vector<std::string>& args, const StatusStreams& streams);

// RunStatus with this process's standard streams.
int StatusMain(const std::vector<std::string>& args);

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMMANDS_H_
