// Files that others may have made or named: opening them without waiting, and paths that stay in their
// directory.
//
// Threads: all functions are thread-safe.
#ifndef CATCHMENT_COMMON_BASE_FILE_ACCESS_H_
#define CATCHMENT_COMMON_BASE_FILE_ACCESS_H_

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace catchment {

// The origin of a file's name, which decides what kinds of file are accepted.
enum class FileNamedBy {
  kDirectory,  // it was found in a directory: a regular file
  kUser,       // in a command line: also a pipe of the process (/dev/stdin, a shell's <(...)), or a terminal
};

// Opens a file with `flags` of open(2), such as O_RDONLY or O_WRONLY | O_CREAT, and O_CLOEXEC. Returns the
// descriptor, which the caller closes. Never waits, as open(2) does for a named pipe. A file that a directory
// names and that may be created is not reached through a symbolic link, which could lead to a file elsewhere.
// Errors: InvalidArgument "PATH: is not a regular file" for a named pipe, a device, a socket, a directory,
// and such a link; "cannot open PATH" with what the system says.
absl::StatusOr<int> OpenFile(const std::string& path, int flags,
                             FileNamedBy named_by = FileNamedBy::kDirectory, mode_t mode = 0644);

// Returns the content of a whole file. Errors: those of OpenFile; "cannot read PATH" with what the system
// says.
absl::StatusOr<std::string> ReadFile(const std::string& path, FileNamedBy named_by = FileNamedBy::kDirectory);

// Returns true if the text is the name of a file in a directory: 1 to 255 printable ASCII characters without
// a slash, and neither "." nor "..".
bool IsFileName(absl::string_view name);

// Returns DIRECTORY/NAME. Errors: InvalidArgument if `name` is not the name of a file in a directory.
absl::StatusOr<std::string> PathWithin(const std::string& directory, absl::string_view name);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_FILE_ACCESS_H_
