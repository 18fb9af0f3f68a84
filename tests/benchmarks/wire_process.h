// A copy of this program in another role, driven by lines over its standard input and output.
#ifndef CATCHMENT_TESTS_BENCHMARKS_WIRE_PROCESS_H_
#define CATCHMENT_TESTS_BENCHMARKS_WIRE_PROCESS_H_

#include <sys/types.h>

#include <cstdio>
#include <string>
#include <vector>

namespace catchment {

// Ends the whole program when the child does not start or does not answer: its own message is on stderr.
class Subprocess {
 public:
  // `flags` follow the program's path.
  explicit Subprocess(const std::vector<std::string>& flags);
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

// The resources that all threads of a process have used.
struct ProcessUsage {
  double seconds = 0;   // user and system
  double wake_ups = 0;  // of threads that waited
};
ProcessUsage UsageOfThisProcess();

}  // namespace catchment

#endif  // CATCHMENT_TESTS_BENCHMARKS_WIRE_PROCESS_H_
