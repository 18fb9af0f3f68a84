// CUDA streams as queues whose work is done late, in an order that a test chooses, as far as events allow. A
// program that lacks a wait for an event then computes with values of another moment.
//
// Threads: one at a time; the runtime has a lock.
#ifndef CATCHMENT_TESTS_KERNELS_CUDA_PTX_SCHEDULER_H_
#define CATCHMENT_TESTS_KERNELS_CUDA_PTX_SCHEDULER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace catchment::ptx {

// Prints "ptx emulator: MESSAGE" to standard error and aborts: the program under test has made a mistake.
[[noreturn]] void Fault(const std::string& message);

struct Event {
  uint64_t recorded = 0;  // times
  uint64_t reached = 0;   // the latest of them that the stream has come to
  size_t operations = 0;  // recorded before the latest one (recorder.h)
  uint64_t awaited = 0;   // the latest of them that the host has waited for
  bool polled = false;    // the host has asked whether it is reached
};

class Stream {
 public:
  bool empty() const { return operations_.empty(); }

 private:
  friend class Scheduler;
  struct Operation {
    std::function<void()> run;
    // For a wait, in place of `run`: until the event has been reached `times` times.
    const Event* awaited = nullptr;
    uint64_t times = 0;
  };

  std::deque<Operation> operations_;
  uint64_t number_ = 0;
};

class Scheduler {
 public:
  // The order is that of $CATCHMENT_PTX_ORDER when the first stream is made:
  //   eager         everything at once, as on an idle device
  //   lazy          nothing until the host waits for it
  //   first:N       as much as possible of streams N, N + 3, ..., N from 0 to 2, before the others. A device
  //                 of the plugin makes three: for kernels, for copies to the device and for copies from it
  //   random:SEED   some operations of random streams at each call
  // Without the variable: eager.
  Stream* MakeStream();
  void Destroy(Stream* stream);

  void Add(Stream* stream, std::function<void()> operation);
  void Record(Event* event, Stream* stream);
  void Wait(Stream* stream, const Event* event);

  // Runs operations, in random order of the streams and no more than necessary, until `done` returns true. A
  // fault if it never does.
  void RunUntil(const std::function<bool()>& done);
  void RunAll();

 private:
  enum class Order { kEager, kLazy, kFirst, kRandom };

  void ReadOrder();
  // Runs what the order allows at a call of the host's.
  void Advance();
  // Runs the stream's next operation. Returns false if it has none that can run.
  bool Step(Stream* stream);
  void Drain(Stream* stream);

  std::vector<Stream*> streams_;
  Order order_ = Order::kEager;
  uint64_t first_ = 0;
  uint64_t made_ = 0;  // streams
  std::mt19937_64 random_;
};

}  // namespace catchment::ptx

#endif  // CATCHMENT_TESTS_KERNELS_CUDA_PTX_SCHEDULER_H_
