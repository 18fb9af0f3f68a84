// `catchment simulate JOB --workers=... --step=... --out=DIR`: the runs of a comparison (cli/compare/compare_plan.h) by
// simulation (simulation/simulation.h), with the report of `catchment compare`.
#ifndef CATCHMENT_CLI_SIMULATE_SIMULATE_H_
#define CATCHMENT_CLI_SIMULATE_SIMULATE_H_

#include <optional>
#include <string>
#include <vector>

#include "cli/compare/compare.h"
#include "cli/terminal.h"
#include "common/command_line.h"
#include "simulation/models.h"

namespace catchment {

struct SimulateOptions {
  CompareOptions plan = {.workers = {1, 4, 16, 64}, .seeds = 1};
  std::optional<Distribution> step;
  std::optional<Distribution> start;
  std::optional<NetworkModel> network;
  std::vector<StragglerModel> stragglers;
  FailureModel failures;
  std::string failures_text;
  std::optional<QuadraticModel> quadratic;
  std::string gradient = "job";  // as given
  std::string from;              // a finished run, for `step`, `start` and `network`
  int seed = 0;                  // 0: the job's
};

// Returns a command line that fills *options except `plan.args`.
CommandLine SimulateCommandLine(SimulateOptions* options);

// Runs a command line. Returns the exit code, which --help explains.
int RunSimulateCommand(const std::vector<std::string>& args, const Streams& streams);

}  // namespace catchment

#endif  // CATCHMENT_CLI_SIMULATE_SIMULATE_H_
