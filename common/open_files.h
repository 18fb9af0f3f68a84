// The limit of the process's open files and connections (RLIMIT_NOFILE).
//
// gRPC 1.51 stops accepting from a listening socket forever when a connection could not be accepted because
// there was no file descriptor (CVE-2023-4785): a server must not reach the limit.
#ifndef CATCHMENT_COMMON_OPEN_FILES_H_
#define CATCHMENT_COMMON_OPEN_FILES_H_

#include <cstdint>

#include "absl/status/status.h"

namespace catchment {

// How the limit is raised, for error messages.
inline constexpr char kOpenFilesRemedy[] =
    "raise the hard limit with `ulimit -Hn`, LimitNOFILE= in a systemd unit, or --ulimit nofile= of a "
    "container";

// Raises the limit to the hard limit. Call once, first thing in main().
void RaiseOpenFiles();

// Returns the current limit.
int64_t OpenFilesLimit();

// Estimates the files of a server in a job with these workers and servers: a connection for each worker, and
// at the master another one for its calls, and one for each server.
int64_t OpenFilesNeeded(int64_t workers, int64_t servers, bool master);

// Returns FailedPrecondition, with the limit and how it is raised, if the server needs more files than that.
absl::Status CheckOpenFiles(int64_t workers, int64_t servers, bool master);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_OPEN_FILES_H_
