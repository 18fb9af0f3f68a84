// The virtual time of a simulation: a clock that stands still while an event is carried out, and moves to the
// time of the next one.
//
// Events of the same time are carried out in the order in which they were added, so a simulation has one
// order of events on every machine. Units: seconds. Threads: not thread-safe.
#ifndef CATCHMENT_SIMULATION_EVENT_QUEUE_H_
#define CATCHMENT_SIMULATION_EVENT_QUEUE_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "common/base/clock.h"

namespace catchment {

class EventQueue final : public Clock {
 public:
  using Action = std::function<void()>;

  double Now() const override { return now_; }
  // Adds an event. A time that has passed means now.
  void At(double time, Action action);
  void After(double seconds, Action action) { At(now_ + seconds, std::move(action)); }
  // Carries out the next event. Returns false if there is none.
  bool RunNext();
  uint64_t events_run() const { return events_run_; }

 private:
  struct Event {
    double time = 0;
    uint64_t number = 0;
    Action action;
  };
  // Returns true if `a` comes after `b`: the heap has the earliest event on top.
  static bool IsLater(const Event& a, const Event& b) {
    return a.time != b.time ? a.time > b.time : a.number > b.number;
  }

  double now_ = 0;
  uint64_t added_ = 0;
  uint64_t events_run_ = 0;
  std::vector<Event> heap_;
};

}  // namespace catchment

#endif  // CATCHMENT_SIMULATION_EVENT_QUEUE_H_
