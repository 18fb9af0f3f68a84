// The memory that this process may use.
#ifndef CATCHMENT_COMMON_BASE_MEMORY_H_
#define CATCHMENT_COMMON_BASE_MEMORY_H_

#include <cstdint>
#include <string>

namespace catchment {

// Returns the smallest limit, in bytes, of the process's cgroups (version 1 or 2); INT64_MAX if there is
// none. `root` is the directory with proc/ and sys/.
int64_t MemoryLimit(const std::string& root = "/");

// Returns the bytes that the process can still allocate: what the machine has available, or less if a
// cgroup's limit, minus what its processes use, is smaller. 0 if it is not known.
int64_t FreeMemory(const std::string& root = "/");

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_MEMORY_H_
