#include "common/version.h"

#include <dnnl_version.h>

#include <string_view>

#include "absl/strings/str_cat.h"

// Defined in common/version_stamp.cc.
extern const std::string_view kVersionCommit;

namespace catchment {
namespace {

constexpr char kVersion[] = "0.1.0";

bool HasCommit() { return !kVersionCommit.empty() && kVersionCommit != "redacted"; }

std::string Commit() {
  return HasCommit() ? std::string(kVersionCommit) : "not recorded (build with --stamp --embed_label=COMMIT)";
}

std::string OneDnn() {
  return absl::StrCat(DNNL_VERSION_MAJOR, ".", DNNL_VERSION_MINOR, ".", DNNL_VERSION_PATCH);
}

}  // namespace

std::string DescribeVersion(const std::string& program) {
  return absl::StrCat(program, " ", kVersion, "\ncommit: ", Commit(), "\noneDNN: ", OneDnn(),
                      "\nCUDA: ", CATCHMENT_CUDA_BUILT ? "plugin built" : "not built", "\n");
}

std::string BuildVersion() {
  return HasCommit() ? absl::StrCat(kVersion, ", commit ", std::string(kVersionCommit)) : kVersion;
}

}  // namespace catchment
