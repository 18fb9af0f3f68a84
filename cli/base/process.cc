#include "cli/base/process.h"

#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/environment.h"
#include "common/base/file_access.h"
#include "common/program/ending_signals.h"

namespace catchment {
namespace {

// The data that the child needs between fork and exec, where only async-signal-safe calls are allowed.
struct Launch {
  std::vector<char*> argv;
  std::vector<char*> environment;
  pid_t parent = 0;
  int log_fd = -1;
  int error_fd = -1;
  int nice = 0;
};

[[noreturn]] void RunChild(const Launch& launch) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launch.parent) _exit(127);  // the parent ended before prctl
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const int null_fd = open("/dev/null", O_RDONLY);
  if (null_fd >= 0) dup2(null_fd, STDIN_FILENO);
  dup2(launch.log_fd, STDOUT_FILENO);
  dup2(launch.log_fd, STDERR_FILENO);
  if (launch.nice != 0 && nice(launch.nice) == -1) {
    // The child runs without it.
  }
  execve(launch.argv[0], launch.argv.data(), launch.environment.data());
  const int error = errno;
  if (write(launch.error_fd, &error, sizeof(error)) < 0) _exit(126);
  _exit(127);
}

std::vector<std::string> Environment(const std::vector<std::string>& defaults) {
  std::vector<std::string> all = InheritedEnvironment();
  for (const std::string& entry : defaults) {
    if (getenv(entry.substr(0, entry.find('=')).c_str()) == nullptr) all.push_back(entry);
  }
  return all;
}

// Returns the array that execve takes.
std::vector<char*> Pointers(std::vector<std::string>* strings) {
  std::vector<char*> pointers;
  for (std::string& string : *strings) pointers.push_back(string.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Returns the error of execve; 0 if it succeeded, which closes the pipe.
int ReadError(int fd) {
  int error = 0;
  ssize_t n = 0;
  do {
    n = read(fd, &error, sizeof(error));
  } while (n < 0 && errno == EINTR);
  return n == sizeof(error) ? error : 0;
}

timespec ToTimespec(double seconds) {
  seconds = std::max(seconds, 0.0);
  return {static_cast<time_t>(seconds), static_cast<long>((seconds - static_cast<time_t>(seconds)) * 1e9)};
}

void SleepSeconds(double seconds) {
  const timespec time = ToTimespec(seconds);
  nanosleep(&time, nullptr);
}

ProcessEnd Decode(int status) {
  if (WIFSIGNALED(status)) return {0, WTERMSIG(status)};
  return {WEXITSTATUS(status), 0};
}

}  // namespace

std::string ToString(const ProcessEnd& end) {
  if (end.signal == 0) return absl::StrCat("exit code ", end.exit_code);
  const char* name = sigabbrev_np(end.signal);
  return absl::StrCat("killed by SIG", name == nullptr ? "?" : name, " (", end.signal, ")");
}

std::string ShellQuoted(const std::string& arg) {
  const bool plain = !arg.empty() && std::all_of(arg.begin(), arg.end(), [](char c) {
    return absl::ascii_isalnum(c) || absl::StrContains("-_=./:,+@%", std::string(1, c));
  });
  if (plain) return arg;
  std::string quoted = "'";
  for (char c : arg) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

std::string ShellCommand(const std::string& command, const std::vector<std::string>& args) {
  std::string line = command;
  for (const std::string& arg : args) absl::StrAppend(&line, " ", ShellQuoted(arg));
  return line;
}

absl::StatusOr<Process> Process::Start(const Command& command) {
  Launch launch;
  std::vector<std::string> args = command.argv;
  std::vector<std::string> environment = Environment(command.defaults);
  launch.argv = Pointers(&args);
  launch.environment = Pointers(&environment);
  launch.parent = getpid();
  launch.nice = command.nice;
  const absl::StatusOr<int> log = OpenFile(command.log, O_WRONLY | O_CREAT | O_APPEND);
  if (!log.ok())
    return absl::Status(log.status().code(), absl::StrCat("the log file: ", log.status().message()));
  launch.log_fd = *log;
  const off_t log_start = lseek(launch.log_fd, 0, SEEK_END);
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
    const int error = errno;
    close(launch.log_fd);
    return absl::ErrnoToStatus(error, "pipe");
  }
  launch.error_fd = pipe_fds[1];
  const pid_t pid = fork();
  const int fork_error = errno;
  if (pid == 0) RunChild(launch);
  close(launch.log_fd);
  close(pipe_fds[1]);
  const int exec_error = pid < 0 ? 0 : ReadError(pipe_fds[0]);
  close(pipe_fds[0]);
  if (pid < 0) return absl::ErrnoToStatus(fork_error, absl::StrCat("cannot start ", command.name));
  Process process(command, pid, log_start);
  if (exec_error == 0) return process;
  process.WaitFor(5);
  return absl::ErrnoToStatus(exec_error, absl::StrCat("cannot start ", command.name, ": ", command.argv[0]));
}

Process::Process(Process&& other) noexcept { *this = std::move(other); }

Process& Process::operator=(Process&& other) noexcept {
  std::swap(command_, other.command_);
  std::swap(pid_, other.pid_);
  std::swap(log_start_, other.log_start_);
  std::swap(end_, other.end_);
  return *this;
}

Process::~Process() {
  if (pid_ == 0 || Poll().has_value()) return;
  Signal(SIGKILL);
  WaitFor(5);
}

std::optional<ProcessEnd> Process::Poll() {
  if (end_.has_value()) return end_;
  // Until the child is reaped, the group's id stays this group's.
  siginfo_t ended = {};
  if (command_.ends_group && waitid(P_PID, pid_, &ended, WEXITED | WNOHANG | WNOWAIT) == 0 &&
      ended.si_pid == pid_)
    kill(-pid_, SIGKILL);
  int status = 0;
  pid_t result = 0;
  do {
    result = waitpid(pid_, &status, WNOHANG);
  } while (result < 0 && errno == EINTR);
  if (result == pid_) end_ = Decode(status);
  // Another part of the program has waited for it: it has ended, but its status is not known.
  if (result < 0) end_ = ProcessEnd{255, 0};
  return end_;
}

std::optional<ProcessEnd> Process::WaitFor(double seconds) {
  constexpr double kPause = 0.01;
  for (double waited = 0; !Poll().has_value() && waited < seconds; waited += kPause) SleepSeconds(kPause);
  return end_;
}

void Process::Signal(int signal) {
  if (!Poll().has_value()) kill(pid_, signal);
}

std::string Process::Output() const {
  std::ifstream file(command_.log, std::ios::binary);
  file.seekg(log_start_);
  return std::string(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
}

std::vector<std::string> Process::LastLines(int lines) const { return catchment::LastLines(Output(), lines); }

std::vector<std::string> LastLines(const std::string& text, int lines) {
  std::vector<std::string> all = absl::StrSplit(text, '\n', absl::SkipWhitespace());
  all.erase(all.begin(), all.end() - std::min<size_t>(all.size(), lines));
  return all;
}

SignalWaiter::SignalWaiter() {
  awaited_ = EndingSignals();
  sigaddset(&awaited_, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &awaited_, &before_);
}

SignalWaiter::~SignalWaiter() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

int SignalWaiter::Wait(double seconds) {
  const timespec timeout = ToTimespec(seconds);
  const int signal = sigtimedwait(&awaited_, nullptr, &timeout);
  return std::max(signal, 0);  // -1: a timeout or an interruption
}

}  // namespace catchment
