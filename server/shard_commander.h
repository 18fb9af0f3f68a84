// Sends commands to servers, as many side by side as are asked for: none waits for another's answer.
//
// Threads: safe; answers are delivered on a thread of its own. Errors: those of the call, DeadlineExceeded
// where the server took longer than it was given.
#ifndef CATCHMENT_SERVER_SHARD_COMMANDER_H_
#define CATCHMENT_SERVER_SHARD_COMMANDER_H_

#include <functional>
#include <set>

#include "absl/status/statusor.h"
#include "common/completion.h"
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

  void Leave(Call* call);

  Mutex mu_;
  std::set<Call*> calls_ ABSL_GUARDED_BY(mu_);
  CompletionThread thread_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_COMMANDER_H_
