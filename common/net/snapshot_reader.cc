#include "common/net/snapshot_reader.h"

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
    RETURN_IF_ERROR(ReadShard(s, weights));
  }
  return absl::OkStatus();
}

absl::Status SnapshotReader::ReadShard(int s, absl::Span<float> weights) {
  grpc::ClientContext context;
  v1::SnapshotRequest request;
  request.set_fingerprint(layout_.fingerprint());
  request.set_run_id(run_id_);
  if (!token_.empty()) context.AddMetadata(kTokenMetadata, token_);
  StallGuard guard(&context, stall_seconds_, &clock_);
  const auto reader = stubs_[s]->Snapshot(&context, request);
  int blocks = 0;
  absl::Status malformed;
  for (v1::Block block; malformed.ok() && reader->Read(&block); ++blocks) {
    guard.Progress();
    const bool known = block.block() < static_cast<uint32_t>(layout_.num_blocks(s));
    const Range range = known ? layout_.block(s, block.block()) : Range();
    if (block.payload().size() != range.size() * sizeof(float) || !known) {
      malformed = absl::InternalError(absl::StrCat("server ", s, " sent a malformed block ", block.block()));
      context.TryCancel();
      break;
    }
    std::memcpy(weights.data() + range.begin, block.payload().data(), block.payload().size());
  }
  const absl::Status status =
      guard.Explain(FromGrpc(reader->Finish(), absl::StrCat("snapshot of server ", s, " at ", servers_[s])));
  RETURN_IF_ERROR(malformed);
  RETURN_IF_ERROR(status);
  if (blocks != layout_.num_blocks(s)) {
    return absl::DataLossError(
        absl::StrCat("snapshot of server ", s, " has ", blocks, " of ", layout_.num_blocks(s), " blocks"));
  }
  return absl::OkStatus();
}

}  // namespace catchment
