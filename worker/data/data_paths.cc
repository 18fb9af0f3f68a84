#include "worker/data/data_paths.h"

#include <cstdlib>

namespace catchment {
namespace {

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

DataPaths DataPathsFromEnvironment() {
  return {Variable("CATCHMENT_DATA"), Variable("XDG_CACHE_HOME"), Variable("HOME")};
}

}  // namespace catchment
