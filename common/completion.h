// gRPC's completion queues, one thread to a queue.
//
// Measured: with one thread alone waiting for the connections of a process a megabyte goes round in two
// thirds of the time that gRPC's own callback threads take, which wake each other for every event.
#ifndef CATCHMENT_COMMON_COMPLETION_H_
#define CATCHMENT_COMMON_COMPLETION_H_

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>

namespace catchment {

// An operation that gRPC is given.
class Completion {
 public:
  // For gRPC, as the operation's tag. Whatever the thread that gives it has done comes before Done: gRPC sees
  // to that, but with locks that ThreadSanitizer does not see, hence the atomic.
  void* Tag() {
    given_.store(true, std::memory_order_release);
    return this;
  }
  static void Run(void* tag, bool ok) {
    auto* const completion = static_cast<Completion*>(tag);
    completion->given_.load(std::memory_order_acquire);
    completion->Done(ok);
  }

  // On the queue's thread. `ok`: the operation did what it was asked to.
  virtual void Done(bool ok) = 0;

 protected:
  ~Completion() = default;

 private:
  std::atomic<bool> given_{false};
};

// A completion that calls one method of its owner: an object with several kinds of operation has one of each.
template <typename Owner>
class MemberCompletion final : public Completion {
 public:
  MemberCompletion(Owner* owner, void (Owner::*method)(bool)) : owner_(*owner), method_(method) {}
  void Done(bool ok) override { (owner_.*method_)(ok); }

 private:
  Owner& owner_;
  void (Owner::*const method_)(bool);
};

// Runs what completes on a queue, from construction to destruction. All tags are Completions.
class CompletionThread {
 public:
  // `name`, at most 15 characters, is what tools show of the thread.
  CompletionThread(std::unique_ptr<grpc::CompletionQueue> queue, const std::string& name);
  // Runs what has been started to its end first. Nothing more may be started.
  ~CompletionThread();

  grpc::CompletionQueue* queue() { return queue_.get(); }

 private:
  const std::unique_ptr<grpc::CompletionQueue> queue_;
  std::thread thread_;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_COMPLETION_H_
