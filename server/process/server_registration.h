// Registers a server at the master.
#ifndef CATCHMENT_SERVER_PROCESS_SERVER_REGISTRATION_H_
#define CATCHMENT_SERVER_PROCESS_SERVER_REGISTRATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/net/rpc.h"
#include "proto/master.grpc.pb.h"
#include "server/shard/run_claim.h"

namespace catchment {

// Registers the server once a second, on a separate thread, from construction to destruction.
class ServerRegistration {
 public:
  // Called on the thread; of on_ended, on_failed and on_begin_again one is called, once, after which the
  // thread ends.
  struct Callbacks {
    std::function<uint64_t()> version;  // of the shard
    std::function<uint64_t()> epoch;    // of the shard, with a standby; null: 0
    // Called with each answer, if the server is registered; may be null.
    std::function<void(const v1::RegisterServerReply&)> on_registered;
    // Called with how the job has ended, if it has ended without the server.
    std::function<void(const std::string&)> on_ended;
    // The master refuses the server, or has been unreachable for give_up_seconds.
    std::function<void(const absl::Status&)> on_failed;
    // The server must begin again, from a checkpoint or with the copy of a standby.
    std::function<void(const v1::RegisterServerReply&)> on_begin_again;
  };

  // `claim` and `clock` outlive the object.
  ServerRegistration(const std::string& master, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                     v1::RegisterServerRequest request, const RunClaim* claim, double give_up_seconds,
                     const Clock* clock, Callbacks callbacks);
  ~ServerRegistration();

  // Notifies the master that this server must end, and therefore the job, and why. From then on it fails
  // sooner if the master does not answer.
  void Leave(const std::string& why);
  // Tells the master why the server ends. Waits for at most a few seconds.
  static void Report(const std::string& master, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                     v1::RegisterServerRequest request, const absl::Status& failure);

 private:
  void Run();
  // Makes one call.
  absl::StatusOr<v1::RegisterServerReply> Register(v1::RegisterServerRequest request);

  const std::string master_;
  const std::unique_ptr<v1::MasterService::Stub> stub_;
  const RunClaim& claim_;
  const double give_up_seconds_;
  const Clock& clock_;
  const Callbacks callbacks_;
  Mutex mu_;
  CondVar changed_;
  v1::RegisterServerRequest request_ ABSL_GUARDED_BY(mu_);
  bool wake_now_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_PROCESS_SERVER_REGISTRATION_H_
