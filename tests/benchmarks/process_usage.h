// The resources that processes have used, from /proc.
#ifndef CATCHMENT_TESTS_BENCHMARKS_PROCESS_USAGE_H_
#define CATCHMENT_TESTS_BENCHMARKS_PROCESS_USAGE_H_

#include <sys/types.h>

#include <cstdint>
#include <string>

namespace catchment {

// Both return 0 for a process that has ended.
double ProcessorSeconds(pid_t pid);  // of all its threads, ended ones too; user and system
int64_t ResidentBytes(pid_t pid);

// Processor seconds that this machine has been busy, over all cores, since its start.
double BusySeconds();

// Returns the memory that can be allocated without swapping.
int64_t AvailableBytes();

int Cores();
// "AMD EPYC"; "unknown" where the system does not say.
std::string ProcessorModel();

}  // namespace catchment

#endif  // CATCHMENT_TESTS_BENCHMARKS_PROCESS_USAGE_H_
