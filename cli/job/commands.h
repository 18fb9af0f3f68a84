// The subcommands that read a job and start nothing. Each runs one command line with RunCommandLine and
// returns its exit code.
#ifndef CATCHMENT_CLI_JOB_COMMANDS_H_
#define CATCHMENT_CLI_JOB_COMMANDS_H_

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "cli/base/terminal.h"
#include "worker/data/data_paths.h"

namespace catchment {

// `catchment validate JOB`: checks a job and explains it. Exit code 0: valid; 1: invalid.
int RunValidate(const std::vector<std::string>& args, const Streams& streams);

// `catchment pack JOB --out=DIR`: writes a job's data as packed shards (worker/data/table/formats.h), and
// prints the `data` for the job.
int RunPack(const std::vector<std::string>& args, const DataPaths& paths, const Streams& streams);

// `catchment examples DIR`: writes the examples, which the program contains, to DIR.
int RunExamples(const std::vector<std::string>& args, const Streams& streams);

struct ExampleFile {
  const char* path;  // relative to the directory of examples
  absl::string_view content;
};

// Returns all of them, ordered by path.
const std::vector<ExampleFile>& ExampleFiles();

}  // namespace catchment

#endif  // CATCHMENT_CLI_JOB_COMMANDS_H_
