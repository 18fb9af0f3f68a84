// Child processes whose output goes to log files, and the signals of the command.
//
// A child has no input, its own process group (Ctrl-C reaches only the parent), no blocked signals, and is
// killed by the kernel when the thread that started it ends, so that no child outlives the command. Start it
// from the main thread.
//
// Threads: an object is used by one thread.
// Errors: if the program cannot be executed, Start returns NotFound, PermissionDenied and so on, naming it.
#ifndef CATCHMENT_CLI_BASE_PROCESS_H_
#define CATCHMENT_CLI_BASE_PROCESS_H_

#include <signal.h>
#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace catchment {

struct Command {
  std::string name;               // in messages: "worker-1"
  std::vector<std::string> argv;  // argv[0] is the program's path
  std::string log;                // the file to which stdout and stderr are appended
  int nice = 0;                   // added to the niceness
  // "NAME=VALUE", for names that the environment does not have.
  std::vector<std::string> defaults = {};
  // The processes of its group, such as those that a shell has started in the background, are killed when it
  // has ended.
  bool ends_group = false;
};

// The end of a process.
struct ProcessEnd {
  int exit_code = 0;
  int signal = 0;  // 0: it exited

  bool in_order() const { return exit_code == 0 && signal == 0; }
};

// Returns "exit code 1" or "killed by SIGKILL (9)".
std::string ToString(const ProcessEnd& end);

// Returns the argument quoted for a shell.
std::string ShellQuoted(const std::string& arg);
// Returns `command` and the arguments, each quoted for a shell.
std::string ShellCommand(const std::string& command, const std::vector<std::string>& args);

class Process {
 public:
  static absl::StatusOr<Process> Start(const Command& command);

  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  // Kills the child if it is running, and waits for its end.
  ~Process();

  const std::string& name() const { return command_.name; }
  pid_t pid() const { return pid_; }

  // Returns how the process ended; nothing while it runs.
  std::optional<ProcessEnd> Poll();
  // Waits until it has ended, at most `seconds`.
  std::optional<ProcessEnd> WaitFor(double seconds);
  // Sends a signal, unless the process has ended.
  void Signal(int signal);

  // Returns the content of the log since Start.
  std::string Output() const;
  // Returns the last lines of Output that are not empty, at most `lines`.
  std::vector<std::string> LastLines(int lines) const;

 private:
  Process(Command command, pid_t pid, off_t log_start)
      : command_(std::move(command)), pid_(pid), log_start_(log_start) {}

  Command command_;
  pid_t pid_ = 0;  // 0: moved from
  off_t log_start_ = 0;
  std::optional<ProcessEnd> end_;
};

// Returns the last lines of a text that are not empty, at most `lines`.
std::vector<std::string> LastLines(const std::string& text, int lines);

// Receives the EndingSignals (common/program/ending_signals.h) and SIGCHLD (a child has ended) in calls
// instead of a handler. While the object exists these signals are blocked in the thread that created it and
// in threads that are started by that. Create it before the first thread.
class SignalWaiter {
 public:
  SignalWaiter();
  ~SignalWaiter();
  SignalWaiter(const SignalWaiter&) = delete;
  SignalWaiter& operator=(const SignalWaiter&) = delete;

  // Returns the next signal, or 0 if there is none within `seconds`.
  int Wait(double seconds);

 private:
  sigset_t awaited_;
  sigset_t before_;
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_BASE_PROCESS_H_
