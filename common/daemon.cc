#include "common/daemon.h"

#include <glog/logging.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <iostream>
#include <vector>

#include "common/grpc_log.h"
#include "common/open_files.h"
#include "common/rpc.h"
#include "common/version.h"

namespace catchment {

int RunDaemon(int argc, char** argv, CommandLine* line, const std::function<absl::Status()>& run,
              const std::function<std::string()>& features) {
  TuneProcess();
  RaiseOpenFiles();
  KeepFilesPrivate();
  // A daemon has no terminal: what closes one, or asks programs to read their settings again, does not end the job.
  std::signal(SIGHUP, SIG_IGN);
  BlockSignals();
  // Writing a file beyond the size limit then returns an error instead of ending the process.
  std::signal(SIGXFSZ, SIG_IGN);
  // Writing the log to a pipe whose reader has ended then returns an error instead of ending the process.
  std::signal(SIGPIPE, SIG_IGN);
  line->name = std::filesystem::path(argv[0]).filename();
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (std::find(args.begin(), args.end(), "--version") != args.end()) {
    std::cout << DescribeVersion(line->name) << (features ? features() : "");
    return 0;
  }
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  LimitGrpcLog();
  const auto run_once = [&run]() -> absl::StatusOr<int> {
    if (absl::Status status = run(); !status.ok()) return status;
    return 0;
  };
  return RunCommandLine(line, args, &std::cout, &std::cerr, run_once);
}

}  // namespace catchment
