// Child processes of a benchmark, and the resources that processes have used.
#ifndef CATCHMENT_TESTS_BENCHMARKS_PROCESS_H_
#define CATCHMENT_TESTS_BENCHMARKS_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "cli/local/local_cluster.h"

namespace catchment {

// A fork of this process that runs a function, driven by lines over its standard input and output. It ends
// after the function, which returns at the end of its input.
//
// Threads: this process has a single one when it forks.
// Errors: ends the whole program when the child does not answer: its own message is on stderr.
class Subprocess {
 public:
  explicit Subprocess(const std::function<void()>& run);
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  void Send(const std::string& line);
  std::string Receive();

 private:
  pid_t pid_ = 0;
  FILE* to_ = nullptr;
  FILE* from_ = nullptr;
};

// Finds the daemons in Bazel's output, in which this program is in tests/benchmarks.
absl::StatusOr<DaemonPaths> FindBuiltDaemons();

// The resources that all threads of a process have used.
struct ProcessUsage {
  double seconds = 0;   // user and system
  double wake_ups = 0;  // of threads that waited
};
ProcessUsage UsageOfThisProcess();

// Both return 0 for a process that has ended. Processor seconds are those of ended threads, too.
double ProcessorSeconds(pid_t pid);
int64_t ResidentBytes(pid_t pid);

// Returns the processor seconds that this machine has been busy, over all cores, since its start.
double BusySeconds();

// Returns the memory that can be allocated without swapping.
int64_t AvailableBytes();

int Cores();
// "AMD EPYC"; "unknown" where the system does not say.
std::string ProcessorModel();

}  // namespace catchment

#endif  // CATCHMENT_TESTS_BENCHMARKS_PROCESS_H_
