// A child process: started, watched and ended, with its output in a log file.
//
// The child has no input, a process group of its own (a terminal's Ctrl-C reaches the parent alone), no
// blocked signals, and is killed by the kernel when the thread that started it ends: none outlives the
// command, however that ends. So it must be started from a thread that lasts, the main one.
//
// Threads: none; used by one.
// Errors: NotFound, PermissionDenied, ... from Start when the program cannot be executed, naming it.
#ifndef CATCHMENT_CLI_PROCESS_H_
#define CATCHMENT_CLI_PROCESS_H_

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace catchment {

struct Command {
  std::string name;               // for people: "worker-1"
  std::vector<std::string> argv;  // argv[0] is the program's path
  std::string log;                // file that stdout and stderr are appended to
  int nice = 0;                   // added to the niceness
  // "NAME=VALUE", where the environment has no NAME.
  std::vector<std::string> defaults = {};
};

// How a process ended.
struct ProcessEnd {
  int exit_code = 0;
  int signal = 0;  // 0: it exited by itself

  bool in_order() const { return exit_code == 0 && signal == 0; }
};

// "exit code 1", "killed by SIGKILL (9)".
std::string ToString(const ProcessEnd& end);

class Process {
 public:
  static absl::StatusOr<Process> Start(const Command& command);

  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  // Kills the child, if it runs, and waits for it.
  ~Process();

  const std::string& name() const { return command_.name; }
  pid_t pid() const { return pid_; }

  // Looks once; nothing while it runs. After the end always the same.
  std::optional<ProcessEnd> Poll();
  // Looks until it ended or `seconds` have passed.
  std::optional<ProcessEnd> WaitFor(double seconds);
  // Does nothing when it has ended.
  void Signal(int signal);

  // What it has written to its log since Start.
  std::string Output() const;
  // The last non-empty lines of that, at most `lines`.
  std::vector<std::string> LastLines(int lines) const;

 private:
  Process(Command command, pid_t pid, off_t log_start)
      : command_(std::move(command)), pid_(pid), log_start_(log_start) {}

  Command command_;
  pid_t pid_ = 0;  // 0: moved from
  off_t log_start_ = 0;
  std::optional<ProcessEnd> end_;
};

// The last `lines` non-empty lines of text.
std::vector<std::string> LastLines(const std::string& text, int lines);

// The command's signals, taken where it waits instead of in a handler: SIGINT, SIGTERM and SIGHUP (end), and
// SIGCHLD (a child ended).
// From its making to its end these signals are blocked in the calling thread and in all that are started
// meanwhile. Make it before the first thread.
class SignalWaiter {
 public:
  SignalWaiter();
  ~SignalWaiter();
  SignalWaiter(const SignalWaiter&) = delete;
  SignalWaiter& operator=(const SignalWaiter&) = delete;

  // The next signal, or 0 after `seconds` without one.
  int Wait(double seconds);

 private:
  sigset_t awaited_;
  sigset_t before_;
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_PROCESS_H_
