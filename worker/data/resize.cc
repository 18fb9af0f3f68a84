#include "worker/data/resize.h"

#include <algorithm>
#include <cmath>

namespace catchment {
namespace {

constexpr int kChannels = 3;
// Weights are multiples of 2^-22, so that a sum of weighted bytes fits into 32 bits.
constexpr int kPrecision = 22;

uint8_t Rounded(int32_t sum) { return static_cast<uint8_t>(std::clamp(sum >> kPrecision, 0, 255)); }

ResizedRange MiddleOf(int64_t length, int64_t resized, int64_t size) {
  // Rounds halves to even, as Python does.
  const auto first = static_cast<int64_t>(std::nearbyint(static_cast<double>(resized - size) / 2));
  return {0, length, resized, first, size};
}

int64_t Round(double value) { return static_cast<int64_t>(std::nearbyint(value)); }

}  // namespace

ResizedPart CenterOf(int64_t width, int64_t height, int64_t resize, int64_t size) {
  const int64_t shorter = std::min(width, height);
  return {MiddleOf(width, resize * width / shorter, size), MiddleOf(height, resize * height / shorter, size)};
}

ResizedPart RandomPart(int64_t width, int64_t height, const v1::RandomResizedCrop& crop, int64_t size,
                       Random* random) {
  constexpr int kTries = 10;
  const auto part = [size](int64_t left, int64_t top, int64_t w, int64_t h) {
    return ResizedPart{{left, w, size, 0, size}, {top, h, size, 0, size}};
  };
  const double area = static_cast<double>(width) * static_cast<double>(height);
  const double low = std::log(crop.min_ratio()), high = std::log(crop.max_ratio());
  for (int i = 0; i < kTries; ++i) {
    const double wanted = area * random->Uniform(crop.min_scale(), crop.max_scale());
    const double ratio = std::exp(random->Uniform(low, high));
    const int64_t w = Round(std::sqrt(wanted * ratio)), h = Round(std::sqrt(wanted / ratio));
    if (w < 1 || h < 1 || w > width || h > height) continue;
    const auto top = static_cast<int64_t>(random->Below(height - h + 1));
    const auto left = static_cast<int64_t>(random->Below(width - w + 1));
    return part(left, top, w, h);
  }
  const double ratio = static_cast<double>(width) / static_cast<double>(height);
  int64_t w = width, h = height;
  if (ratio < crop.min_ratio()) h = Round(static_cast<double>(width) / crop.min_ratio());
  if (ratio > crop.max_ratio()) w = Round(static_cast<double>(height) * crop.max_ratio());
  // A side that is rounded away from the image, or to nothing, has the nearest length.
  w = std::clamp<int64_t>(w, 1, width);
  h = std::clamp<int64_t>(h, 1, height);
  return part((width - w) / 2, (height - h) / 2, w, h);
}

// A pixel of the result is a mean over the pixels of the image that it covers, and half as many again on each
// side, with weights that fall linearly from its center; where it covers less than one, of the two nearest.
Resizer::Weights::Weights(const ResizedRange& range) : begin(range.begin + range.length), end(range.begin) {
  const double scale = static_cast<double>(range.length) / static_cast<double>(range.resized);
  const double support = std::max(1.0, scale);
  taps = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  begins.resize(range.size);
  values.resize(range.size * taps);
  std::vector<double> weights(taps);
  for (int64_t i = 0; i < range.size; ++i) {
    const double center = (static_cast<double>(range.first + i) + 0.5) * scale;
    const int64_t low = std::max<int64_t>(0, static_cast<int64_t>(center - support + 0.5));
    const int64_t high = std::min(range.length, static_cast<int64_t>(center + support + 0.5));
    double sum = 0;
    for (int64_t j = low; j < high; ++j) {
      const double distance = std::abs((static_cast<double>(j) - center + 0.5) / support);
      weights[j - low] = std::max(0.0, 1 - distance);
      sum += weights[j - low];
    }
    for (int64_t j = low; j < high; ++j) {
      values[i * taps + j - low] = static_cast<int32_t>(0.5 + weights[j - low] / sum * (1 << kPrecision));
    }
    begins[i] = range.begin + low;
    begin = std::min(begin, range.begin + low);
    end = std::max(end, range.begin + high);
  }
}

Resizer::Resizer(const ResizedPart& part)
    : horizontal_(part.x),
      vertical_(part.y),
      rows_((vertical_.end - vertical_.begin) * part.x.size * kChannels) {}

void Resizer::AddRow(int64_t y, const uint8_t* rgb) {
  if (y < vertical_.begin || y >= vertical_.end) return;
  const auto width = static_cast<int64_t>(horizontal_.begins.size());
  const int64_t taps = horizontal_.taps;
  uint8_t* out = rows_.data() + (y - vertical_.begin) * width * kChannels;
  for (int64_t x = 0; x < width; ++x, out += kChannels) {
    const int32_t* const weights = horizontal_.values.data() + x * taps;
    const int64_t begin = horizontal_.begins[x], end = std::min(begin + taps, horizontal_.end);
    int32_t red = 1 << (kPrecision - 1), green = red, blue = red;
    const uint8_t* pixel = rgb + begin * kChannels;
    for (int64_t i = 0; i < end - begin; ++i, pixel += kChannels) {
      red += pixel[0] * weights[i];
      green += pixel[1] * weights[i];
      blue += pixel[2] * weights[i];
    }
    out[0] = Rounded(red);
    out[1] = Rounded(green);
    out[2] = Rounded(blue);
  }
}

std::vector<uint8_t> Resizer::Finish() const {
  const auto height = static_cast<int64_t>(vertical_.begins.size());
  const auto row = static_cast<int64_t>(horizontal_.begins.size()) * kChannels;
  std::vector<uint8_t> out(height * row);
  std::vector<int32_t> sums(row);
  for (int64_t y = 0; y < height; ++y) {
    std::fill(sums.begin(), sums.end(), 1 << (kPrecision - 1));
    const int64_t begin = vertical_.begins[y], end = std::min(begin + vertical_.taps, vertical_.end);
    for (int64_t i = begin; i < end; ++i) {
      const int32_t weight = vertical_.values[y * vertical_.taps + i - begin];
      const uint8_t* const from = rows_.data() + (i - vertical_.begin) * row;
      for (int64_t x = 0; x < row; ++x) sums[x] += from[x] * weight;
    }
    for (int64_t x = 0; x < row; ++x) out[y * row + x] = Rounded(sums[x]);
  }
  return out;
}

}  // namespace catchment
