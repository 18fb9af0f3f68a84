#include "common/base/byte_order_mark.h"

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

namespace catchment {
namespace {

// Returns true if the first character needs more than one byte; for a letter, one of them is 0.
bool IsWide(absl::string_view content) {
  if (absl::StartsWith(content, "\xff\xfe") || absl::StartsWith(content, "\xfe\xff")) return true;
  return content.size() >= 2 && (content[0] == 0) != (content[1] == 0);
}

}  // namespace

absl::StatusOr<absl::string_view> Utf8Text(absl::string_view content, absl::string_view path) {
  if (IsWide(content)) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is encoded in UTF-16; save it as UTF-8 (iconv -f UTF-16 -t UTF-8)"));
  }
  return absl::StripPrefix(content, "\xef\xbb\xbf");
}

}  // namespace catchment
