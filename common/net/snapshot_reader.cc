#include "common/net/snapshot_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/net/stall_guard.h"
#include "common/wire/token.h"

namespace catchment {
namespace {

// The time of one block at this rate is added to the time in which data must arrive.
constexpr double kSlowestBytesPerSecond = 16 << 10;

}  // namespace

SnapshotReader::SnapshotReader(const std::vector<std::string>& servers,
                               const std::shared_ptr<grpc::ChannelCredentials>& credentials, uint64_t run_id,
                               const ParameterLayout* layout, double stall_seconds, std::string token)
    : run_id_(run_id),
      token_(std::move(token)),
      layout_(*layout),
      stall_seconds_(stall_seconds +
                     static_cast<double>(layout->most_in_block()) * sizeof(float) / kSlowestBytesPerSecond),
      servers_(servers) {
  for (const std::string& server : servers) {
    stubs_.push_back(v1::ShardService::NewStub(Connect(server, credentials)));
  }
}

absl::Status SnapshotReader::Read(absl::Span<float> weights) {
  for (int s = 0; s < layout_.num_shards(); ++s) {
    float* next = weights.data() + layout_.shard(s).begin;
    RETURN_IF_ERROR(ReadShard(s, [&next](absl::Span<const float> block) {
      next = std::copy(block.begin(), block.end(), next);
      return true;
    }));
  }
  return absl::OkStatus();
}

absl::Status SnapshotReader::ReadShard(int s, absl::FunctionRef<bool(absl::Span<const float>)> visit) {
  grpc::ClientContext context;
  v1::SnapshotRequest request;
  request.set_fingerprint(layout_.fingerprint());
  request.set_run_id(run_id_);
  if (!token_.empty()) context.AddMetadata(kTokenMetadata, token_);
  StallGuard guard(&context, stall_seconds_, &clock_);
  const auto reader = stubs_[s]->Snapshot(&context, request);
  int blocks = 0;
  bool stopped = false;
  absl::Status malformed;
  std::vector<float> values;
  for (v1::Block block; malformed.ok() && !stopped && reader->Read(&block); ++blocks) {
    guard.Progress();
    const bool is_next = block.block() == static_cast<uint32_t>(blocks) && blocks < layout_.num_blocks(s);
    values.resize(is_next ? layout_.block(s, blocks).size() : 0);
    if (!is_next || block.payload().size() != values.size() * sizeof(float)) {
      malformed = absl::InternalError(absl::StrCat("server ", s, " sent a malformed block ", block.block()));
    } else {
      std::memcpy(values.data(), block.payload().data(), block.payload().size());
      stopped = !visit(values);
    }
    if (stopped || !malformed.ok()) context.TryCancel();
  }
  const absl::Status status =
      guard.Explain(FromGrpc(reader->Finish(), absl::StrCat("snapshot of server ", s, " at ", servers_[s])));
  RETURN_IF_ERROR(malformed);
  if (stopped) return absl::OkStatus();
  RETURN_IF_ERROR(status);
  if (blocks != layout_.num_blocks(s)) {
    return absl::DataLossError(
        absl::StrCat("snapshot of server ", s, " has ", blocks, " of ", layout_.num_blocks(s), " blocks"));
  }
  return absl::OkStatus();
}

}  // namespace catchment
