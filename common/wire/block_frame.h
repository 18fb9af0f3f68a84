// The bytes of a v1::Block (proto/wire.proto), written and read by hand so that the payload is not copied.
// Exactly what protobuf's generated code writes; reads whatever protobuf would read: fields in any order,
// repeated (the last one counts), unknown ones skipped.
//
// Threads: pure functions. Errors: InvalidArgument, naming what is wrong with the message.
#ifndef CATCHMENT_COMMON_WIRE_BLOCK_FRAME_H_
#define CATCHMENT_COMMON_WIRE_BLOCK_FRAME_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "proto/wire.pb.h"

namespace catchment {

// A v1::Block without its payload.
struct BlockHeader {
  v1::Block::Operation operation = v1::Block::OPERATION_UNSET;
  uint64_t sequence = 0;
  uint64_t version = 0;
  uint32_t block = 0;
  uint32_t samples = 0;
  uint64_t staleness = 0;
  v1::Block::Fate fate = v1::Block::FATE_UNSET;

  bool operator==(const BlockHeader&) const = default;
};

inline constexpr size_t kMaxBlockHeaderBytes = 64;

// Writes all of the message that comes before the payload's own bytes; returns how many. `out` has room for
// kMaxBlockHeaderBytes.
size_t EncodeHeader(const BlockHeader& header, size_t payload_bytes, char* out);

// Where a payload lies in the pieces of a message. Valid as long as the pieces are.
class PayloadView {
 public:
  PayloadView() = default;
  PayloadView(absl::Span<const absl::string_view> pieces, size_t offset, size_t size)
      : pieces_(pieces), offset_(offset), size_(size) {}

  size_t size() const { return size_; }
  // `out` has room for size() bytes.
  void CopyTo(void* out) const;

 private:
  absl::Span<const absl::string_view> pieces_;  // the first one holds the first byte
  size_t offset_ = 0;                           // in the first piece
  size_t size_ = 0;
};

// Reads a message that comes in pieces; any field may straddle two of them.
absl::Status DecodeFrame(absl::Span<const absl::string_view> pieces, BlockHeader* header,
                         PayloadView* payload);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_WIRE_BLOCK_FRAME_H_
