#include "simulation/event_queue.h"

#include <algorithm>
#include <utility>

namespace catchment {

void EventQueue::At(double time, Action action) {
  heap_.push_back({std::max(time, now_), added_++, std::move(action)});
  std::push_heap(heap_.begin(), heap_.end(), IsLater);
}

bool EventQueue::RunNext() {
  if (heap_.empty()) return false;
  std::pop_heap(heap_.begin(), heap_.end(), IsLater);
  Event event = std::move(heap_.back());
  heap_.pop_back();
  now_ = event.time;
  ++events_run_;
  event.action();
  return true;
}

}  // namespace catchment
