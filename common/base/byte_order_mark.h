// The encoding of text files that people write.
#ifndef CATCHMENT_COMMON_BASE_BYTE_ORDER_MARK_H_
#define CATCHMENT_COMMON_BASE_BYTE_ORDER_MARK_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace catchment {

// Returns the text of a file whose bytes are `content`: UTF-8, without the byte order mark that Windows'
// editors put before it. `path` is the file's name for errors.
// Errors: InvalidArgument for UTF-16 and UTF-32, as PowerShell's > and Excel's "Unicode text" write them.
absl::StatusOr<absl::string_view> Utf8Text(absl::string_view content, absl::string_view path);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_BYTE_ORDER_MARK_H_
