#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "worker/data/sources/digit_drawing.h"
#include "worker/data/sources/load_data.h"

namespace catchment {
namespace {

constexpr int kClasses = 10;
constexpr Normalization kNormalization = {0.12f, 0.253f};
constexpr uint32_t kDefaultTrainSamples = 20000;
constexpr uint32_t kDefaultTestSamples = 4000;
constexpr uint32_t kMaxSamples = 10'000'000;
constexpr uint64_t kDefaultSeed = 1;

enum Part : uint64_t { kTrain = 0, kTest = 1 };

absl::Status CheckCount(const char* field, uint32_t samples) {
  if (samples >= 1 && samples <= kMaxSamples) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("data.drawn_digits.", field, " is ", samples, "; use 1 to ", kMaxSamples));
}

Dataset DrawPart(uint64_t seed, Part part, int64_t samples) {
  constexpr int64_t kPixels = kDrawnSize * kDrawnSize;
  std::vector<uint8_t> pixels(samples * kPixels);
  std::vector<uint8_t> labels(samples);
  for (int64_t i = 0; i < samples; ++i) {
    Random random(Derive(Derive(seed, part), i));
    labels[i] = static_cast<uint8_t>(random.Below(kClasses));
    DrawDigit(labels[i], &random, pixels.data() + i * kPixels);
  }
  return Dataset({1, kDrawnSize, kDrawnSize}, kClasses, kNormalization, std::move(pixels), labels);
}

}  // namespace

absl::StatusOr<DataSets> DrawDigits(const v1::DrawnDigits& options) {
  const uint32_t train = options.has_train_samples() ? options.train_samples() : kDefaultTrainSamples;
  const uint32_t test = options.has_test_samples() ? options.test_samples() : kDefaultTestSamples;
  const uint64_t seed = options.has_seed() ? options.seed() : kDefaultSeed;
  absl::Status counts = CheckCount("train_samples", train);
  counts.Update(CheckCount("test_samples", test));
  RETURN_IF_ERROR(counts);
  return DataSets{DrawPart(seed, kTrain, train), DrawPart(seed, kTest, test)};
}

}  // namespace catchment
