// One thread of a simulated process: code that sleeps and waits in virtual time.
#ifndef CATCHMENT_SIMULATION_PROCESS_H_
#define CATCHMENT_SIMULATION_PROCESS_H_

#include <functional>
#include <utility>

#include "simulation/event_queue.h"
#include "simulation/fiber.h"

namespace catchment {

class SimulatedProcess {
 public:
  // `events` outlives the process, whose work has ended, or never began, when it is destroyed.
  SimulatedProcess(EventQueue* events, std::function<void()> work)
      : events_(*events), fiber_(std::move(work)) {}

  // Begins the work at the current time.
  void Start() {
    waiting_ = true;
    Wake();
  }

  // For the work itself: waits until Wake is called. It may return without a call, so the caller checks again
  // what it waits for.
  void Wait() {
    waiting_ = true;
    Fiber::Pause();
  }
  // Waits until a time, or until Interrupt is called.
  void SleepUntil(double time) {
    if (interrupted_ || time <= events_.Now()) return;
    events_.At(time, [this] { Resume(); });
    while (!interrupted_ && events_.Now() < time) Wait();
  }

  // Lets the work go on at the current time, after the event in progress.
  void Wake() {
    if (!waiting_ || woken_) return;
    woken_ = true;
    events_.After(0, [this] {
      woken_ = false;
      Resume();
    });
  }
  // Ends the sleep under way and all later ones, until Clear.
  void Interrupt() {
    interrupted_ = true;
    Wake();
  }
  void Clear() { interrupted_ = false; }

  bool ended() const { return fiber_.ended(); }

 private:
  void Resume() {
    if (!std::exchange(waiting_, false)) return;
    fiber_.Resume();
  }

  EventQueue& events_;
  Fiber fiber_;
  bool waiting_ = false;
  bool woken_ = false;
  bool interrupted_ = false;
};

}  // namespace catchment

#endif  // CATCHMENT_SIMULATION_PROCESS_H_
