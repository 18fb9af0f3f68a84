// All that a report is made of: what was compared, on what, and what came of it.
#ifndef CATCHMENT_CLI_REPORT_COMPARISON_H_
#define CATCHMENT_CLI_REPORT_COMPARISON_H_

#include <optional>
#include <string>
#include <vector>

#include "cli/report/run_result.h"

namespace catchment {

// The machine that a comparison ran on.
struct Machine {
  std::string processor;  // "AMD EPYC 7B13"; "unknown" where the kernel does not say
  int processors = 1;     // that this process may use
  double memory_bytes = 0;
  std::string system;  // "Debian GNU/Linux 12 (bookworm), Linux 6.1.0"
};

Machine ThisMachine();

// What an algorithm of the comparison was set to.
struct AlgorithmFacts {
  std::string name;
  bool synchronous = false;  // every update waits for all workers
  std::string optimizer;     // "SGD"
  double learning_rate = 0;
  std::optional<double> momentum;
  // Staleness makes momentum of its own: gradients are applied one by one as they come (not elastic, not in
  // one group).
  bool implicit = false;
  std::optional<double> open_loop_minimum;  // OpenLoopMomentum.min_momentum, where it steers
  bool closed_loop = false;
  bool searched = false;  // learning rate and momentum are of a search
};

struct LeftOutPair {
  std::string algorithm;
  int workers = 1;
  std::string reason;
};

struct SearchProbe {
  std::string algorithm;
  std::string hyperparameters;  // "learning rate 0.03, momentum 0.6"
  std::optional<double> accuracy;
  std::optional<double> loss;
  bool chosen = false;
};

struct Comparison {
  std::string command;
  std::string version;
  std::string job_name;
  std::string job;  // text, with all defaults, as for the first run
  std::string budget;
  std::vector<std::string> stragglers;  // "1:4x"
  int servers = 1;
  int threads = 1;  // per worker
  int seeds = 1;
  double wanted_target = 0;  // 0: to be chosen
  std::vector<AlgorithmFacts> algorithms;
  std::vector<int> workers;  // ascending
  Machine machine;
  std::vector<RunResult> runs;
  std::vector<LeftOutPair> left_out;
  std::vector<SearchProbe> probes;
};

// The finished runs of one algorithm with one number of workers.
std::vector<const RunResult*> RunsOf(const Comparison& comparison, const std::string& algorithm, int workers);

// "worker 1 four times slower" in the words of the flag: "worker 1 4 times slower".
std::string DescribeStragglers(const Comparison& comparison);

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_COMPARISON_H_
