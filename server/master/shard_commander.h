// Sends commands to servers, as many side by side as are asked for: none waits for another's answer.
//
// Its thread looks for events of gRPC only while commands are under way. Of several threads that do, gRPC
// wakes another one for every event, also of connections that are none of its own: with one that always
// looks, each call of a worker cost the master twice the processor time.
//
// Threads: safe; answers are delivered on a thread of its own. Errors: those of the call, DeadlineExceeded
// where the server took longer than it was given.
#ifndef CATCHMENT_SERVER_MASTER_SHARD_COMMANDER_H_
#define CATCHMENT_SERVER_MASTER_SHARD_COMMANDER_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <set>
#include <thread>

#include "absl/status/statusor.h"
#include "common/mutex.h"
#include "proto/wire.grpc.pb.h"

namespace catchment {

class ShardCommander {
 public:
  using OnAnswer =
      std::function<void(const v1::ShardCommand& command, absl::StatusOr<v1::ShardReport> answer)>;

  ShardCommander();
  // Breaks off what is under way, and returns when all of it has been answered.
  ~ShardCommander();

  // `seconds`: how long the server may take. `stub` lives until the answer.
  void Send(v1::ShardService::Stub* stub, v1::ShardCommand command, double seconds, OnAnswer on_answer);

 private:
  class Call;

  void Run();
  // Returns whether a call is under way, once one is or the commander ends.
  bool AwaitCall();
  void Leave(Call* call);

  Mutex mu_;
  CondVar changed_;
  std::set<Call*> calls_ ABSL_GUARDED_BY(mu_);
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  grpc::CompletionQueue queue_;
  std::thread thread_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_SHARD_COMMANDER_H_
