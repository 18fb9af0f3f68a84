// The links of a simulated cluster: one of each process to a switch that is never the limit, the same in both
// directions.
//
//   a message of b bytes occupies the sender's link for b / bandwidth seconds, and after the latency the
//   receiver's link for as long. A link carries messages one after another, in the order in which they reach
//   it. Workers that send to one server at the same time therefore share its link block by block.
//
// The receiver's link begins with a message as soon as its first byte arrives, so that one message alone
// takes latency + b / bandwidth.
#ifndef CATCHMENT_SIMULATION_NETWORK_H_
#define CATCHMENT_SIMULATION_NETWORK_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "simulation/event_queue.h"
#include "simulation/models.h"

namespace catchment {

// One direction of a link.
class Link {
 public:
  // Occupies the link for a message from `time`, or when it is free. Returns when the message begins.
  double Occupy(double time, double seconds) {
    const double begin = time > free_at_ ? time : free_at_;
    free_at_ = begin + seconds;
    return begin;
  }
  double free_at() const { return free_at_; }

 private:
  double free_at_ = 0;
};

struct Port {
  Link out;
  Link in;
};

class SimulatedNetwork {
 public:
  SimulatedNetwork(const NetworkModel& model, EventQueue* events) : model_(model), events_(*events) {}

  // Sends a message. Calls `left` when the sender's link is free again, if it is not null, and `arrived` when
  // the receiver has all of it.
  void Send(double bytes, Port* from, Port* to, EventQueue::Action left, EventQueue::Action arrived) {
    const double seconds = model_.bytes_per_second > 0 ? bytes / model_.bytes_per_second : 0;
    const double begin = from->out.Occupy(events_.Now(), seconds);
    if (left) events_.At(begin + seconds, std::move(left));
    events_.At(begin + model_.latency, [this, to, seconds, arrived = std::move(arrived)]() mutable {
      const double first = to->in.Occupy(events_.Now(), seconds);
      events_.At(first + seconds, std::move(arrived));
    });
  }
  // Delivers a message so small that it occupies no link.
  void SendSmall(EventQueue::Action arrived) { events_.After(model_.latency, std::move(arrived)); }

 private:
  const NetworkModel model_;
  EventQueue& events_;
};

}  // namespace catchment

#endif  // CATCHMENT_SIMULATION_NETWORK_H_
