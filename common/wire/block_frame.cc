#include "common/wire/block_frame.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace catchment {
namespace {

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

constexpr uint32_t Tag(uint32_t field, WireType type) { return field << 3 | type; }

char* WriteVarint(uint64_t value, char* out) {
  while (value >= 0x80) {
    *out++ = static_cast<char>(value | 0x80);
    value >>= 7;
  }
  *out++ = static_cast<char>(value);
  return out;
}

// proto3 leaves out what is zero.
char* WriteField(uint32_t field, uint64_t value, char* out) {
  if (value == 0) return out;
  return WriteVarint(value, WriteVarint(Tag(field, kVarint), out));
}

// Walks through the pieces.
class Reader {
 public:
  explicit Reader(absl::Span<const absl::string_view> pieces) : pieces_(pieces) { SkipEmpty(); }

  bool AtEnd() const { return piece_ == pieces_.size(); }

  bool ReadByte(uint8_t* byte) {
    if (AtEnd()) return false;
    *byte = static_cast<uint8_t>(pieces_[piece_][offset_++]);
    SkipEmpty();
    return true;
  }

  bool ReadVarint(uint64_t* value) {
    *value = 0;
    for (int shift = 0; shift < 70; shift += 7) {
      uint8_t byte;
      if (!ReadByte(&byte)) return false;
      *value |= shift < 64 ? static_cast<uint64_t>(byte & 0x7f) << shift : 0;
      if (byte < 0x80) return true;
    }
    return false;
  }

  bool Skip(uint64_t bytes) {
    while (bytes > 0) {
      if (AtEnd()) return false;
      const uint64_t step = std::min<uint64_t>(bytes, pieces_[piece_].size() - offset_);
      offset_ += step;
      bytes -= step;
      SkipEmpty();
    }
    return true;
  }

  PayloadView View(uint64_t size) const {
    return AtEnd() ? PayloadView() : PayloadView(pieces_.subspan(piece_), offset_, size);
  }

 private:
  void SkipEmpty() {
    while (piece_ < pieces_.size() && offset_ == pieces_[piece_].size()) {
      ++piece_;
      offset_ = 0;
    }
  }

  absl::Span<const absl::string_view> pieces_;
  size_t piece_ = 0;
  size_t offset_ = 0;
};

void SetField(uint32_t field, uint64_t value, BlockHeader* header) {
  switch (field) {
    case 1: header->operation = static_cast<v1::Block::Operation>(value); break;
    case 2: header->sequence = value; break;
    case 3: header->version = value; break;
    case 4: header->block = static_cast<uint32_t>(value); break;
    case 5: header->samples = static_cast<uint32_t>(value); break;
    case 6: header->staleness = value; break;
    case 7: header->fate = static_cast<v1::Block::Fate>(value); break;
  }
}

absl::Status Malformed(absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("malformed Block message: ", what));
}

}  // namespace

size_t EncodeHeader(const BlockHeader& header, size_t payload_bytes, char* out) {
  char* end = out;
  end = WriteField(1, header.operation, end);
  end = WriteField(2, header.sequence, end);
  end = WriteField(3, header.version, end);
  end = WriteField(4, header.block, end);
  end = WriteField(5, header.samples, end);
  end = WriteField(6, header.staleness, end);
  end = WriteField(7, header.fate, end);
  if (payload_bytes > 0) end = WriteVarint(payload_bytes, WriteVarint(Tag(15, kBytes), end));
  return end - out;
}

void PayloadView::CopyTo(void* out) const {
  char* to = static_cast<char*>(out);
  size_t left = size_;
  size_t offset = offset_;
  for (const absl::string_view piece : pieces_) {
    const size_t step = std::min(left, piece.size() - offset);
    if (step > 0) std::memcpy(to, piece.data() + offset, step);
    to += step;
    left -= step;
    offset = 0;
    if (left == 0) return;
  }
}

absl::Status DecodeFrame(absl::Span<const absl::string_view> pieces, BlockHeader* header,
                         PayloadView* payload) {
  *header = BlockHeader();
  *payload = PayloadView();
  Reader reader(pieces);
  while (!reader.AtEnd()) {
    uint64_t tag, value;
    if (!reader.ReadVarint(&tag)) return Malformed("truncated tag");
    if (tag >> 3 == 0 || tag > UINT32_MAX) return Malformed("impossible field number");
    switch (tag & 7) {
      case kVarint:
        if (!reader.ReadVarint(&value)) return Malformed("truncated number");
        SetField(tag >> 3, value, header);
        break;
      case kBytes:
        if (!reader.ReadVarint(&value)) return Malformed("truncated length");
        if (tag >> 3 == 15) *payload = reader.View(value);
        if (!reader.Skip(value)) return Malformed("a field is longer than the message");
        break;
      case kFixed64:
        if (!reader.Skip(8)) return Malformed("truncated field");
        break;
      case kFixed32:
        if (!reader.Skip(4)) return Malformed("truncated field");
        break;
      default:
        return Malformed("unknown wire type");
    }
  }
  return absl::OkStatus();
}

}  // namespace catchment
