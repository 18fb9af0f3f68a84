// The servers of a job but the master, as far as the control plane sees them: each is a real shard that takes
// the master's commands over gRPC, and pushes by function calls instead of streams.
#ifndef CATCHMENT_TESTS_BENCHMARKS_CONTROL_SERVERS_H_
#define CATCHMENT_TESTS_BENCHMARKS_CONTROL_SERVERS_H_

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/job/parameter_layout.h"
#include "proto/wire.grpc.pb.h"
#include "server/edge/calls.h"
#include "server/edge/listener.h"
#include "server/host/shard_host.h"

namespace catchment {

// Threads: Push and Flush are for one thread; the rest is safe.
class SimulatedServers final : public CallService {
 public:
  // Servers 1 .. num_servers - 1 of the job, which all listen at one address. `job` has its defaults.
  SimulatedServers(const v1::Job& job, std::vector<TensorSpec> tensors, int num_servers);
  ~SimulatedServers() override;

  // HOST:PORT.
  const std::string& address() const { return listener_->address(); }
  // Registers all of them with the master.
  absl::Status Register(const v1::Job& job, const std::string& master);
  // Pushes a gradient of one worker's step to kShardsPerStep shards, in turn: this process could not keep up
  // with all of many shards and workers. A shard refuses the push of a worker that it has not heard of.
  static constexpr size_t kShardsPerStep = 8;
  absl::Status Push(uint32_t worker, uint64_t incarnation, uint64_t step);
  // Pushes to all shards, the master's among them, which have all steps up to this one then. Once for a
  // worker.
  absl::Status Flush(uint64_t run_id, const v1::RegisterReply& worker, uint64_t step);

  grpc::Service* grpc_service() override { return &service_; }
  void Accept(CallQueue* queue) override;

 private:
  using Async = v1::ShardService::AsyncService;

  // The last push of a worker at a server.
  struct Last {
    uint64_t sequence = 0;  // of the push
    uint64_t version = 0;   // of the weights that were returned
    uint64_t steps = 0;     // in all pushes
  };

  absl::Status PushTo(size_t server, uint32_t worker, uint64_t incarnation, uint64_t step);
  absl::Status PushToMaster(uint64_t run_id, const v1::RegisterReply& worker, uint64_t step);

  const std::string job_;
  const ParameterLayout layout_;
  const SteadyClock clock_;
  std::vector<std::unique_ptr<ShardHost>> hosts_;  // from server 1 on
  std::vector<std::vector<Last>> last_;            // by server and worker
  std::unique_ptr<v1::ShardService::Stub> master_;
  Async service_;
  std::unique_ptr<Listener> listener_;
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_BENCHMARKS_CONTROL_SERVERS_H_
