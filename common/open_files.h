// How many files, connections among them, the process may have open (RLIMIT_NOFILE).
//
// gRPC 1.51 never accepts from a listening socket again after it could not accept a connection for want of a
// file descriptor (CVE-2023-4785): a server must not reach the limit.
#ifndef CATCHMENT_COMMON_OPEN_FILES_H_
#define CATCHMENT_COMMON_OPEN_FILES_H_

#include <cstdint>

#include "absl/status/status.h"

namespace catchment {

// For error messages: how the limit is raised.
inline constexpr char kOpenFilesRemedy[] =
    "raise the hard limit with `ulimit -Hn`, LimitNOFILE= in a systemd unit, or --ulimit nofile= of a "
    "container";

// Raises the limit to the hard limit. Call once, first thing in main().
void RaiseOpenFiles();

// Returns the limit as it is.
int64_t OpenFilesLimit();

// Returns how many a server of a job with so many workers and servers needs, about: a connection for each
// worker, and at the master another one for its calls, and one for each server.
int64_t OpenFilesNeeded(int64_t workers, int64_t servers, bool master);

// FailedPrecondition, saying which limit is too low and how it is raised, when the server needs more than it
// may have.
absl::Status CheckOpenFiles(int64_t workers, int64_t servers, bool master);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_OPEN_FILES_H_
