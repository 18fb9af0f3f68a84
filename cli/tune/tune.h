// `catchment tune JOB --over=PATH=RANGE ... --out=DIR`: searches for the fields of a job with the best test
// accuracy by successive halving (halving.h), with the runs, the directory and the launchers of a comparison
// (cli/compare) or by simulation (cli/simulate).
#ifndef CATCHMENT_CLI_TUNE_TUNE_H_
#define CATCHMENT_CLI_TUNE_TUNE_H_

#include <optional>
#include <string>
#include <vector>

#include "cli/base/terminal.h"
#include "cli/compare/halving.h"
#include "cli/report/run_result.h"
#include "cli/simulate/simulate.h"
#include "common/program/command_line.h"
#include "nlohmann/json.hpp"

namespace catchment {

struct TuneOptions {
  SimulateOptions runs = {.plan = {.seeds = 1}};  // `plan` also without `simulate`
  bool simulate = false;
  std::vector<SearchDimension> over;
  std::vector<std::string> over_texts;  // as given
  int trials = 27;
  int workers = 0;  // 0: the job's
};

// Returns a command line that fills *options except `runs.plan.args`.
CommandLine TuneCommandLine(TuneOptions* options);

// Runs a command line. Returns the exit code, which --help explains. Call it on the main thread, before any
// other thread is started.
int RunTuneCommand(const std::vector<std::string>& args, const Streams& streams);

// The settings that a trial tries, and why its job is not valid.
struct SearchTrial {
  std::vector<std::string> values;  // of each dimension
  std::string invalid;              // empty: it is
};

// The result of a search, for its report.
struct TuneResult {
  std::string command;
  std::string job_name;
  std::string budget;     // of a run in the last rung
  std::string simulated;  // the modelled cluster; empty: the runs were real
  std::vector<SearchDimension> over;
  std::vector<SearchTrial> trials;
  HalvingResult halving;
  std::vector<std::vector<RunResult>> runs;       // of each rung, in the order of its trials
  std::vector<std::optional<double>> importance;  // of each dimension, by the first rung
};

// Returns the run of the trial that is the best, in the last rung in which it has a score; null if there is
// none.
const RunResult* BestRun(const TuneResult& result);

// Returns the answer in one line: "The best of 9 trials is trial 3, with 97.2 %:
// optimizer.learning_rate=0.03, batch_size=64".
std::string AnswerOf(const TuneResult& result);

// Returns report.json, whose keys docs/tune.md lists, and report.html.
nlohmann::ordered_json TuneJson(const TuneResult& result);
std::string TunePage(const TuneResult& result);

}  // namespace catchment

#endif  // CATCHMENT_CLI_TUNE_TUNE_H_
