#include "common/wire/block_frame.h"

#include <algorithm>
#include <bit>

#include "absl/strings/str_cat.h"

namespace catchment {
namespace {

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// The largest number of bytes that protobuf reads for a tag or a length; a number may have ten.
constexpr int kTagBytes = 5;

constexpr uint32_t Tag(uint32_t field, WireType type) { return field << 3 | type; }

char* WriteVarint(uint64_t value, char* out) {
  while (value >= 0x80) {
    *out++ = static_cast<char>(value | 0x80);
    value >>= 7;
  }
  *out++ = static_cast<char>(value);
  return out;
}

// Writes a field; proto3 omits zeros.
char* WriteField(uint32_t field, uint64_t value, char* out) {
  if (value == 0) return out;
  return WriteVarint(value, WriteVarint(Tag(field, kVarint), out));
}

// Writes a little-endian bit pattern; zero is omitted.
char* WriteFixed32(uint32_t field, uint32_t bits, char* out) {
  if (bits == 0) return out;
  out = WriteVarint(Tag(field, kFixed32), out);
  for (int shift = 0; shift < 32; shift += 8) *out++ = static_cast<char>(bits >> shift);
  return out;
}

// Reads the pieces sequentially.
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

  bool ReadVarint(uint64_t* value, int most_bytes = 10) {
    *value = 0;
    for (int shift = 0; shift < 7 * most_bytes; shift += 7) {
      uint8_t byte;
      if (!ReadByte(&byte)) return false;
      *value |= shift < 64 ? static_cast<uint64_t>(byte & 0x7f) << shift : 0;
      if (byte < 0x80) return true;
    }
    return false;
  }

  bool ReadFixed32(uint32_t* bits) {
    *bits = 0;
    for (int shift = 0; shift < 32; shift += 8) {
      uint8_t byte;
      if (!ReadByte(&byte)) return false;
      *bits |= static_cast<uint32_t>(byte) << shift;
    }
    return true;
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
    case 1:
      header->operation = static_cast<v1::Block::Operation>(value);
      break;
    case 2:
      header->sequence = value;
      break;
    case 3:
      header->version = value;
      break;
    case 4:
      header->block = static_cast<uint32_t>(value);
      break;
    case 5:
      header->samples = static_cast<uint32_t>(value);
      break;
    case 6:
      header->staleness = value;
      break;
    case 7:
      header->fate = static_cast<v1::Block::Fate>(value);
      break;
    case 9:
      header->steps = value;
      break;
    case 10:
      header->shared_bytes = value;
      break;
    case 11:
      header->shared_offset = value;
      break;
    case 12:
      header->shared_generation = value;
      break;
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
  if (header.scale != 1) end = WriteFixed32(8, std::bit_cast<uint32_t>(header.scale), end);
  end = WriteField(9, header.steps, end);
  end = WriteField(10, header.shared_bytes, end);
  end = WriteField(11, header.shared_offset, end);
  end = WriteField(12, header.shared_generation, end);
  if (payload_bytes > 0) end = WriteVarint(payload_bytes, WriteVarint(Tag(15, kBytes), end));
  return end - out;
}

absl::Status DecodeFrame(absl::Span<const absl::string_view> pieces, BlockHeader* header,
                         PayloadView* payload) {
  *header = BlockHeader();
  *payload = PayloadView();
  Reader reader(pieces);
  Reader before = reader;
  while (!reader.AtEnd()) {
    uint64_t tag, value;
    uint32_t bits;
    if (!reader.ReadVarint(&tag, kTagBytes)) return Malformed("truncated tag");
    if (tag >> 3 == 0 || tag > UINT32_MAX) return Malformed("impossible field number");
    switch (tag & 7) {
      case kVarint:
        if (!reader.ReadVarint(&value)) return Malformed("truncated number");
        SetField(tag >> 3, value, header);
        break;
      case kBytes:
        if (!reader.ReadVarint(&value, kTagBytes)) return Malformed("truncated length");
        before = reader;
        if (!reader.Skip(value)) return Malformed("a field is longer than the message");
        if (tag >> 3 == 15) *payload = before.View(value);
        break;
      case kFixed64:
        if (!reader.Skip(8)) return Malformed("truncated field");
        break;
      case kFixed32:
        if (!reader.ReadFixed32(&bits)) return Malformed("truncated field");
        // Protobuf does not encode 0, so it means that the field is absent.
        if (tag >> 3 == 8) header->scale = bits == 0 ? 1 : std::bit_cast<float>(bits);
        break;
      default:
        return Malformed("unknown wire type");
    }
  }
  return absl::OkStatus();
}

}  // namespace catchment
