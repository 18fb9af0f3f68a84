#include "tests/benchmarks/wire_process.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace catchment {

Subprocess::Subprocess(const std::vector<std::string>& flags) {
  int in[2], out[2];
  PCHECK(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, out[1], STDOUT_FILENO);
  std::vector<std::string> words = {"wire"};
  words.insert(words.end(), flags.begin(), flags.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  CHECK_EQ(posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
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

ProcessUsage UsageOfThisProcess() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) { return t.tv_sec + 1e-6 * t.tv_usec; };
  return {seconds(usage.ru_utime) + seconds(usage.ru_stime), static_cast<double>(usage.ru_nvcsw)};
}

}  // namespace catchment
