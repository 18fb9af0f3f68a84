// Files that others have named: paths that stay in their directory.
//
// Threads: all functions are thread-safe.
#ifndef CATCHMENT_COMMON_FILE_ACCESS_H_
#define CATCHMENT_COMMON_FILE_ACCESS_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace catchment {

// Returns true if the text is the name of a file in a directory: 1 to 255 printable ASCII characters without a slash, and
// neither "." nor "..".
bool IsFileName(absl::string_view name);

// Returns DIRECTORY/NAME. Errors: InvalidArgument if `name` is not the name of a file in a directory.
absl::StatusOr<std::string> PathWithin(const std::string& directory, absl::string_view name);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_FILE_ACCESS_H_
