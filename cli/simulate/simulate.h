// `catchment simulate JOB --workers=... --step=... --out=DIR`: the runs of a comparison
// (cli/compare/compare_plan.h) by simulation (simulation/simulation.h), with the report of `catchment
// compare`.
#ifndef CATCHMENT_CLI_SIMULATE_SIMULATE_H_
#define CATCHMENT_CLI_SIMULATE_SIMULATE_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/compare/compare.h"
#include "cli/compare/launcher.h"
#include "cli/terminal.h"
#include "common/program/command_line.h"
#include "simulation/models.h"
#include "simulation/simulation.h"

namespace catchment {

struct SimulateOptions {
  // A prediction is about the presets as they are, unless a search is asked for.
  CompareOptions plan = {.workers = {1, 4, 16, 64}, .seeds = 1, .search = SearchKind::kNone};
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

// Adds the flags of the modelled cluster: --step, --start, --network, --straggler, --failures, --gradient and
// --from.
void AddModelFlags(SimulateOptions* options, FlagSet* flags);

// Refuses a --straggler that no run has. `most` is the largest number of workers.
absl::Status CheckStragglers(const SimulateOptions& options, int most);

// Makes the jobs of all runs have the workers of --straggler that are slow.
void SlowDownJobs(SimulateOptions* options);

// Carries out runs on simulated clusters, one after another.
class SimulationLauncher : public SequentialLauncher {
 public:
  // Checks that the runs fit into this machine's memory. Errors: those of --from; InvalidArgument if nothing
  // says how long a step takes; ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<SimulationLauncher>> Create(const SimulateOptions& options,
                                                                    const v1::Job& given,
                                                                    const std::vector<PlannedRun>& runs);

  // Describes the modelled cluster, for the report and the record of the directory.
  const std::string& description() const { return description_; }

 private:
  SimulationLauncher(SimulationOptions simulation, std::string description)
      : simulation_(std::move(simulation)), description_(std::move(description)) {}
  absl::Status Train(const PlannedRun& run, const CompareDirectory& comparison, CompareProgress* progress,
                     int* signal) override;

  const SimulationOptions simulation_;
  const std::string description_;
};

// Returns a command line that fills *options except `plan.args`.
CommandLine SimulateCommandLine(SimulateOptions* options);

// Runs a command line. Returns the exit code, which --help explains.
int RunSimulateCommand(const std::vector<std::string>& args, const Streams& streams);

}  // namespace catchment

#endif  // CATCHMENT_CLI_SIMULATE_SIMULATE_H_
