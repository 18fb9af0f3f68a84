// Writes and reads the bytes of a v1::Block (proto/wire.proto) without copying the payload. The bytes are
// exactly those of protobuf's generated code, and everything that protobuf reads is read: fields in any
// order, repeated fields (the last one is used), and unknown fields (which are skipped).
//
// Threads: pure functions. Errors: InvalidArgument, naming the mistake in the message.
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
  float scale = 1;  // 1 is not encoded
  uint64_t steps = 0;
  // The payload's place in shared memory; no bytes: it is in the message.
  uint64_t shared_bytes = 0;
  uint64_t shared_offset = 0;
  uint64_t shared_generation = 0;

  bool operator==(const BlockHeader&) const = default;
};

inline constexpr size_t kMaxBlockHeaderBytes = 145;

// Writes the part of the message before the payload's bytes and returns its size. `out` has room for
// kMaxBlockHeaderBytes.
size_t EncodeHeader(const BlockHeader& header, size_t payload_bytes, char* out);

// A payload, or the rest of one, in the pieces of a message. It is valid as long as the pieces are.
class PayloadView {
 public:
  PayloadView() = default;
  // The pieces must hold at least offset + size bytes.
  PayloadView(absl::Span<const absl::string_view> pieces, size_t offset, size_t size)
      : pieces_(pieces), offset_(offset), size_(size) {
    Skip(0);
  }

  size_t size() const { return size_; }
  // Returns the bytes up to the end of the first piece; empty only if none are left.
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

// Reads a message in pieces; any field may be divided between two of them.
absl::Status DecodeFrame(absl::Span<const absl::string_view> pieces, BlockHeader* header,
                         PayloadView* payload);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_WIRE_BLOCK_FRAME_H_
