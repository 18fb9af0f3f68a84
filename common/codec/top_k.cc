#include "common/codec/top_k.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/codec/formats.h"

namespace catchment {
namespace {

// The distance of the values that are sampled for the estimate. It is odd, so that it does not divide the
// dimensions of most tensors.
constexpr size_t kSampling = 127;
// The number of values that are compared with the bound at once.
constexpr size_t kGroup = 16;

template <typename T>
void Store(T value, char* out, int64_t index) {
  std::memcpy(out + sizeof(T) * index, &value, sizeof(T));
}

template <typename T>
T Load(const char* in, int64_t index) {
  T value;
  std::memcpy(&value, in + sizeof(T) * index, sizeof(T));
  return value;
}

absl::Status WrongIndex(int64_t j, uint32_t index, size_t next, size_t n) {
  const std::string which = absl::StrCat("index ", j, " of the payload is ", index);
  if (index >= n)
    return absl::InvalidArgumentError(absl::StrCat(which, ", and the block has ", n, " values"));
  return absl::InvalidArgumentError(
      absl::StrCat(which, "; it must be at least ", next, ", for indices ascend"));
}

void Add(absl::Span<const float> gradient, float decay, float* __restrict residual) {
  const float* __restrict g = gradient.data();
  for (size_t i = 0; i < gradient.size(); ++i) residual[i] = decay * residual[i] + g[i];
}

}  // namespace

int64_t TopKCount(float fraction, int64_t n) {
  return std::clamp<int64_t>(std::floor(static_cast<double>(fraction) * n + 0.5), 1, n);
}

// Returns the expected rank of the k-th largest value among the samples, plus three standard deviations: a
// bound that is too high costs a second pass, one that is too low only more candidates.
uint32_t TopKEncoder::GuessLowerBound(absl::Span<const float> gradient, float decay,
                                      absl::Span<const float> residual, int64_t k) {
  const size_t samples = gradient.size() / kSampling;
  const double expected = static_cast<double>(k) / kSampling;
  const double rank = expected + 3 * std::sqrt(expected) + 3;
  if (rank >= samples) return 0;
  for (size_t i = 0; i < samples; ++i) {
    magnitudes_[i] = MagnitudeBits(decay * residual[i * kSampling] + gradient[i * kSampling]);
  }
  const auto begin = magnitudes_.begin(), nth = begin + static_cast<int64_t>(rank);
  std::nth_element(begin, nth, begin + samples, std::greater<>());
  return *nth;
}

void TopKEncoder::Gather(absl::Span<const float> gradient, float decay, absl::Span<const float> residual,
                         uint32_t lower_bound) {
  const float* __restrict g = gradient.data();
  const float* __restrict r = residual.data();
  uint32_t* __restrict candidates = candidates_.data();
  uint32_t* __restrict magnitudes = magnitudes_.data();
  size_t found = 0;
  const auto gather = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) {
      const uint32_t magnitude = MagnitudeBits(decay * r[i] + g[i]);
      candidates[found] = static_cast<uint32_t>(i);
      magnitudes[found] = magnitude;
      found += magnitude >= lower_bound;
    }
  };
  const size_t n = gradient.size(), whole = n - n % kGroup;
  for (size_t i = 0; i < whole; i += kGroup) {
    uint32_t any = 0;
    for (size_t j = i; j < i + kGroup; ++j) any |= MagnitudeBits(decay * r[j] + g[j]) >= lower_bound;
    if (any) gather(i, i + kGroup);
  }
  gather(whole, n);
  num_candidates_ = found;
}

TopKEncoder::Threshold TopKEncoder::FindThreshold(int64_t k) {
  const auto begin = magnitudes_.begin(), kth = begin + (k - 1);
  std::nth_element(begin, kth, begin + num_candidates_, std::greater<>());
  return {*kth, std::count(begin, kth + 1, *kth)};
}

void TopKEncoder::Encode(absl::Span<const float> gradient, float decay, absl::Span<float> residual, int64_t k,
                         char* out) {
  const size_t n = gradient.size();
  CHECK_EQ(n, residual.size());
  CHECK(k >= 1 && static_cast<size_t>(k) <= n) << k << " of " << n;
  if (candidates_.size() < n) {
    candidates_.resize(n);
    magnitudes_.resize(n);
  }
  Gather(gradient, decay, residual, GuessLowerBound(gradient, decay, residual, k));
  if (num_candidates_ < static_cast<size_t>(k)) Gather(gradient, decay, residual, 0);
  // A value that is not finite would be among the k.
  if (!Write(gradient, decay, residual, k, FindThreshold(k), out)) return;
  Add(gradient, decay, residual.data());
  for (int64_t j = 0; j < k; ++j) residual[Load<uint32_t>(out, j)] = 0;
}

bool TopKEncoder::Write(absl::Span<const float> gradient, float decay, absl::Span<const float> residual,
                        int64_t k, Threshold threshold, char* out) const {
  bool finite = true;
  int64_t written = 0;
  for (size_t c = 0; c < num_candidates_; ++c) {
    const uint32_t index = candidates_[c];
    const float value = decay * residual[index] + gradient[index];
    const uint32_t magnitude = MagnitudeBits(value);
    if (magnitude < threshold.bits || (magnitude == threshold.bits && threshold.ties-- <= 0)) continue;
    Store(index, out, written);
    Store(value, out, k + written);
    ++written;
    finite &= magnitude < kInfinityBits;
  }
  CHECK_EQ(written, k);
  return finite;
}

void EncodeTopKZeros(int64_t k, char* out) {
  for (int64_t j = 0; j < k; ++j) {
    Store(static_cast<uint32_t>(j), out, j);
    Store(0.0f, out, k + j);
  }
}

absl::StatusOr<bool> DecodeTopK(PayloadView payload, int64_t k, absl::Span<float> out) {
  PayloadView values = payload;
  values.Skip(sizeof(uint32_t) * k);
  std::fill(out.begin(), out.end(), 0.0f);
  bool finite = true;
  size_t next = 0;
  for (int64_t j = 0; j < k; ++j) {
    const uint32_t index = TakeOne<uint32_t>(&payload);
    const float value = TakeOne<float>(&values);
    if (index < next || index >= out.size()) return WrongIndex(j, index, next, out.size());
    out[index] = value;
    finite &= IsUsable(value);
    next = index + size_t{1};
  }
  return finite;
}

}  // namespace catchment
