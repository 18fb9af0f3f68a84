#include "tests/benchmarks/process.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"

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
    if (parts.size() == 2 && absl::StripAsciiWhitespace(parts[0]) == name)
      return std::string(absl::StripAsciiWhitespace(parts[1]));
  }
  return "";
}

int64_t KibField(const std::string& path, const std::string& name) {
  return static_cast<int64_t>(Number(Words(Field(path, name)), 0)) * 1024;
}

}  // namespace

Subprocess::Subprocess(const std::function<void()>& run) {
  int in[2], out[2];
  PCHECK(pipe(in) == 0 && pipe(out) == 0);
  std::cout.flush();
  pid_ = fork();
  PCHECK(pid_ >= 0);
  if (pid_ == 0) {
    PCHECK(dup2(in[0], STDIN_FILENO) >= 0 && dup2(out[1], STDOUT_FILENO) >= 0);
    // A child reads the end of its input when this process closes it, unless another child has a copy.
    close_range(STDERR_FILENO + 1, ~0U, 0);
    run();
    std::_Exit(0);
  }
  close(in[0]);
  close(out[1]);
  to_ = fdopen(in[1], "w");
  from_ = fdopen(out[0], "r");
}

Subprocess::~Subprocess() {
  fclose(to_);
  waitpid(pid_, nullptr, 0);
  fclose(from_);
}

void Subprocess::Send(const std::string& line) {
  std::fprintf(to_, "%s\n", line.c_str());
  std::fflush(to_);
}

std::string Subprocess::Receive() {
  std::string line;
  for (int c = std::fgetc(from_); c != '\n'; c = std::fgetc(from_)) {
    CHECK_NE(c, EOF) << "a process of the benchmark has ended";
    line.push_back(static_cast<char>(c));
  }
  return line;
}

absl::StatusOr<DaemonPaths> FindBuiltDaemons() {
  ASSIGN_OR_RETURN(const std::string here, OwnDirectory());
  return FindDaemons(std::filesystem::path(here).parent_path());
}

ProcessUsage UsageOfThisProcess() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return t.tv_sec + 1e-6 * t.tv_usec; };
  return {seconds(usage.ru_utime) + seconds(usage.ru_stime), static_cast<double>(usage.ru_nvcsw)};
}

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
  double ticks = 0;
  for (const size_t index : {1, 2, 3, 6, 7}) ticks += Number(words, index);
  return ticks / Ticks();
}

int64_t AvailableBytes() { return KibField("/proc/meminfo", "MemAvailable"); }

int Cores() { return static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)); }

std::string ProcessorModel() {
  const std::string model = Field("/proc/cpuinfo", "model name");
  return model.empty() ? "unknown" : model;
}

}  // namespace catchment
