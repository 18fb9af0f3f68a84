// Walks through a payload of equal-sized values that lies in several pieces; for the codecs' decoders.
#ifndef CATCHMENT_COMMON_CODEC_PAYLOAD_RUNS_H_
#define CATCHMENT_COMMON_CODEC_PAYLOAD_RUNS_H_

#include <bit>
#include <cstddef>

#include "common/wire/block_frame.h"

namespace catchment {

// Payloads are little-endian, and so are the machines.
static_assert(std::endian::native == std::endian::little);

// Calls convert(const char* bytes, size_t count) for runs of `count` values that lie side by side, unaligned,
// in order; a value that straddles two pieces comes alone. The payload's size is a multiple of kBytes.
template <size_t kBytes, typename Convert>
void ForEachRun(PayloadView payload, Convert convert) {
  while (payload.size() > 0) {
    const absl::string_view head = payload.front();
    if (const size_t count = head.size() / kBytes; count > 0) {
      convert(head.data(), count);
      payload.Skip(count * kBytes);
    } else {
      char one[kBytes];
      payload.Take(kBytes, one);
      convert(one, 1);
    }
  }
}

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CODEC_PAYLOAD_RUNS_H_
