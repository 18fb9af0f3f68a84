#include "server/shard/gap_sample.h"

#include <algorithm>

#include "common/base/random.h"

namespace catchment {
namespace {

constexpr int64_t kMaxValues = 1024;
constexpr uint64_t kSeed = 1;

}  // namespace

GapSample::GapSample(int64_t shard_size) {
  const int64_t values = std::min(shard_size, kMaxValues);
  Random random(kSeed);
  for (int64_t k = 0; k < values; ++k) {
    const int64_t begin = k * shard_size / values, end = (k + 1) * shard_size / values;
    positions_.push_back(begin + static_cast<int64_t>(random.Below(end - begin)));
  }
}

absl::Span<const int64_t> GapSample::In(Range block) const {
  const auto begin = std::lower_bound(positions_.begin(), positions_.end(), block.begin);
  const auto end = std::lower_bound(begin, positions_.end(), block.end);
  return absl::MakeConstSpan(positions_).subspan(begin - positions_.begin(), end - begin);
}

void GapSample::Copy(Range block, const float* shard, float* sample) const {
  for (const int64_t i : In(block)) *sample++ = shard[i];
}

double GapSample::SquaredGap(Range block, const float* shard, const float* sample) const {
  double sum = 0;
  for (const int64_t i : In(block)) {
    const double gap = double{shard[i]} - *sample++;
    sum += gap * gap;
  }
  return sum;
}

}  // namespace catchment
