// The benchmarks of one program, and what they share: flags, turns, quantiles, a table and JSON.
//
//   bazel run -c opt //tests/benchmarks:benchmark -- NAME [flags]
//
// A benchmark is a file that defines a BenchmarkKind, which benchmark.cc lists.
#ifndef CATCHMENT_TESTS_BENCHMARKS_BENCHMARK_H_
#define CATCHMENT_TESTS_BENCHMARKS_BENCHMARK_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/program/command_line.h"

namespace catchment {

// The figures of one measurement by their names; null where there is none.
using Row = nlohmann::ordered_json;

class Benchmark {
 public:
  virtual ~Benchmark() = default;
  virtual void AddFlags(FlagSet* flags) = 0;
  // Appends the rows. `directory` is a new one, which is removed unless there is an error.
  virtual absl::Status Run(const std::string& directory, std::vector<Row>* rows) = 0;
};

// A column of the printed table: the values of `key`, with so many decimals or three significant digits.
struct Column {
  static constexpr int kShort = -1;

  const char* head;
  const char* key;
  int decimals = kShort;
};

struct BenchmarkKind {
  const char* name;
  const char* usage;
  std::vector<Column> columns;
  std::unique_ptr<Benchmark> (*make)();
  // Prints conclusions from the rows; null: there are none.
  void (*conclude)(const std::vector<Row>& rows) = nullptr;
};

template <typename T>
std::unique_ptr<Benchmark> MakeBenchmark() {
  return std::make_unique<T>();
}

extern const BenchmarkKind kApply, kCheckpoint, kCodecs, kControl, kScaling, kWire;

// Runs the benchmark that the first argument names: prints its rows and, with --json=FILE, writes them, an
// object a line. FILE counts from where `bazel run` was called. Returns the exit code.
int RunBenchmarks(const std::vector<std::string>& args);

void PrintRows(const std::vector<Row>& rows, const std::vector<Column>& columns);

// Declares a flag of whole numbers, with commas between or in several flags. *out has the default.
void AddNumbers(FlagSet* flags, const std::string& name, int64_t least, int64_t most,
                std::vector<int64_t>* out, const std::string& help);
// Declares one of some of the names in *out, the default.
void AddNames(FlagSet* flags, const std::string& name, std::vector<std::string>* out,
              const std::string& help);

// Calls all passes one after the other, `rounds` times after a round that does not count. Returns the figures
// of each pass.
using Pass = std::function<double()>;
std::vector<std::vector<double>> InTurns(int rounds, const std::vector<Pass>& passes);

// `values` are not empty. Median is the mean of the two in the middle when they are even in number.
double Median(std::vector<double> values);
// Returns the median of the ratios of values of the same index.
double MedianRatio(const std::vector<double>& values, const std::vector<double>& references);
double Quantile(std::vector<double> values, double q);

}  // namespace catchment

#endif  // CATCHMENT_TESTS_BENCHMARKS_BENCHMARK_H_
