#include "worker/data/data_paths.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace catchment {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

DataPaths DataPathsFromEnvironment() {
  return {Variable("CATCHMENT_DATA"), Variable("XDG_CACHE_HOME"), Variable("HOME"), /*staged=*/""};
}

std::string StagedPath(const DataPaths& paths, const std::string& path) {
  if (paths.staged.empty()) return path;
  std::error_code error;
  const std::filesystem::path absolute = std::filesystem::absolute(path, error);
  const std::string copy = paths.staged + absolute.lexically_normal().string();
  return !error && std::filesystem::exists(copy, error) ? copy : path;
}

}  // namespace catchment
