// The thread that waits for a process's pipes (message_pipe.h).
#ifndef CATCHMENT_COMMON_NET_PIPE_THREAD_H_
#define CATCHMENT_COMMON_NET_PIPE_THREAD_H_

#include <grpcpp/grpcpp.h>

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "common/net/listen.h"

namespace catchment {

class MessagePipe;

// It runs from the first pipe on.
//
// Threads: safe.
class PipeThread {
 public:
  // `name` is the thread's name, at most 15 characters.
  explicit PipeThread(std::string name);
  // All pipes have been left.
  ~PipeThread();

 private:
  friend class MessagePipe;
  enum Direction { kInput, kOutput };

  absl::Status Add(const std::shared_ptr<MessagePipe>& pipe);
  void Remove(uint64_t id);
  // Begins or ends to call the pipe when its file is ready. Returns false if the operating system does not
  // have the memory.
  bool Watch(int fd, uint64_t id, Direction direction, bool watch);
  // Lets OnReadable and OnWritable run.
  void Nudge(uint64_t id);
  // Adds the pipes that were nudged to the turn. Returns false at the end.
  bool TakeNudged(std::vector<uint64_t>* turn);

  absl::Status Start() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Run();
  std::shared_ptr<MessagePipe> Find(uint64_t id);

  const std::string name_;
  Fd epoll_, nudge_;  // an eventfd; set by Start
  Mutex mu_;
  std::unordered_map<uint64_t, std::shared_ptr<MessagePipe>> pipes_ ABSL_GUARDED_BY(mu_);
  std::vector<uint64_t> nudged_ ABSL_GUARDED_BY(mu_);
  uint64_t last_id_ ABSL_GUARDED_BY(mu_) = 0;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

// The threads of a process's connections.
struct ConnectionThreads {
  grpc::CompletionQueue* queue = nullptr;  // of Completions
  PipeThread* pipes = nullptr;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_NET_PIPE_THREAD_H_
