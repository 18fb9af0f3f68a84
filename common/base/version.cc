#include "common/base/version.h"

#include <dnnl_version.h>

#include <string_view>

#include "absl/strings/str_cat.h"

// Defined in common/base/version_stamp.cc.
extern const std::string_view kVersionCommit;

namespace catchment {
namespace {

constexpr char kVersion[] = "0.1.0";

// Bazel's words if it knows none: in a build with --nostamp, or without a workspace status.
bool HasCommit() {
  return !kVersionCommit.empty() && kVersionCommit != "redacted" && kVersionCommit != "0" &&
         kVersionCommit != "Unknown";
}

std::string Commit() {
  if (HasCommit()) return std::string(kVersionCommit);
  return "not recorded (built with --nostamp, or from sources without a Git "
         "repository; --embed_label=COMMIT sets it)";
}

std::string OneDnn() {
  return absl::StrCat(DNNL_VERSION_MAJOR, ".", DNNL_VERSION_MINOR, ".", DNNL_VERSION_PATCH);
}

}  // namespace

std::string DescribeVersion(const std::string& program) {
  return absl::StrCat(program, " ", kVersion, "\ncommit: ", Commit(), "\noneDNN: ", OneDnn(), "\n");
}

std::string BuildVersion() {
  return HasCommit() ? absl::StrCat(kVersion, ", commit ", std::string(kVersionCommit)) : kVersion;
}

}  // namespace catchment
