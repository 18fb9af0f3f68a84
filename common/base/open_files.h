// The limit of open files and connections of the process (RLIMIT_NOFILE), and the permissions of files that
// it creates.
#ifndef CATCHMENT_COMMON_BASE_OPEN_FILES_H_
#define CATCHMENT_COMMON_BASE_OPEN_FILES_H_

#include <cstdint>

#include "absl/status/status.h"

namespace catchment {

// Explains in error messages how to raise the limit.
inline constexpr char kOpenFilesRemedy[] =
    "raise the hard limit with `ulimit -Hn`, LimitNOFILE= in a systemd unit, "
    "or --ulimit nofile= of a container";

// Raises the limit to the hard limit. Call it once, at the beginning of main().
void RaiseOpenFiles();

// Denies other users access to all files that the process and its children create, such as weights and logs,
// and the group to change them (umask 027). Call it once, at the beginning of main().
void KeepFilesPrivate();

// Returns the current limit.
int64_t OpenFilesLimit();

// Estimates the files of a server in a job with these workers and servers: a connection for each worker, and
// at the master another one for its calls, and one for each server.
int64_t OpenFilesNeeded(int64_t workers, int64_t servers, bool master);

// Returns FailedPrecondition, with the limit and how to raise it, if the server needs more files.
absl::Status CheckOpenFiles(int64_t workers, int64_t servers, bool master);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_OPEN_FILES_H_
