#ifndef CATCHMENT_COMMON_START_PROCESSOR_H_
#define CATCHMENT_COMMON_START_PROCESSOR_H_

namespace catchment::start {

// Ends the process with exit code 1 and one line that names the missing instructions if the processor lacks
// an instruction set that the programs are compiled for (x86-64-v3, see .bazelrc), or if the operating system
// does not save the AVX registers.
void RequireProcessor(const char* program);

}  // namespace catchment::start

#endif  // CATCHMENT_COMMON_START_PROCESSOR_H_
