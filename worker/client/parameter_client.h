// The center over gRPC: one channel to each server (server_channel.h), with blocks of all servers in flight
// at the same time.
//
// A block is sent as soon as all of its values are Ready, the lowest index first (block_schedule.h), and its
// answer is written to the caller's memory. Every push and exchange has a sequence number. When a stream
// breaks, the next wait opens it again, with growing pauses, and the blocks that were not answered are sent
// again under the same number: a server applies each once. With a codec (docs/codecs.md) a block is encoded
// once, and the same bytes are sent again.
//
// Threads: one caller at a time; Cancel and totals from any. In steady state no block allocates memory of
// ours. Errors: Unavailable if a server was unreachable for connect_timeout seconds; Aborted if a server does
// not (or no longer) know this worker's incarnation, which a new registration resolves; FailedPrecondition if
// it has another job, model or protocol version; Cancelled after Cancel.
#ifndef CATCHMENT_WORKER_CLIENT_PARAMETER_CLIENT_H_
#define CATCHMENT_WORKER_CLIENT_PARAMETER_CLIENT_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/shared_arena.h"
#include "common/job/parameter_layout.h"
#include "common/net/completion.h"
#include "proto/job.pb.h"
#include "proto/wire.pb.h"
#include "worker/client/server_channel.h"
#include "worker/client/transfer_totals.h"
#include "worker/parameters.h"
#include "worker/worker_state.h"

namespace catchment {

class ParameterClient final : public Parameters, private ServerChannel::Owner {
 public:
  struct Options {
    std::vector<std::string> servers;  // HOST:PORT, by shard
    std::shared_ptr<grpc::ChannelCredentials> credentials;
    std::string job;
    uint32_t worker = 0;
    uint64_t incarnation = 0;
    double connect_timeout_seconds = 60;
    v1::Compression compression;  // complete and valid, or empty: none
    uint64_t run_id = 0;          // GetJobReply.run_id
    std::string token;            // RegisterReply.token
    bool shared_memory = true;    // with servers on this machine
    // Memory outside of memory() that has inputs, too, and outlives the client; null: there is none.
    const SharedMemory* inputs = nullptr;
  };
  using Totals = TransferTotals;

  // `layout` (its shards are the servers) and `clock` outlive the client. Connects at the first operation.
  ParameterClient(Options options, const ParameterLayout* layout, const Clock* clock);
  // An operation that was not finished is given up.
  ~ParameterClient() override;

  void Start(const Operation& operation) override;
  void Ready(Range range) override;
  absl::Status Await(Range range) override;
  using Parameters::Finish;
  absl::StatusOr<Outcome> Finish(int fragment) override;
  bool IsDone(int fragment) const override;
  int num_fragments() const override { return layout_.num_fragments(); }
  std::vector<Range> fragment(int fragment) const override { return layout_.fragment(fragment); }
  bool Called(int fragment) override;
  std::pmr::memory_resource* memory() override {
    return arena_ == nullptr ? Parameters::memory() : arena_.get();
  }

  // Returns the highest version of a block in an answer; 0: there was none.
  uint64_t highest_version() const;

  // Returns the residuals of error feedback, one for each parameter, and none for other codecs. Ends the
  // operation in progress.
  std::vector<float> TakeResidual();
  // Continues with the residuals of an earlier client of the same job and layout, before the first operation.
  void SetResidual(absl::Span<const float> residual);

  // Adds the residuals of error feedback. No operation is under way, nor is one while the state is read or
  // restored.
  void ListState(WorkerState* state);

  // Ends the wait under way and all later ones.
  void Cancel();

  Totals totals() const;
  // Returns the number of servers that exchange payloads through shared memory now.
  uint32_t shared_memory_servers() const;
  // Returns for how long the caller has waited without a block being sent or answered; 0 if it does not wait.
  double stalled_seconds() const;

 private:
  // These require mu_, and record what happens on a channel.
  void OnTaken(uint32_t fragment) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnSent(size_t bytes) override ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnAnswered(uint32_t fragment, Range block, const Outcome& outcome, size_t bytes) override
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnStreamClosed() override { changed_.Notify(); }

  v1::Hello HelloTo(int shard) const;
  // The state of a fragment's operation.
  struct Transfer {
    int64_t missing = 0;  // values of the input that are not Ready
    int unanswered = 0;   // blocks, over all shards
    double ready_at = 0;  // when all of the input was Ready
    double left_at = 0;   // when the last block left
    Outcome outcome;
  };
  // The blocks of a fragment that hold some of these values, for which the caller waits.
  struct Awaited {
    int fragment = 0;
    Range range;
    int blocks = 0;  // unanswered
  };

  absl::Status WaitFor(int fragment, Range range);
  absl::Status WaitForAnswers(int fragment, Range range);
  int CountUnanswered(int fragment, Range range) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns a channel whose stream is broken; null: there is none.
  ServerChannel* FindBroken() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status Reopen(ServerChannel* server);
  void GiveUp();

  bool AllSent(uint32_t fragment) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void CountWait(int fragment, double from, double to) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  const ParameterLayout& layout_;
  const Clock& clock_;
  PipeThread pipes_{"pipes"};
  CompletionThread connections_;

  std::vector<ServerChannel::Current> current_;  // by fragment

  mutable Mutex mu_;
  CondVar changed_;
  std::vector<Transfer> transfers_ ABSL_GUARDED_BY(mu_);  // by fragment
  int started_ ABSL_GUARDED_BY(mu_) = 0;                  // the fragment whose input becomes Ready
  Awaited awaited_ ABSL_GUARDED_BY(mu_);
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  bool waiting_ ABSL_GUARDED_BY(mu_) = false;  // the caller, since moved_at_ or longer
  double moved_at_ ABSL_GUARDED_BY(mu_) = 0;
  Totals totals_ ABSL_GUARDED_BY(mu_);

  const std::shared_ptr<SharedArena> arena_;             // null: no memory is shared
  std::vector<std::unique_ptr<ServerChannel>> servers_;  // by shard
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_CLIENT_PARAMETER_CLIENT_H_
