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

#include "cli/base/terminal.h"
#include "cli/compare/compare.h"
#include "cli/compare/launcher.h"
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

// Returns how many simulations of the job fit into this machine's free memory and its processors at once.
// Errors: those of WorkersThatFit; ResourceExhausted if not one fits, with the number of workers that do.
absl::StatusOr<int> SimulationsAtOnce(const v1::Job& job, const SimulationOptions& options);

// Carries out runs on simulated clusters, several at once.
class SimulationLauncher : public Launcher {
 public:
  // Checks that the runs fit into this machine's memory. Errors: those of --from; InvalidArgument if nothing
  // says how long a step takes; ResourceExhausted.
  static absl::StatusOr<std::unique_ptr<SimulationLauncher>> Create(const SimulateOptions& options,
                                                                    const v1::Job& given,
                                                                    const std::vector<PlannedRun>& runs);

  // The order in which runs end decides nothing: a rung of a search ends as a whole.
  absl::Status Launch(std::vector<PlannedRun> runs, const FollowingRuns& following,
                      const CompareDirectory& directory, CompareProgress* progress, int* signal) override;

  // Describes the modelled cluster, for the report and the record of the directory.
  const std::string& description() const { return description_; }

 private:
  SimulationLauncher(SimulationOptions simulation, int at_once, std::string description)
      : simulation_(std::move(simulation)), at_once_(at_once), description_(std::move(description)) {}
  // Returns an error of the job or its data, which is that of all runs.
  absl::Status Train(const PlannedRun& run, const RunDirectory& directory) const;

  const SimulationOptions simulation_;
  const int at_once_;
  const std::string description_;
};

// Returns a command line that fills *options except `plan.args`.
CommandLine SimulateCommandLine(SimulateOptions* options);

// Runs a command line. Returns the exit code, which --help explains.
int RunSimulateCommand(const std::vector<std::string>& args, const Streams& streams);

}  // namespace catchment

#endif  // CATCHMENT_CLI_SIMULATE_SIMULATE_H_
