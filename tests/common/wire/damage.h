// Messages damaged and cut into slices at random, from a seed.
#ifndef CATCHMENT_TESTS_COMMON_WIRE_DAMAGE_H_
#define CATCHMENT_TESTS_COMMON_WIRE_DAMAGE_H_

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/base/random.h"

namespace catchment {

using Pieces = std::vector<absl::string_view>;

// 0 to `most` of them.
inline std::string AnyBytes(Random* random, size_t most) {
  std::string bytes(random->Below(most + 1), '\0');
  for (char& c : bytes) c = static_cast<char>(random->Next());
  return bytes;
}

// Once: cut short, or a few bytes lost, put in, sent twice, turned to 0xff, or one bit flipped.
inline void Damage(std::string* bytes, Random* random) {
  const size_t at = random->Below(bytes->size() + 1);
  const size_t count = std::min<size_t>(bytes->size() - at, 1 + random->Below(4));
  switch (random->Below(6)) {
    case 0:
      bytes->resize(at);
      break;
    case 1:
      bytes->erase(at, count);
      break;
    case 2:
      bytes->insert(at, AnyBytes(random, 4));
      break;
    case 3:
      bytes->insert(at, bytes->substr(at, count));
      break;
    case 4:
      bytes->replace(at, count, std::string(count, '\xff'));
      break;
    case 5:
      if (at < bytes->size()) (*bytes)[at] ^= static_cast<char>(1 << random->Below(8));
  }
}

// Some pieces are empty. They lie in `bytes`.
inline Pieces CutAtRandom(const std::string& bytes, Random* random) {
  Pieces pieces;
  const uint64_t longest = 1 + random->Below(20);
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = std::min<size_t>(bytes.size() - at, random->Below(longest + 1));
    pieces.emplace_back(bytes.data() + at, size);
    at += size;
  }
  return pieces;
}

}  // namespace catchment

#endif  // CATCHMENT_TESTS_COMMON_WIRE_DAMAGE_H_
