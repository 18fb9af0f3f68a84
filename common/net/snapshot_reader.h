// Reads a copy of all weights from the servers.
#ifndef CATCHMENT_COMMON_NET_SNAPSHOT_READER_H_
#define CATCHMENT_COMMON_NET_SNAPSHOT_READER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "common/base/clock.h"
#include "common/job/parameter_layout.h"
#include "common/net/rpc.h"
#include "proto/wire.grpc.pb.h"

namespace catchment {

// Threads: one caller at a time.
class SnapshotReader {
 public:
  // The time for which a server may send nothing, in addition to the time of a block over a slow network.
  static constexpr double kStallSeconds = 60;

  // `servers` has the HOST:PORT of each shard. `run_id` is the run that they belong to. `layout` must outlive
  // the reader. `token`: that of servers (common/wire/token.h), for which places are kept free; empty for
  // others.
  SnapshotReader(const std::vector<std::string>& servers,
                 const std::shared_ptr<grpc::ChannelCredentials>& credentials, uint64_t run_id,
                 const ParameterLayout* layout, double stall_seconds = kStallSeconds, std::string token = "");

  // Reads each shard in a consistent state into `weights`, the whole flat vector. DeadlineExceeded if a
  // server stops sending.
  absl::Status Read(absl::Span<float> weights);
  // Reads one shard, and passes its blocks in their order to `visit` until it returns false; then the result
  // is OK, too.
  absl::Status ReadShard(int shard, absl::FunctionRef<bool(absl::Span<const float>)> visit);

 private:
  const uint64_t run_id_;
  const std::string token_;
  const ParameterLayout& layout_;
  const SteadyClock clock_;
  const double stall_seconds_;
  std::vector<std::string> servers_;
  std::vector<std::unique_ptr<v1::ShardService::Stub>> stubs_;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_NET_SNAPSHOT_READER_H_
