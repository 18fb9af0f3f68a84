// The command line of `catchment train`.
#ifndef CATCHMENT_CLI_TRAIN_OPTIONS_H_
#define CATCHMENT_CLI_TRAIN_OPTIONS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/rpc.h"

namespace catchment {

struct TrainOptions {
  std::string job;               // file; empty with resume: the run's own; with a program: described by it
  std::vector<std::string> set;  // "path=value"
  int servers = 1;
  int workers = 0;  // 0: as many as the job says
  bool evaluator = true;
  int threads = 0;  // per worker; 0: the machine's processors divided between the workers
  std::string device;
  std::string program;  // command, for a shell, that computes the gradients; empty: the job's layers do
  std::string out;
  bool json = false;
  bool resume = false;
  bool overwrite = false;
  double stall_seconds = 600;
  TlsFiles tls;

  bool help = false;
  std::vector<std::string> args;  // as given, to say how to go on
};

// Errors: InvalidArgument with the flag and its remedy.
absl::StatusOr<TrainOptions> ParseTrainOptions(const std::vector<std::string>& args);

std::string TrainHelp();

// The command that goes on with an interrupted run: "catchment train JOB ... --resume".
std::string ResumeCommand(const TrainOptions& options);

}  // namespace catchment

#endif  // CATCHMENT_CLI_TRAIN_OPTIONS_H_
