// A log of events, worded for people. It keeps the last events and those that were not fetched yet. An event
// is one line: line breaks and control characters in it are escaped.
//
// Units: seconds. Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_CONTROL_EVENT_LOG_H_
#define CATCHMENT_SERVER_CONTROL_EVENT_LOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/text.h"
#include "common/base/token_bucket.h"

namespace catchment {

struct JobEvent {
  // Kinds of events that curves are marked with: a worker was lost, a checkpoint is complete, the job went
  // back to one or a standby restored a process.
  static constexpr char kLost[] = "lost", kCheckpoint[] = "checkpoint", kRecovered[] = "recovered";

  std::string text;
  std::string kind;                // "": another
  std::optional<uint32_t> worker;  // that was lost
  double wall_seconds = 0;         // the time of training
};

class EventLog {
 public:
  static constexpr size_t kKept = 30;
  // The limit for the events of all members together: a member may register and leave as often as it wants,
  // and each event may have a kilobyte of its words.
  static constexpr double kBurst = 2000, kPerSecond = 1;

  // `members`: those that the job expects, for whose joining and leaving there is room besides.
  explicit EventLog(double members = 0) : burst_(kBurst + 2 * members) {}

  void Add(absl::string_view event, absl::string_view kind = "") {
    last_.push_back(OneLine(event));
    fresh_.push_back({.text = last_.back(), .kind = std::string(kind)});
    if (last_.size() > kKept) last_.pop_front();
  }

  // Adds the loss of a worker; of another member it is like any event.
  void AddLoss(absl::string_view event, std::optional<uint32_t> worker) {
    Add(event, worker ? JobEvent::kLost : "");
    fresh_.back().worker = worker;
  }

  // Adds an event that a member causes, the loss of a worker if it is given. Beyond the limit it is only
  // counted.
  void AddOfMember(absl::string_view event, double now, std::optional<uint32_t> lost = std::nullopt) {
    if (!of_members_) of_members_.emplace(kPerSecond, burst_, now);
    if (of_members_->Take(now)) {
      AddLeftOut();
      AddLoss(event, lost);
    } else {
      ++left_out_;
    }
  }

  // Adds an event about those that were only counted, once the limit permits it.
  void Tick(double now) {
    if (left_out_ > 0 && of_members_->Take(now)) AddLeftOut();
  }

  // Returns the last kKept events, oldest first.
  const std::deque<std::string>& last() const { return last_; }

  // Returns all events since the previous call.
  std::vector<JobEvent> TakeFresh() { return std::exchange(fresh_, {}); }

 private:
  void AddLeftOut() {
    if (left_out_ == 0) return;
    Add(absl::StrCat(std::exchange(left_out_, 0),
                     " further events of members are left out: there were more than ", burst_,
                     " at once and then ", kPerSecond, " a second"));
  }

  const double burst_;
  std::deque<std::string> last_;
  std::vector<JobEvent> fresh_;
  std::optional<TokenBucket> of_members_;
  uint64_t left_out_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_EVENT_LOG_H_
