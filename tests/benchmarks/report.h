// The common parts of the benchmarks: medians, rows in a JSON file, a command line.
#ifndef CATCHMENT_TESTS_BENCHMARKS_REPORT_H_
#define CATCHMENT_TESTS_BENCHMARKS_REPORT_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/program/command_line.h"
#include "nlohmann/json.hpp"

namespace catchment {

// The mean of the two in the middle when they are even in number. `values` is not empty.
double Median(std::vector<double> values);

// A list of objects, one a line. `path` counts from where `bazel run` was called. "": does nothing.
absl::Status WriteRows(const std::vector<nlohmann::ordered_json>& rows, const std::string& path);

// Runs a benchmark with RunCommandLine. Returns the exit code.
int RunBenchmark(const std::string& name, const std::string& usage, const FlagSet& flags,
                 const std::vector<std::string>& args, const std::function<absl::Status()>& run);

}  // namespace catchment

#endif  // CATCHMENT_TESTS_BENCHMARKS_REPORT_H_
