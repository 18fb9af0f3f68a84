// A user's program as a child of the daemon, with all its processes in one process group.
//
// None of the group outlives the daemon, however that ends: the kernel kills the child when the thread that
// started it ends, and a watching process, which shares nothing with the daemon but a pipe, kills the whole
// group when the pipe breaks. None outlives the child: the daemon kills the rest of the group when the child
// has ended.
//
// Threads: not thread-safe. Start must be called on a thread that lasts, such as the main one.
#ifndef CATCHMENT_WORKER_ATTACH_CHILD_PROGRAM_H_
#define CATCHMENT_WORKER_ATTACH_CHILD_PROGRAM_H_

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace catchment {

class ChildProgram {
 public:
  struct Options {
    std::string command;                   // for /bin/sh -c
    std::vector<std::string> environment;  // "NAME=VALUE", overrides the daemon's
    std::vector<int> fds;                  // which it keeps, under the same numbers
  };

  // Starts the program, which inherits the daemon's output and has no input.
  static absl::StatusOr<std::unique_ptr<ChildProgram>> Start(const Options& options);

  // Kills the remaining processes of the group.
  ~ChildProgram();
  ChildProgram(const ChildProgram&) = delete;
  ChildProgram& operator=(const ChildProgram&) = delete;

  pid_t pid() const { return pid_; }

  // Poll of a program that ended without an error.
  static constexpr char kInOrder[] = "exit code 0";
  // Returns "exit code 1" or "killed by SIGSEGV (11)"; nothing while it runs. SIGKILL is explained.
  std::optional<std::string> Poll();
  // Waits until it has ended, at most `seconds`.
  std::optional<std::string> WaitFor(double seconds);

 private:
  ChildProgram(pid_t pid, pid_t watcher, int pipe) : pid_(pid), watcher_(watcher), pipe_(pipe) {}

  // Kills the group and waits for the child and the watcher.
  void End();

  const pid_t pid_;      // and its group's id
  const pid_t watcher_;  // -1: there is none
  const int pipe_;       // the watcher's, to write to
  std::optional<std::string> end_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_ATTACH_CHILD_PROGRAM_H_
