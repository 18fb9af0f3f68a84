#include "common/net/grpc_frame.h"

namespace catchment {

grpc::ByteBuffer Frame(const BlockHeader& header, const grpc::Slice& payload) {
  char bytes[kMaxBlockHeaderBytes];
  const size_t size = EncodeHeader(header, payload.size(), bytes);
  const grpc::Slice slices[] = {grpc::Slice(bytes, size), payload};
  return grpc::ByteBuffer(slices, payload.size() > 0 ? 2 : 1);
}

absl::Status ReceivedFrame::Decode(const grpc::ByteBuffer& buffer) {
  // This fails only for a damaged compressed message.
  if (!buffer.Dump(&slices_).ok()) return absl::InvalidArgumentError("unreadable message");
  pieces_.clear();
  for (const grpc::Slice& slice : slices_) {
    pieces_.emplace_back(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return DecodeFrame(pieces_, &header_, &payload_);
}

void ReceivedFrame::Clear() {
  payload_ = PayloadView();
  pieces_.clear();
  slices_.clear();
}

}  // namespace catchment
