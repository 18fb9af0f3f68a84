// Sends commands to servers concurrently; none waits for the answer to another.
//
// Its thread polls gRPC for events only while commands are in flight. If several threads poll, gRPC wakes a
// different one for each event, also for events of other connections; a thread that always polled doubled the
// processor time that each call of a worker cost the master.
//
// Threads: safe; answers are delivered on a separate thread. Errors: those of the call; DeadlineExceeded if
// the server did not answer in time; InvalidArgument for a report outside its limits
// (common/net/message_limits.h).
#ifndef CATCHMENT_SERVER_HOST_SHARD_COMMANDER_H_
#define CATCHMENT_SERVER_HOST_SHARD_COMMANDER_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <set>
#include <thread>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "proto/wire.grpc.pb.h"

namespace catchment {

class ShardCommander {
 public:
  using OnAnswer =
      std::function<void(const v1::ShardCommand& command, absl::StatusOr<v1::ShardReport> answer)>;

  ShardCommander();
  // Cancels the commands in flight, and returns when the callbacks of all of them have been called.
  ~ShardCommander();

  // Sends a command that the server must answer within `seconds`. `stub` must live until the answer.
  void Send(v1::ShardService::Stub* stub, v1::ShardCommand command, double seconds, OnAnswer on_answer);

 private:
  class Call;

  void Run();
  // Blocks until a call is in flight or the commander ends. Returns true if a call is in flight.
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

#endif  // CATCHMENT_SERVER_HOST_SHARD_COMMANDER_H_
