#include "worker/data/data_checksum.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "common/base/crc32c.h"
#include "common/base/random.h"

namespace catchment {
namespace {

constexpr int64_t kMostValues = 16 << 20;  // of a set that is read as a whole
constexpr int64_t kFewSamples = 64;        // of a larger one, which may be in files of a network

template <typename Value>
uint32_t ChecksumOf(const Value* values, int64_t count) {
  return Crc32c({reinterpret_cast<const char*>(values), static_cast<size_t>(count) * sizeof(Value)});
}

// Returns the checksum of a sample's stored values; 0 if it is not in memory.
uint32_t ChecksumOfValues(const Dataset& data, int64_t index) {
  const int64_t size = data.input_shape().size();
  if (const uint8_t* const bytes = data.content()->bytes(index)) return ChecksumOf(bytes, size);
  if (const float* const floats = data.content()->floats(index)) return ChecksumOf(floats, size);
  return 0;
}

uint32_t ChecksumOfTarget(const Dataset& data, int64_t index, std::vector<float>* targets) {
  if (!data.target().is_real()) return static_cast<uint32_t>(data.label(index));
  targets->resize(data.target().reals);
  data.CopyTargets(index, targets->data());
  return ChecksumOf(targets->data(), data.target().reals);
}

uint64_t Add(const Dataset& data, uint64_t checksum) {
  checksum = Derive(checksum, static_cast<uint64_t>(data.size()));
  if (!data.has_content()) return checksum;
  const bool is_small = data.size() * data.input_shape().size() <= kMostValues;
  const int64_t every = is_small ? 1 : std::max<int64_t>(1, data.size() / kFewSamples);
  std::vector<float> targets;
  for (int64_t i = 0; i < data.size(); ++i) {
    checksum = Derive(checksum, ChecksumOfTarget(data, i, &targets));
    if (i % every == 0) checksum = Derive(checksum, ChecksumOfValues(data, i));
  }
  return checksum;
}

}  // namespace

uint64_t DataChecksum(const DataSets& data) {
  return std::max<uint64_t>(1, Add(data.test, Add(data.train, data.class_names)));
}

}  // namespace catchment
