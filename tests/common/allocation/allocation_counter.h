// Counts the memory that a test's process asks for: linked in, it takes the place of malloc, operator new and
// their relatives, for all threads and all libraries.
#ifndef CATCHMENT_TESTS_COMMON_ALLOCATION_ALLOCATION_COUNTER_H_
#define CATCHMENT_TESTS_COMMON_ALLOCATION_ALLOCATION_COUNTER_H_

#include <cstdint>

namespace catchment {

struct Allocations {
  uint64_t all = 0;
  // Allocations by the code of the executable, that is, of the project and the test, but not of shared
  // libraries. Inline functions of libraries' headers count as code of the executable.
  uint64_t ours = 0;

  Allocations operator-(const Allocations& earlier) const { return {all - earlier.all, ours - earlier.ours}; }
};

// Since the program's start.
Allocations CountAllocations();

// The bytes of memory that is in use, and the most that have been in use since the last ResetMostBytes.
uint64_t BytesInUse();
uint64_t MostBytesInUse();
void ResetMostBytes();

// False under a sanitizer, which has its own malloc: nothing is counted then.
bool AllocationsAreCounted();

}  // namespace catchment

#endif  // CATCHMENT_TESTS_COMMON_ALLOCATION_ALLOCATION_COUNTER_H_
