// A function with a stack of its own that can pause anywhere in its calls, and is resumed by whoever drives
// it.
//
// The algorithms of workers are written as blocking code over Parameters, and block within a pass over the
// model (PassObserver). A simulated worker runs them unchanged on a fiber, which pauses where a real worker's
// thread would block. A thread for each worker would do the same, but not for 10,000 workers.
//
// Threads: a fiber is created, resumed and destroyed on one thread.
#ifndef CATCHMENT_SIMULATION_FIBER_H_
#define CATCHMENT_SIMULATION_FIBER_H_

#include <ucontext.h>

#include <cstddef>
#include <functional>

#include "absl/functional/function_ref.h"

namespace catchment {

class Fiber {
 public:
  // Address space of a stack. Only the pages that are used take memory.
  static constexpr size_t kStackBytes = 128 << 10;

  explicit Fiber(std::function<void()> work);
  // The fiber has ended, or was never resumed.
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // Runs the fiber until it pauses or ends. It has not ended. Not to be called from a fiber.
  void Resume();
  bool ended() const { return ended_; }

  // Pauses the fiber that calls it, until it is resumed.
  static void Pause();
  // Calls a function that may need a large stack on the stack of Resume's caller, and returns when it has
  // returned. Outside of a fiber it just calls it.
  static void CallOutside(absl::FunctionRef<void()> function);

 private:
  static void Enter();

  std::function<void()> work_;
  void* stack_ = nullptr;
  ucontext_t own_ = {};
  ucontext_t caller_ = {};
  const absl::FunctionRef<void()>* outside_ = nullptr;  // what Resume is asked to call
  bool begun_ = false;
  bool ended_ = false;
};

}  // namespace catchment

#endif  // CATCHMENT_SIMULATION_FIBER_H_
