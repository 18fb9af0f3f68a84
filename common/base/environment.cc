#include "common/base/environment.h"

#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/base/file_access.h"

namespace catchment {
namespace {

constexpr char kOfGrpc[] = "GRPC_";

}  // namespace

std::vector<std::string> InheritedEnvironment() {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!absl::StartsWith(*entry, kOfGrpc)) all.emplace_back(*entry);
  }
  // The kernel keeps what the process was started with.
  const absl::StatusOr<std::string> first = ReadFile("/proc/self/environ");
  if (!first.ok()) return all;
  for (const absl::string_view entry : absl::StrSplit(*first, '\0')) {
    if (absl::StartsWith(entry, kOfGrpc)) all.emplace_back(entry);
  }
  return all;
}

}  // namespace catchment
