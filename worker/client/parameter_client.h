// The center over gRPC: one stream to each server, blocks of all of them on their way at once.
//
// Every push and exchange has a sequence number. When a stream breaks it is opened again, with growing pauses,
// and the blocks that were not answered are sent again under the same number: a server applies each once.
//
// Threads: one caller at a time; Cancel from any thread.
// Errors: Unavailable when a server was not to be reached for connect_timeout seconds; FailedPrecondition when a
// server does not (or no longer) know this worker's incarnation; Cancelled after Cancel.
#ifndef CATCHMENT_WORKER_CLIENT_PARAMETER_CLIENT_H_
#define CATCHMENT_WORKER_CLIENT_PARAMETER_CLIENT_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "common/mutex.h"
#include "common/parameter_layout.h"
#include "worker/client/shard_stream.h"
#include "worker/parameters.h"

namespace catchment {

class ParameterClient final : public Parameters {
 public:
  struct Options {
    std::vector<std::string> servers;  // HOST:PORT, by shard
    std::shared_ptr<grpc::ChannelCredentials> credentials;
    std::string job;
    uint32_t worker = 0;
    uint64_t incarnation = 0;
    double connect_timeout_seconds = 60;
  };
  // Seconds that the caller waited, and payload bytes.
  struct Totals {
    double push_seconds = 0;  // pushes, also with weights, and exchanges
    double pull_seconds = 0;
    uint64_t bytes_pushed = 0;
    uint64_t bytes_pulled = 0;
  };

  // `layout` (its shards are the servers) and `clock` outlive the client. Connects at the first call.
  ParameterClient(Options options, const ParameterLayout* layout, const Clock* clock);
  ~ParameterClient() override;

  absl::Status Pull(uint64_t min_version, absl::Span<float> weights) override;
  absl::StatusOr<Outcome> Push(absl::Span<const float> gradient, uint32_t samples) override;
  absl::StatusOr<Outcome> PushPull(absl::Span<const float> gradient, uint32_t samples,
                                   absl::Span<float> weights) override;
  absl::StatusOr<Outcome> Exchange(absl::Span<const float> x, uint32_t samples,
                                   absl::Span<float> difference) override;

  // Ends the call under way and all later ones.
  void Cancel();

  Totals totals() const;

 private:
  struct ShardState;

  // What all blocks are sent for now.
  struct Operation {
    v1::Block::Operation kind = v1::Block::OPERATION_UNSET;
    uint64_t sequence = 0;
    uint64_t min_version = 0;  // of a pull
    uint32_t samples = 0;
    const float* in = nullptr;
    float* out = nullptr;
  };

  absl::StatusOr<Outcome> Run(Operation operation);
  absl::Status WaitForAnswers();
  absl::Status Reopen(int shard);
  void Open(int shard);
  void SendUnanswered(int shard);
  absl::Status OnAnswer(int shard, const BlockHeader& header, const PayloadView& payload);
  void OnClosed(int shard, const absl::Status& status);
  void CloseAll();

  const Options options_;
  const ParameterLayout& layout_;
  const Clock& clock_;

  // Changed by the caller only, while no stream has anything to answer.
  Operation operation_;
  uint64_t next_sequence_ = 1;
  std::vector<std::unique_ptr<ShardState>> shards_;

  mutable Mutex mu_;
  CondVar changed_;
  int unanswered_ ABSL_GUARDED_BY(mu_) = 0;  // blocks, over all shards
  Outcome outcome_ ABSL_GUARDED_BY(mu_);
  bool cancelled_ ABSL_GUARDED_BY(mu_) = false;
  Totals totals_ ABSL_GUARDED_BY(mu_);
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_CLIENT_PARAMETER_CLIENT_H_
