#include "worker/attach/child_program.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/clock.h"
#include "common/base/environment.h"

namespace catchment {
namespace {

constexpr double kPollSeconds = 0.005;
// An exit code above it is a signal's.
constexpr int kShellSignal = 128;
constexpr char kMemoryHint[] =
    ", probably by the kernel for lack of memory (see dmesg): set a smaller batch_size, "
    "or run fewer workers on this machine";

void SleepSeconds(double seconds) {
  timespec time = {0, static_cast<long>(seconds * 1e9)};
  nanosleep(&time, nullptr);
}

// Closes all files from number `first` upwards. Linux before 5.9 has no call for this.
void CloseFrom(int first) {
  if (syscall(SYS_close_range, first, ~0u, 0) == 0) return;
  for (int fd = first; fd < sysconf(_SC_OPEN_MAX); ++fd) close(fd);
}

// Data for the child between fork and exec, prepared before the fork, because only async-signal-safe calls
// are allowed there.
struct Launch {
  const char* command;
  std::vector<char*> environment;
  const std::vector<int>* fds;
  pid_t parent;
};

[[noreturn]] void RunChild(const Launch& launch) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != launch.parent) _exit(127);  // the daemon ended before prctl
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  // A batch system may send its warning to all processes: the daemon obeys it, and the program ends with it.
  signal(SIGUSR1, SIG_IGN);
  signal(SIGUSR2, SIG_IGN);
  const int null_fd = open("/dev/null", O_RDONLY);
  if (null_fd >= 0) dup2(null_fd, STDIN_FILENO);
  syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, CLOSE_RANGE_CLOEXEC);
  for (const int fd : *launch.fds) fcntl(fd, F_SETFD, 0);
  const char* const argv[] = {"/bin/sh", "-c", launch.command, nullptr};
  execve(argv[0], const_cast<char* const*>(argv), launch.environment.data());
  _exit(127);
}

// Kills the group when the pipe breaks. It has a group of its own, so that a signal to the daemon's does not
// end it.
[[noreturn]] void RunWatcher(pid_t group, int pipe) {
  setpgid(0, 0);
  dup2(pipe, STDIN_FILENO);
  CloseFrom(STDIN_FILENO + 1);
  char byte;
  ssize_t n;
  do {
    n = read(STDIN_FILENO, &byte, 1);
  } while (n < 0 && errno == EINTR);
  if (n == 0) kill(-group, SIGKILL);
  _exit(0);
}

std::string DescribeSignal(int number) {
  const char* const name = sigabbrev_np(number);
  return absl::StrCat("killed by SIG", name == nullptr ? "?" : name, " (", number, ")",
                      number == SIGKILL ? kMemoryHint : "");
}

std::string Describe(const siginfo_t& end) {
  if (end.si_code != CLD_EXITED) return DescribeSignal(end.si_status);
  if (end.si_status == 0) return ChildProgram::kInOrder;
  // A shell ends so when the program that it waited for was killed.
  const int number = end.si_status - kShellSignal;
  return absl::StrCat(
      "exit code ", end.si_status,
      number > 0 && number < NSIG ? absl::StrCat(", so a process was ", DescribeSignal(number)) : "");
}

bool SameName(const std::string& a, const std::string& b) {
  const size_t equals = a.find('=');
  return equals != std::string::npos && b.compare(0, equals + 1, a, 0, equals + 1) == 0;
}

std::vector<std::string> Environment(const std::vector<std::string>& changes) {
  std::vector<std::string> all = changes;
  for (const std::string& inherited : InheritedEnvironment()) {
    const bool changed = std::any_of(changes.begin(), changes.end(),
                                     [&](const std::string& change) { return SameName(change, inherited); });
    if (!changed) all.push_back(inherited);
  }
  return all;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ChildProgram>> ChildProgram::Start(const Options& options) {
  std::vector<std::string> environment = Environment(options.environment);
  Launch launch = {options.command.c_str(), {}, &options.fds, getpid()};
  for (std::string& entry : environment) launch.environment.push_back(entry.data());
  launch.environment.push_back(nullptr);
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0)
    return absl::ErrnoToStatus(errno, "cannot create a pipe to start the program");
  const pid_t pid = fork();
  if (pid == 0) RunChild(launch);
  if (pid < 0) {
    const int error = errno;
    close(pipe_fds[0]);
    close(pipe_fds[1]);
    return absl::ErrnoToStatus(error, absl::StrCat("cannot start the program ", options.command));
  }
  setpgid(pid, pid);  // the child does so, too; whoever comes second changes nothing
  const pid_t watcher = fork();
  if (watcher == 0) RunWatcher(pid, pipe_fds[0]);
  close(pipe_fds[0]);
  return std::unique_ptr<ChildProgram>(new ChildProgram(pid, watcher, pipe_fds[1]));
}

std::optional<std::string> ChildProgram::Poll() {
  if (end_.has_value()) return end_;
  siginfo_t end = {};
  // The child is not reaped yet, so that the group's id stays this group's.
  if (waitid(P_PID, pid_, &end, WEXITED | WNOHANG | WNOWAIT) != 0 || end.si_pid == 0) return std::nullopt;
  End();
  end_ = Describe(end);
  return end_;
}

std::optional<std::string> ChildProgram::WaitFor(double seconds) {
  const SteadyClock clock;
  const double until = clock.Now() + seconds;
  while (!Poll().has_value() && clock.Now() < until) SleepSeconds(kPollSeconds);
  return end_;
}

void ChildProgram::End() {
  kill(-pid_, SIGKILL);
  // Any byte says that there is nothing left to kill.
  if (write(pipe_, "", 1) < 0) {
    // The watcher has ended.
  }
  while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (watcher_ > 0) waitpid(watcher_, nullptr, 0);
}

ChildProgram::~ChildProgram() {
  if (!end_.has_value()) End();
  close(pipe_);
}

}  // namespace catchment
