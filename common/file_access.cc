#include "common/file_access.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace catchment {
namespace {

constexpr size_t kMostNameBytes = 255;

}  // namespace

bool IsFileName(absl::string_view name) {
  return !name.empty() && name.size() <= kMostNameBytes && name != "." && name != ".." &&
         std::all_of(name.begin(), name.end(), [](char c) { return absl::ascii_isprint(c) && c != '/'; });
}

absl::StatusOr<std::string> PathWithin(const std::string& directory, absl::string_view name) {
  if (IsFileName(name)) return absl::StrCat(directory, "/", name);
  return absl::InvalidArgumentError(
      absl::StrCat("\"", absl::CHexEscape(name), "\" is not the name of a file in ", directory));
}

}  // namespace catchment
