#include <cmath>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "worker/data/sources/load_data.h"

namespace catchment {
namespace {

constexpr int kChannels = 3;
constexpr double kTwoPi = 6.283185307179586;

enum Part : uint64_t { kTrain = 0, kTest = 1 };

// Returns noise from -1 to 1 by MurmurHash3's finalizer, in 32-bit arithmetic alone, so that eight values are
// computed at a time.
float Noise(uint32_t key, uint32_t i) {
  uint32_t hash = i * 0x9e3779b9u + key;
  hash ^= hash >> 16;
  hash *= 0x85ebca6bu;
  hash ^= hash >> 13;
  hash *= 0xc2b2ae35u;
  hash ^= hash >> 16;
  return static_cast<float>(static_cast<int32_t>(hash)) * 0x1p-31f;
}

class Gratings final : public SampleContent {
 public:
  Gratings(uint64_t seed, int64_t size, int classes, std::vector<int32_t> labels)
      : seed_(seed),
        size_(size),
        frequencies_(static_cast<int>(std::ceil(std::sqrt(classes)))),
        labels_(std::move(labels)) {}

  absl::StatusOr<int64_t> Read(int64_t index, std::optional<uint64_t>, float* out) const override {
    Random random(Derive(seed_, index));
    const int u = 1 + labels_[index] % frequencies_, v = labels_[index] / frequencies_;
    const double phase = kTwoPi * random.Uniform();
    const auto key = static_cast<uint32_t>(random.Next());
    for (uint32_t c = 0, at = 0; c < kChannels; ++c) {
      const auto tint = static_cast<float>(random.Uniform(0.3, 1));
      for (int64_t y = 0; y < size_; ++y, at += static_cast<uint32_t>(size_), out += size_) {
        WriteRow(u, phase + kTwoPi * v * static_cast<double>(y) / static_cast<double>(size_), tint, key, at,
                 out);
      }
    }
    return 0;
  }

 private:
  // Writes a row. Cosines are computed by their recurrence, so that a row needs only two calls of cos.
  void WriteRow(int u, double phase, float tint, uint32_t key, uint32_t at, float* out) const {
    const double step = kTwoPi * u / static_cast<double>(size_), twice = 2 * std::cos(step);
    double before = std::cos(phase - step), here = std::cos(phase);
    for (int64_t x = 0; x < size_; ++x) {
      out[x] = tint * static_cast<float>(here);
      before = std::exchange(here, twice * here - before);
    }
    for (int64_t x = 0; x < size_; ++x) out[x] += Noise(key, at + static_cast<uint32_t>(x));
  }

  const uint64_t seed_;
  const int64_t size_;
  const int frequencies_;  // in each direction
  const std::vector<int32_t> labels_;
};

Dataset GeneratePart(const v1::GeneratedImages& options, Part part, int64_t samples) {
  const uint64_t seed = Derive(options.seed(), part);
  const auto classes = static_cast<int>(options.classes());
  std::vector<int32_t> labels(samples);
  for (int64_t i = 0; i < samples; ++i) {
    labels[i] = static_cast<int32_t>(Random(Derive(seed, ~static_cast<uint64_t>(i))).Below(classes));
  }
  auto gratings = std::make_unique<Gratings>(seed, options.size(), classes, labels);
  return Dataset({kChannels, options.size(), options.size()}, classes, std::move(gratings),
                 std::move(labels));
}

}  // namespace

DataSets GenerateImages(const v1::GeneratedImages& options) {
  return {GeneratePart(options, kTrain, options.train_samples()),
          GeneratePart(options, kTest, options.test_samples())};
}

}  // namespace catchment
