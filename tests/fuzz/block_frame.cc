// Messages of workers: DecodeFrame beside protobuf's parser. What both accept must be read alike, whatever
// the pieces.
//
// Input: two bytes that say where the message is cut, the message.
#include "common/wire/block_frame.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "proto/wire.pb.h"
#include "tests/fuzz/input.h"

namespace catchment {
namespace {

bool SameFloat(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

void Compare(const v1::Block& block, const BlockHeader& header, const PayloadView& payload) {
  CHECK_EQ(header.operation, block.operation());
  CHECK_EQ(header.sequence, block.sequence());
  CHECK_EQ(header.version, block.version());
  CHECK_EQ(header.block, block.block());
  CHECK_EQ(header.samples, block.samples());
  CHECK_EQ(header.staleness, block.staleness());
  CHECK_EQ(header.fate, block.fate());
  CHECK_EQ(header.steps, block.steps());
  CHECK_EQ(header.shared_bytes, block.shared_bytes());
  CHECK_EQ(header.shared_offset, block.shared_offset());
  CHECK_EQ(header.shared_generation, block.shared_generation());
  // Absent is 1 for DecodeFrame and 0 for protobuf.
  if (block.scale() != 0) CHECK(SameFloat(header.scale, block.scale()));
  std::string copy(payload.size(), '\0');
  payload.CopyTo(copy.data());
  CHECK(copy == block.payload());
}

void Test(FuzzInput in) {
  const uint32_t first = in.Byte(), second = in.Byte();
  const absl::string_view message = in.Rest();
  const size_t a = std::min<size_t>(first, message.size()), b = std::min<size_t>(a + second, message.size());
  const std::vector<absl::string_view> pieces = {message.substr(0, a), message.substr(a, b - a),
                                                 message.substr(b)};
  BlockHeader header;
  PayloadView payload;
  v1::Block block;
  const bool decoded = DecodeFrame(pieces, &header, &payload).ok();
  const bool parsed = block.ParseFromArray(message.data(), static_cast<int>(message.size()));
  // Groups and tags of more than 32 bits are refused by DecodeFrame alone: no protobuf library writes them
  // for a Block.
  if (decoded) CHECK(parsed) << "only DecodeFrame accepts it";
  if (decoded) Compare(block, header, payload);
  if (!decoded) return;
  char bytes[kMaxBlockHeaderBytes];
  CHECK_LE(EncodeHeader(header, payload.size(), bytes), sizeof bytes);
}

}  // namespace
}  // namespace catchment

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  catchment::Test(catchment::FuzzInput(data, size));
  return 0;
}
