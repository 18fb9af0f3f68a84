// Logs the progress of the master's job: its state at every tenth of the budget and at least once a minute,
// and each score. The caller passes the time.
//
// Units: seconds. Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_OUTPUTS_PROGRESS_LOG_H_
#define CATCHMENT_SERVER_OUTPUTS_PROGRESS_LOG_H_

#include <cstdint>
#include <string>
#include <vector>

#include "proto/master.pb.h"

namespace catchment {

class ProgressLog {
 public:
  struct Entry {
    std::string event;  // "progress" or "evaluation"
    std::string line;
  };
  static constexpr double kSeconds = 60;

  explicit ProgressLog(double now) : next_time_(now + kSeconds) {}

  // Returns true if Entries has any for a job that has trained so many samples, without a new score.
  bool IsDue(uint64_t samples, double now) const { return now >= next_time_ || samples >= next_samples_; }
  // Returns the entries that are due. `scored`: the status has a score that no line had.
  std::vector<Entry> Entries(const v1::JobStatus& status, bool scored, double now);

 private:
  double next_time_;
  uint64_t next_samples_ = 1;  // then the budget is known
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OUTPUTS_PROGRESS_LOG_H_
