// Files without a name in memory, for memory that processes share.
//
// Threads: all functions are thread-safe.
#ifndef CATCHMENT_COMMON_BASE_MEMORY_FILE_H_
#define CATCHMENT_COMMON_BASE_MEMORY_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace catchment {

enum class WithoutMemfd {
  kFail,
  kUseFile,  // a deleted file of this user in /dev/shm, $TMPDIR or /tmp, which cannot be sealed
};

// Creates a file of `bytes` zeros, "catchment-NAME" in /proc/PROCESS/fd, and returns its descriptor, which is
// closed when another program is executed. It is anonymous memory (memfd_create), whose pages are allocated
// when they are used. Where the system has no such memory, as under some seccomp filters and in sandboxes,
// `without` decides; the space of a file is reserved, so that its use raises no SIGBUS.
// Errors: ResourceExhausted if the memory is not there; otherwise what the system says, with memfd_create's
// name.
absl::StatusOr<int> CreateMemoryFile(const std::string& name, int64_t bytes, WithoutMemfd without);

// Changes the size of such a file. Errors: what the system says.
absl::Status ResizeMemoryFile(int file, int64_t bytes);

// Returns true for anonymous memory, which can be sealed.
bool IsMemfd(int file);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_MEMORY_FILE_H_
