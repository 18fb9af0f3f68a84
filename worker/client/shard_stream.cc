#include "worker/client/shard_stream.h"

#include "common/base/status_macros.h"
#include "common/wire/protocol.h"

namespace catchment {
namespace {

constexpr char kMethod[] = "/catchment.v1.ShardService/Train";

}  // namespace

ShardStream::ShardStream(const std::shared_ptr<grpc::Channel>& channel, const ConnectionThreads& threads,
                         const v1::Hello& hello, Owner* owner)
    : owner_(*owner), stream_(channel, threads, {kMethod, kHelloKey, hello.SerializeAsString()}, this) {}

bool ShardStream::Next(grpc::ByteBuffer* message) {
  BlockHeader header;
  absl::string_view payload;
  if (!owner_.Next(&header, &payload)) return false;
  grpc::ByteBuffer frame =
      Frame(header, payload.empty() ? grpc::Slice()
                                    : grpc::Slice(payload.data(), payload.size(), grpc::Slice::STATIC_SLICE));
  message->Swap(&frame);
  return true;
}

absl::Status ShardStream::OnMessage(const grpc::ByteBuffer& message) {
  RETURN_IF_ERROR(frame_.Decode(message));
  return owner_.OnAnswer(frame_.header(), frame_.payload());
}

}  // namespace catchment
