// The values of samples, and the ways to keep them.
//
// Threads: immutable once made; any number of threads may read at the same time.
#ifndef CATCHMENT_WORKER_DATA_SAMPLE_CONTENT_H_
#define CATCHMENT_WORKER_DATA_SAMPLE_CONTENT_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

namespace catchment {

// A value is given to the network as (value - mean) / standard_deviation.
struct Normalization {
  double mean = 0;
  double standard_deviation = 1;
};

class SampleContent {
 public:
  virtual ~SampleContent() = default;
  // Writes the values of a sample as the network receives them, and returns the bytes that were read from a
  // file for it; 0 for samples in memory. `crop_seed` determines the random part of an image that has a size
  // of its own; absent: its center. Errors: those of the file, which only samples that are not in memory
  // have.
  virtual absl::StatusOr<int64_t> Read(int64_t index, std::optional<uint64_t> crop_seed,
                                       float* out) const = 0;

  // Return the values as they are stored, as bytes or as floats, for callers that store them elsewhere; the
  // other is null.
  virtual const uint8_t* bytes(int64_t index) const { return nullptr; }
  virtual const float* floats(int64_t index) const { return nullptr; }
  // Returns the normalization that turns stored values into those that Read writes: one for each channel of
  // an image, one for each value of other samples' last dimension, or one for all. Empty: they are the same.
  virtual std::vector<Normalization> normalization() const { return {}; }
};

// Images are kept as bytes, a quarter of what floats take, and become floats when they are copied out: a
// pixel, 0 to 255, as 0 to 1, and then normalized.
class ByteImages final : public SampleContent {
 public:
  // `pixels`: all images one after another, each with `area` pixels of the first channel, then of the second
  // ...; `channels`: the normalization of each.
  ByteImages(std::vector<uint8_t> pixels, int64_t area, const std::vector<Normalization>& channels)
      : pixels_(std::move(pixels)), area_(area), channels_(channels) {
    for (const Normalization& n : channels) {
      scales_.push_back(static_cast<float>(1 / (255.0 * n.standard_deviation)));
      offsets_.push_back(static_cast<float>(-1.0 * n.mean / n.standard_deviation));
    }
  }

  absl::StatusOr<int64_t> Read(int64_t index, std::optional<uint64_t>, float* out) const override {
    const auto channels = static_cast<int64_t>(scales_.size());
    const uint8_t* pixels = pixels_.data() + index * channels * area_;
    for (int64_t c = 0; c < channels; ++c) {
      const float scale = scales_[c], offset = offsets_[c];
      for (int64_t i = 0; i < area_; ++i) *out++ = static_cast<float>(*pixels++) * scale + offset;
    }
    return 0;
  }
  const uint8_t* bytes(int64_t index) const override {
    return pixels_.data() + index * static_cast<int64_t>(scales_.size()) * area_;
  }
  std::vector<Normalization> normalization() const override {
    std::vector<Normalization> of_bytes = channels_;
    for (Normalization& n : of_bytes)
      n = {static_cast<float>(255 * n.mean), static_cast<float>(255 * n.standard_deviation)};
    return of_bytes;
  }

 private:
  const std::vector<uint8_t> pixels_;
  const int64_t area_;
  const std::vector<Normalization> channels_;
  // A pixel's value is pixel * scale + offset.
  std::vector<float> scales_;
  std::vector<float> offsets_;
};

// Samples whose values are stored as floats, as the network receives them.
class FloatSamples final : public SampleContent {
 public:
  FloatSamples(std::vector<float> values, int64_t size) : values_(std::move(values)), size_(size) {}

  absl::StatusOr<int64_t> Read(int64_t index, std::optional<uint64_t>, float* out) const override {
    const float* values = values_.data() + index * size_;
    for (int64_t i = 0; i < size_; ++i) out[i] = values[i];
    return 0;
  }
  const float* floats(int64_t index) const override { return values_.data() + index * size_; }

 private:
  const std::vector<float> values_;
  const int64_t size_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_SAMPLE_CONTENT_H_
