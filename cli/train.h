// `catchment train JOB --out=DIR`: a whole job on this machine.
//
// Read on in cli/train_run.h.
#ifndef CATCHMENT_CLI_TRAIN_H_
#define CATCHMENT_CLI_TRAIN_H_

#include <ostream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/local_cluster.h"
#include "cli/process.h"
#include "cli/train_monitor.h"
#include "cli/train_options.h"

namespace catchment {

struct TrainStreams {
  std::ostream* out;  // the result; notes too unless --json
  std::ostream* err;  // errors
  int columns = 0;    // of the terminal that notes go to; 0: none
};

// From the command line to the exit code (see TrainHelp). Call from the main thread, before any other is
// started.
int TrainMain(const std::vector<std::string>& args);

// The same with everything handed in.
int RunTrain(const TrainOptions& options, const DaemonPaths& daemons, const TrainBounds& bounds,
             SignalWaiter* signals, const TrainStreams& streams);

}  // namespace catchment

#endif  // CATCHMENT_CLI_TRAIN_H_
