// A log of events, worded for people. It keeps the last events and those that were not fetched yet.
//
// Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_MASTER_EVENT_LOG_H_
#define CATCHMENT_SERVER_MASTER_EVENT_LOG_H_

#include <cstddef>
#include <deque>
#include <string>
#include <utility>
#include <vector>

namespace catchment {

class EventLog {
 public:
  static constexpr size_t kKept = 30;

  void Add(std::string event) {
    fresh_.push_back(event);
    last_.push_back(std::move(event));
    if (last_.size() > kKept) last_.pop_front();
  }

  // Returns the last kKept events, oldest first.
  const std::deque<std::string>& last() const { return last_; }

  // Returns all events since the previous call.
  std::vector<std::string> TakeFresh() { return std::exchange(fresh_, {}); }

 private:
  std::deque<std::string> last_;
  std::vector<std::string> fresh_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_EVENT_LOG_H_
