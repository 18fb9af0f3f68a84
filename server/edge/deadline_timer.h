// Makes the updates of a shard that are due at a time (Shard::Tick), on a separate thread that sleeps until
// the next of these times, from construction to destruction.
#ifndef CATCHMENT_SERVER_EDGE_DEADLINE_TIMER_H_
#define CATCHMENT_SERVER_EDGE_DEADLINE_TIMER_H_

#include <thread>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "server/shard/deadlines.h"
#include "server/shard/shard.h"
#include "server/shard/standby_log.h"

namespace catchment {

// Threads: safe.
class DeadlineTimer {
 public:
  // Both outlive the timer. `log`: null if the shard has no standby.
  DeadlineTimer(Shard* shard, StandbyLog* log);
  ~DeadlineTimer();

  // Looks up the next time. To be called after every operation on the shard that may set an earlier one.
  void Look();

 private:
  void Run();
  // Waits until the next time. Returns false if the timer ends.
  bool Await();
  void Tick();

  Shard& shard_;
  StandbyLog* const log_;
  const SteadyClock clock_;  // as that of requests
  Mutex mu_;
  CondVar changed_;
  double next_ ABSL_GUARDED_BY(mu_) = Deadlines::kNever;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_DEADLINE_TIMER_H_
