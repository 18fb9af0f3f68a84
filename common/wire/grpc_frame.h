// v1::Block messages as gRPC buffers: a small slice for the header and the payload's slice, not copied.
#ifndef CATCHMENT_COMMON_WIRE_GRPC_FRAME_H_
#define CATCHMENT_COMMON_WIRE_GRPC_FRAME_H_

#include <grpcpp/support/byte_buffer.h>

#include <vector>

#include "absl/status/status.h"
#include "common/wire/block_frame.h"

namespace catchment {

// `payload` may be empty.
grpc::ByteBuffer Frame(const BlockHeader& header, const grpc::Slice& payload);

// A received message, held while its payload is looked at. Reused from message to message.
class ReceivedFrame {
 public:
  // Takes over the buffer's slices. InvalidArgument for what is not a Block.
  absl::Status Decode(const grpc::ByteBuffer& buffer);

  // Lets go of the message's memory.
  void Clear();

  const BlockHeader& header() const { return header_; }
  const PayloadView& payload() const { return payload_; }

 private:
  std::vector<grpc::Slice> slices_;
  std::vector<absl::string_view> pieces_;
  BlockHeader header_;
  PayloadView payload_;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_WIRE_GRPC_FRAME_H_
