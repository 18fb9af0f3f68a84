// v1::Block messages as gRPC buffers: a small slice for the header, and the slice of the payload, which is
// not copied.
#ifndef CATCHMENT_COMMON_NET_GRPC_FRAME_H_
#define CATCHMENT_COMMON_NET_GRPC_FRAME_H_

#include <grpcpp/support/byte_buffer.h>

#include <vector>

#include "absl/status/status.h"
#include "common/wire/block_frame.h"

namespace catchment {

// Returns the message. `payload` may be empty.
grpc::ByteBuffer Frame(const BlockHeader& header, const grpc::Slice& payload);

// A received message, held while its payload is used. An object can be reused for the next message.
class ReceivedFrame {
 public:
  // Takes the buffer's slices. InvalidArgument if they are not a Block.
  absl::Status Decode(const grpc::ByteBuffer& buffer);

  // Releases the message's memory.
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

#endif  // CATCHMENT_COMMON_NET_GRPC_FRAME_H_
