// Sends the worker's heartbeats, with its progress, to the master several times in each
// heartbeat_timeout_seconds.
#ifndef CATCHMENT_WORKER_LOOP_HEARTBEAT_H_
#define CATCHMENT_WORKER_LOOP_HEARTBEAT_H_

#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "common/base/mutex.h"
#include "proto/master.pb.h"
#include "worker/loop/master_client.h"
#include "worker/stop_flag.h"

namespace catchment {

// Runs its own thread, from construction to destruction, which makes the calls. on_stop and on_lost are
// called at most once each.
class Heartbeat {
 public:
  struct Callbacks {
    std::function<v1::Progress()> progress;
    // Called when the master asks the worker to end.
    std::function<void(const std::string& reason)> on_stop;
    // Called when the worker has lost its membership, or the master could not be reached for
    // `give_up_seconds`.
    std::function<void(const absl::Status& status)> on_lost;
  };

  // `request` names role, worker and incarnation. master outlives the heartbeat.
  Heartbeat(v1::HeartbeatRequest request, double heartbeat_timeout_seconds, double give_up_seconds,
            MasterClient* master, const Clock* clock, Callbacks callbacks);
  ~Heartbeat();

 private:
  void Run();

  v1::HeartbeatRequest request_;
  const double heartbeat_timeout_seconds_;
  const double give_up_seconds_;
  MasterClient& master_;
  const Clock& clock_;
  const Callbacks callbacks_;
  StopFlag end_;
  std::thread thread_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_LOOP_HEARTBEAT_H_
