// Runs a control loop again from its log (server/control/logged_loop.h), and compares the outcomes of its
// lines.
#ifndef CATCHMENT_TESTS_SERVER_CONTROL_REPLAY_H_
#define CATCHMENT_TESTS_SERVER_CONTROL_REPLAY_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "proto/control_log.pb.h"
#include "server/control/logged_loop.h"

namespace catchment {

class Replay {
 public:
  // Calls the method of a line, or begins its run. Returns what differs from the line, as text; empty:
  // nothing.
  std::string Next(const v1::ControlLogLine& line);

  // Returns the events of all runs so far.
  const std::vector<std::string>& events() const { return events_; }

 private:
  // Returns the times of a line, and then the last of them.
  class LineClock final : public Clock {
   public:
    double Now() const override;
    void Set(std::deque<double> times) { times_ = std::move(times); }

   private:
    mutable std::deque<double> times_ = {0};
  };

  std::string Begin(const v1::ControlRun& run);
  void Make(const v1::ControlInput& input);
  void Keep(const Effects& effects);
  std::string Compare(const v1::ControlLogLine& line) const;

  LineClock clock_;
  std::deque<uint64_t> own_versions_;
  v1::ControlLogLine made_;
  std::unique_ptr<LoggedLoop> loop_;
  std::map<uint64_t, CompleteCheckpoint> checkpoints_;  // of effects, by number
  std::vector<std::string> events_;
};

// Replays the file. Returns the number of its first line that differs, and how; empty: none does.
std::string ReplayFile(const std::string& path);

// Returns the events of all runs of a file that can be replayed.
std::vector<std::string> ReplayedEvents(const std::string& path);

}  // namespace catchment

#endif  // CATCHMENT_TESTS_SERVER_CONTROL_REPLAY_H_
