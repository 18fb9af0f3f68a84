// The content of a report: the algorithms, the machine, and the results of the runs.
#ifndef CATCHMENT_CLI_REPORT_COMPARISON_H_
#define CATCHMENT_CLI_REPORT_COMPARISON_H_

#include <optional>
#include <string>
#include <vector>

#include "cli/report/run_result.h"

namespace catchment {

// The machine that a comparison ran on.
struct Machine {
  std::string processor;  // "AMD EPYC 7B13"; "unknown" if the kernel does not report it
  int processors = 1;     // that this process may use
  double memory_bytes = 0;
  std::string system;  // "Debian GNU/Linux 12 (bookworm), Linux 6.1.0"
};

// Returns the facts about this machine.
Machine ThisMachine();

// The settings of an algorithm.
struct AlgorithmFacts {
  std::string name;
  bool synchronous = false;  // every update waits for all workers
  std::string optimizer;     // "SGD"
  // Staleness adds implicit momentum: gradients are applied one by one as they arrive.
  bool implicit = false;
  std::optional<double> open_loop_minimum;  // OpenLoopMomentum.min_momentum, if it is used
  bool closed_loop = false;
};

struct LeftOutPair {
  std::string algorithm;
  int workers = 1;
  std::string reason;
};

// A run of a search for the learning rate and the momentum of an algorithm with a number of workers.
struct SearchTrialResult {
  int rung = 1;
  double share = 1;     // of the budget
  bool chosen = false;  // the search ended with it
  RunResult run;        // with the values tried
};

struct Comparison {
  std::string command;
  std::string version;
  std::string job_name;
  std::string job;                      // that of the first run as text, with all defaults
  std::string budget;                   // empty: it differs
  std::vector<std::string> stragglers;  // "1:4x", of a simulation also "1%:4x" and "1%steps:4x"
  std::string simulated;                // the modelled cluster; empty: the runs were real
  int servers = 1;                      // 0: they differ
  int threads = 1;                      // per worker; 0: not known
  int seeds = 1;
  double wanted_target = 0;  // 0: chosen from the results
  std::vector<AlgorithmFacts> algorithms;
  std::vector<int> workers;        // ascending
  std::optional<Machine> machine;  // on which all runs ran, if it is known
  std::vector<RunResult> runs;
  std::vector<LeftOutPair> left_out;
  std::vector<SearchTrialResult> searched;
  std::string untuned;  // a sentence about learning rates that are not the result of a search; empty: all are
};

// Returns the cost of the search for an algorithm with a number of workers, in runs of the whole budget; 0:
// there was none.
double SearchCost(const Comparison& comparison, const std::string& algorithm, int workers);

// Returns the runs of one algorithm with one number of workers that are done.
std::vector<const RunResult*> RunsOf(const Comparison& comparison, const std::string& algorithm, int workers);

// Returns "workers 0 and 2 slowed 10 times, worker 1 slowed 40 times".
std::string DescribeStragglers(const Comparison& comparison);

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_COMPARISON_H_
