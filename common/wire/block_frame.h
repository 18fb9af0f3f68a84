// The bytes of a v1::Block (proto/wire.proto), written and read by hand so that the payload is not copied.
// Exactly what protobuf's generated code writes; reads whatever protobuf would read: fields in any order,
// repeated (the last one counts), unknown ones skipped.
//
// Threads: pure functions. Errors: InvalidArgument, naming what is wrong with the message.
#ifndef CATCHMENT_COMMON_WIRE_BLOCK_FRAME_H_
#define CATCHMENT_COMMON_WIRE_BLOCK_FRAME_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

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
  float scale = 1;  // 1 is absent on the wire
  uint64_t steps = 0;

  bool operator==(const BlockHeader&) const = default;
};

inline constexpr size_t kMaxBlockHeaderBytes = 112;

// Writes all of the message that comes before the payload's own bytes; returns how many. `out` has room for
// kMaxBlockHeaderBytes.
size_t EncodeHeader(const BlockHeader& header, size_t payload_bytes, char* out);

// Where a payload, or what is left of it, lies in the pieces of a message. Valid as long as the pieces are.
class PayloadView {
 public:
  PayloadView() = default;
  // The pieces hold at least offset + size bytes.
  PayloadView(absl::Span<const absl::string_view> pieces, size_t offset, size_t size)
      : pieces_(pieces), offset_(offset), size_(size) {
    Skip(0);
  }

  size_t size() const { return size_; }
  // The bytes up to the end of the first piece; empty only when nothing is left.
  absl::string_view front() const {
    return size_ == 0 ? absl::string_view() : pieces_.front().substr(offset_, size_);
  }
  // `out` has room for size() bytes.
  void CopyTo(void* out) const { PayloadView(*this).Take(size_, out); }

  // Drops the first `count` bytes, at most size().
  void Skip(size_t count) {
    offset_ += count;
    size_ -= count;
    while (size_ > 0 && offset_ >= pieces_.front().size()) {
      offset_ -= pieces_.front().size();
      pieces_.remove_prefix(1);
    }
  }
  // Copies the first `count` bytes, at most size(), and drops them.
  void Take(size_t count, void* out) {
    for (char* to = static_cast<char*>(out); count > 0;) {
      const absl::string_view head = front().substr(0, count);
      std::memcpy(to, head.data(), head.size());
      to += head.size();
      count -= head.size();
      Skip(head.size());
    }
  }

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
