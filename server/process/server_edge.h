// The listener of a server's process, and the services behind it.
#ifndef CATCHMENT_SERVER_PROCESS_SERVER_EDGE_H_
#define CATCHMENT_SERVER_PROCESS_SERVER_EDGE_H_

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/job/parameter_layout.h"
#include "server/edge/listener.h"
#include "server/edge/master_service.h"
#include "server/edge/shard_service.h"
#include "server/edge/standby_service.h"
#include "server/process/server_config.h"

namespace catchment {

// The listener, which lasts as long as the process and has its port from the first run of the job to the
// last, and the gRPC services behind it.
class ServerEdge {
 public:
  // Listens with the services of the process, and sets its address. Callers are told to wait until a run
  // begins.
  absl::Status Open(const ParameterLayout& layout, ServerConfig* config);
  // Does the same with other services. `waits`: the reason to wait that callers are told.
  absl::Status Open(const std::vector<CallService*>& services, const std::string& waits,
                    const ParameterLayout& layout, ServerConfig* config);
  // Begins to serve a run, whose services have the fronts of this object.
  void Begin() { listener_->BeginRun(); }
  // Ends the run. Without a grace a server would wait for workers that wait for it.
  void End(bool begins_again);

  const std::string& address() const { return listener_->address(); }
  // As Listener::threads.
  ConnectionThreads threads() const { return listener_->threads(); }
  // Sets the answers to the health checks of the shard and of the master.
  void SetShardServing(int index, bool serving);
  void SetMasterServing(bool serving);

  ShardService::Front* shard() { return &shard_; }
  StandbyService::Front* standby() { return &standby_; }
  MasterService* master() { return &master_; }

 private:
  const SteadyClock clock_;
  ShardService::Front shard_;
  StandbyService::Front standby_;
  MasterService master_{&clock_};
  std::optional<Listener> listener_;
};

// A run at the listener. Its end is the end of all calls of the run.
class ServedRun {
 public:
  explicit ServedRun(ServerEdge* edge) : edge_(*edge) {}
  ~ServedRun() { End(/*begins_again=*/false); }
  void End(bool begins_again) {
    if (!std::exchange(ended_, true)) edge_.End(begins_again);
  }

 private:
  ServerEdge& edge_;
  bool ended_ = false;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_PROCESS_SERVER_EDGE_H_
