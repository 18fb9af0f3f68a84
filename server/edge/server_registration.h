// Registers a server at the master.
#ifndef CATCHMENT_SERVER_EDGE_SERVER_REGISTRATION_H_
#define CATCHMENT_SERVER_EDGE_SERVER_REGISTRATION_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/rpc.h"
#include "proto/master.grpc.pb.h"
#include "server/shard/run_claim.h"

namespace catchment {

// Registers the server once a second, on a separate thread, from construction to destruction.
class ServerRegistration {
 public:
  // `on_failed` is called once, on the thread, when the master refuses the server, belongs to another run, or
  // has been unreachable for give_up_seconds. `claim` and `clock` outlive the object.
  ServerRegistration(const std::string& master, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                     v1::RegisterServerRequest request, const RunClaim* claim, double give_up_seconds,
                     const Clock* clock, std::function<void(const absl::Status&)> on_failed);
  ~ServerRegistration();

  // Notifies the master that this server must end, and therefore the job. From then on it fails sooner
  // if the master does not answer.
  void Leave();

 private:
  void Run();
  // Makes one call.
  absl::Status Register(v1::RegisterServerRequest request);

  const std::string master_;
  const std::unique_ptr<v1::MasterService::Stub> stub_;
  const RunClaim& claim_;
  const double give_up_seconds_;
  const Clock& clock_;
  const std::function<void(const absl::Status&)> on_failed_;
  Mutex mu_;
  CondVar changed_;
  v1::RegisterServerRequest request_ ABSL_GUARDED_BY(mu_);
  bool wake_now_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_SERVER_REGISTRATION_H_
