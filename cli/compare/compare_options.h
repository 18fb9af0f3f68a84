// The command line of `catchment compare`.
#ifndef CATCHMENT_CLI_COMPARE_COMPARE_OPTIONS_H_
#define CATCHMENT_CLI_COMPARE_COMPARE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace catchment {

// What ends each run: samples, seconds of training, or, where both are 0, the job's own budget.
struct CompareBudget {
  int64_t samples = 0;
  double seconds = 0;
};

struct CompareOptions {
  std::string job;               // file; may be empty with a program
  std::vector<std::string> set;  // "path=value"
  std::vector<std::string> algorithms;
  std::vector<int> workers = {1, 2, 4};  // ascending
  int seeds = 3;
  CompareBudget budget;
  std::vector<v1::Straggler> stragglers;
  bool search = false;
  double target = 0;  // test accuracy, a share; 0: chosen from the results
  int servers = 1;
  int threads = 1;  // per worker
  std::string device;
  std::string program;  // as in TrainOptions
  std::string out;
  bool overwrite = false;
  double stall_seconds = 600;

  bool help = false;
  std::vector<std::string> args;  // as given
};

// InvalidArgument names the flag and how to fix it.
absl::StatusOr<CompareOptions> ParseCompareOptions(const std::vector<std::string>& args);

std::string CompareHelp();

// As they are given: "samples:120000", "1:4x".
std::string ToString(const CompareBudget& budget);
std::string ToString(const v1::Straggler& straggler);

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_COMPARE_OPTIONS_H_
