// gRPC's completion queues, with one thread for each queue.
//
// Measured: with a single thread that waits for the connections of a process, a round trip of a megabyte
// takes two thirds of the time that it takes with gRPC's own callback threads, which wake each other for each
// event.
#ifndef CATCHMENT_COMMON_NET_COMPLETION_H_
#define CATCHMENT_COMMON_NET_COMPLETION_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

namespace catchment {

// An operation that is started in gRPC.
class Completion {
 public:
  // Returns the operation's tag for gRPC. Everything that the calling thread did before happens before Done:
  // gRPC ensures that, but with locks that ThreadSanitizer does not see, hence the atomic.
  void* Tag() {
    given_.store(true, std::memory_order_release);
    return this;
  }
  static void Run(void* tag, bool ok) {
    auto* const completion = static_cast<Completion*>(tag);
    completion->given_.load(std::memory_order_acquire);
    completion->Done(ok);
  }

  // Called on the queue's thread. `ok` is true if the operation succeeded.
  virtual void Done(bool ok) = 0;

 protected:
  ~Completion() = default;

 private:
  std::atomic<bool> given_{false};
};

// A completion that calls a method of its owner; an object has one for each kind of operation.
template <typename Owner>
class MemberCompletion final : public Completion {
 public:
  MemberCompletion(Owner* owner, void (Owner::*method)(bool)) : owner_(*owner), method_(method) {}
  void Done(bool ok) override { (owner_.*method_)(ok); }

 private:
  Owner& owner_;
  void (Owner::*const method_)(bool);
};

// Runs the completions of a queue, from construction to destruction. All tags are Completions.
class CompletionThread {
 public:
  // `name` is the thread's name, at most 15 characters.
  CompletionThread(std::unique_ptr<grpc::CompletionQueue> queue, const std::string& name);
  // Waits for all operations in progress. No more may be started.
  ~CompletionThread();

  grpc::CompletionQueue* queue() { return queue_.get(); }

 private:
  const std::unique_ptr<grpc::CompletionQueue> queue_;
  std::thread thread_;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_NET_COMPLETION_H_
