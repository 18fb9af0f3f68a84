// Payloads in pieces, as they come off the wire.
#ifndef CATCHMENT_TESTS_COMMON_CODEC_PAYLOADS_H_
#define CATCHMENT_TESTS_COMMON_CODEC_PAYLOADS_H_

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/base/random.h"
#include "common/wire/block_frame.h"

namespace catchment {

// A view of bytes that are cut at some places. Each piece has its own memory that ends where it ends, so
// that a read beyond it is seen by AddressSanitizer.
class CutPayload {
 public:
  explicit CutPayload(const std::string& bytes, const std::vector<size_t>& cuts = {}) : size_(bytes.size()) {
    size_t begin = 0;
    for (const size_t cut : cuts) {
      memory_.emplace_back(bytes.begin() + begin, bytes.begin() + cut);
      begin = cut;
    }
    memory_.emplace_back(bytes.begin() + begin, bytes.end());
    for (const std::vector<char>& piece : memory_) pieces_.emplace_back(piece.data(), piece.size());
  }

  PayloadView view() const { return PayloadView(pieces_, 0, size_); }

 private:
  size_t size_;
  std::vector<std::vector<char>> memory_;
  std::vector<absl::string_view> pieces_;
};

// Ascending; some pieces are empty, some a byte.
inline std::vector<size_t> RandomCuts(size_t size, Random* random) {
  std::vector<size_t> cuts(random->Below(6));
  for (size_t& cut : cuts) cut = random->Below(size + 1);
  std::sort(cuts.begin(), cuts.end());
  return cuts;
}

template <typename T>
std::string BytesOf(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), sizeof(T) * values.size());
}

template <typename T>
std::vector<T> ValuesOf(const std::string& bytes) {
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

}  // namespace catchment

#endif  // CATCHMENT_TESTS_COMMON_CODEC_PAYLOADS_H_
