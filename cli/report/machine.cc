#include <sched.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/report/comparison.h"

namespace catchment {
namespace {

// The value of the first line that begins with `key`, after `separator`.
std::string Field(const std::string& file, const std::string& key, char separator) {
  std::ifstream lines(file);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(key, 0) != 0 || line.find(separator) == std::string::npos) continue;
    const std::string value(absl::StripAsciiWhitespace(line.substr(line.find(separator) + 1)));
    return std::string(absl::StripSuffix(absl::StripPrefix(value, "\""), "\""));
  }
  return "unknown";
}

int UsableProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  return sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
}

}  // namespace

Machine ThisMachine() {
  utsname name = {};
  uname(&name);
  return {Field("/proc/cpuinfo", "model name", ':'), UsableProcessors(),
          static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE)),
          absl::StrCat(Field("/etc/os-release", "PRETTY_NAME", '='), ", ", name.sysname, " ", name.release)};
}

}  // namespace catchment
