// The threads that apply requests: one pool for a server, independent of the number of workers.
//
// Block b is assigned to thread b mod N, so two threads never need the same block, and requests for a block
// are applied in the order of their arrival.
#ifndef CATCHMENT_SERVER_EDGE_APPLY_POOL_H_
#define CATCHMENT_SERVER_EDGE_APPLY_POOL_H_

#include <memory>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "server/shard/shard.h"

namespace catchment {

// Threads: safe.
class ApplyPool {
 public:
  // The sender of a request.
  class Client {
   public:
    virtual ~Client() = default;
    // Applies the request. Called on one of the pool's threads.
    virtual void Apply(Request request) = 0;
  };

  struct Options {
    int threads = 0;   // 0: the thread that submits a request applies it
    bool pin = false;  // binds each thread to a processor that the process may run on
  };

  explicit ApplyPool(const Options& options);
  // Applies all submitted requests, and ends the threads.
  ~ApplyPool();

  // Queues the request. Does not wait, and does not limit the queue, which its callers do.
  void Submit(std::shared_ptr<Client> client, Request request);

  int threads() const { return static_cast<int>(queues_.size()); }

 private:
  struct Task {
    std::shared_ptr<Client> client;
    Request request;
  };
  struct Queue {
    Mutex mu;
    CondVar changed;
    std::vector<Task> tasks ABSL_GUARDED_BY(mu);
    bool ending ABSL_GUARDED_BY(mu) = false;
    std::thread thread;
  };

  static void Run(Queue* queue);

  std::vector<std::unique_ptr<Queue>> queues_;
};

// Returns the default number of threads for a machine with `processors`: 0 for fewer than 4, which the
// receiving threads need; otherwise half of them, at most 8.
int DefaultApplyThreads(int processors);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_APPLY_POOL_H_
