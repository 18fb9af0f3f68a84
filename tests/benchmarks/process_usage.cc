#include "tests/benchmarks/process_usage.h"

#include <unistd.h>

#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace catchment {
namespace {

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::vector<std::string> Words(const std::string& text) {
  return absl::StrSplit(text, absl::ByAnyChar(" \t\n"), absl::SkipEmpty());
}

double Number(const std::vector<std::string>& words, size_t index) {
  double value = 0;
  return index < words.size() && absl::SimpleAtod(words[index], &value) ? value : 0;
}

double Ticks() { return static_cast<double>(sysconf(_SC_CLK_TCK)); }

// Returns the text after "NAME:" in the line that begins with it; empty if there is no such line.
std::string Field(const std::string& path, const std::string& name) {
  for (const auto& line : absl::StrSplit(Read(path), '\n')) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (parts.size() == 2 && absl::StripAsciiWhitespace(parts[0]) == name) {
      return std::string(absl::StripAsciiWhitespace(parts[1]));
    }
  }
  return "";
}

int64_t KibField(const std::string& path, const std::string& name) {
  return static_cast<int64_t>(Number(Words(Field(path, name)), 0)) * 1024;
}

}  // namespace

double ProcessorSeconds(pid_t pid) {
  const std::string stat = Read(absl::StrCat("/proc/", pid, "/stat"));
  // The second field, the program's name in brackets, may hold spaces.
  const size_t end_of_name = stat.rfind(')');
  if (end_of_name == std::string::npos) return 0;
  const std::vector<std::string> words = Words(stat.substr(end_of_name + 1));
  constexpr size_t kUser = 11, kSystem = 12;
  return (Number(words, kUser) + Number(words, kSystem)) / Ticks();
}

int64_t ResidentBytes(pid_t pid) { return KibField(absl::StrCat("/proc/", pid, "/status"), "VmRSS"); }

double BusySeconds() {
  const std::vector<std::string> words = Words(Read("/proc/stat"));
  // "cpu", then user, nice, system, idle, iowait, irq, softirq, steal.
  return (Number(words, 1) + Number(words, 2) + Number(words, 3) + Number(words, 6) + Number(words, 7)) /
         Ticks();
}

int64_t AvailableBytes() { return KibField("/proc/meminfo", "MemAvailable"); }

int Cores() { return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)); }

std::string ProcessorModel() {
  const std::string model = Field("/proc/cpuinfo", "model name");
  return model.empty() ? "unknown" : model;
}

}  // namespace catchment
