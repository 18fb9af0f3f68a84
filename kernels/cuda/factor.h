// A factor of matrix products: float32 values in place, or, with a precision of 16 bits, a copy of them. The
// copy is rounded once for all products: 4 bytes of each value are read and 2 are written, and each product
// reads 2 instead of 4. Kernels that compute a factor themselves (the patches of a convolution, the hidden
// states and gates of an lstm) write the copy directly, and nothing is read again.
#ifndef CATCHMENT_KERNELS_CUDA_FACTOR_H_
#define CATCHMENT_KERNELS_CUDA_FACTOR_H_

#include <initializer_list>
#include <optional>

#include "kernels/cuda/device.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/pack.h"
#include "kernels/cuda/precision.h"

namespace catchment::cuda {

// Writes values to the memory that products read; does nothing if `to` is null.
struct FactorWriter {
  void* to;
  Precision precision;

  CATCHMENT_ON_DEVICE void Write(int64_t i, float value) const {
    if (to == nullptr) return;
    if (precision == Precision::kBfloat16) {
      static_cast<uint16_t*>(to)[i] = RoundToBfloat16(value);
    } else if (precision == Precision::kFloat16) {
      static_cast<uint16_t*>(to)[i] = RoundToFloat16(value);
    } else {
      static_cast<float*>(to)[i] = value;
    }
  }

  // Writes values i, i + 1, ...; i is a multiple of kWidth.
  template <int kWidth>
  CATCHMENT_ON_DEVICE void Write(int64_t i, const Pack<kWidth>& values) const {
    if (to == nullptr) return;
    if (!Is16Bit(precision)) return StorePack(static_cast<float*>(to) + i, values);
    Pack<kWidth, uint16_t> rounded;
    for (int k = 0; k < kWidth; ++k) {
      rounded.at[k] =
          precision == Precision::kBfloat16 ? RoundToBfloat16(values.at[k]) : RoundToFloat16(values.at[k]);
    }
    StorePack(static_cast<uint16_t*>(to) + i, rounded);
  }

  // The same for values that have been rounded to the writer's precision before.
  template <int kWidth>
  CATCHMENT_ON_DEVICE void Write(int64_t i, const Pack<kWidth, uint16_t>& rounded) const {
    StorePack(static_cast<uint16_t*>(to) + i, rounded);
  }
};

// Reads what a FactorWriter has written.
struct FactorReader {
  const void* from;
  Precision precision;

  // Returns values i, i + 1, ...; i is a multiple of kWidth.
  template <int kWidth>
  CATCHMENT_ON_DEVICE Pack<kWidth> Read(int64_t i) const {
    if (!Is16Bit(precision)) return LoadPack<kWidth>(static_cast<const float*>(from) + i);
    const auto rounded = LoadPack<kWidth>(static_cast<const uint16_t*>(from) + i);
    Pack<kWidth> values;
    for (int k = 0; k < kWidth; ++k) {
      values.at[k] =
          precision == Precision::kBfloat16 ? FromBfloat16(rounded.at[k]) : FromFloat16(rounded.at[k]);
    }
    return values;
  }
};

// Returns `values` rounded up to a multiple of 16 bytes, which tensor cores load at a time, so that rows of
// that length can be loaded.
inline int64_t RoundedUp(const Device& device, int64_t values) {
  const int64_t unit = 16 / BytesOf(device.precision());
  return (values + unit - 1) / unit * unit;
}

// Returns the address `values` values after `factor`.
inline const void* Offset(const Device& device, const void* factor, int64_t values) {
  return static_cast<const char*>(factor) + values * BytesOf(device.precision());
}

// Returns the alignment of every multiple of all these distances in memory of the device: a power of two, at
// most 256.
inline int AlignmentOf(std::initializer_list<int64_t> bytes) {
  int64_t alignment = 256;
  for (const int64_t distance : bytes) {
    while (distance % alignment != 0) alignment /= 2;
  }
  return static_cast<int>(alignment);
}

class Factor {
 public:
  Factor(Device* device, int64_t rows, int64_t columns)
      : device_(device),
        rows_(rows),
        columns_(columns),
        stride_(Is16Bit(device->precision()) ? RoundedUp(*device, columns) : columns) {
    if (Is16Bit(device->precision())) copy_.emplace(device, rows * stride_);
  }

  // Returns the number of values from one row to the next.
  int64_t stride() const { return stride_; }

  // Sets the factor to these values, rows x columns. With 32 bits the factor follows later changes of them.
  void Take(const float* values) {
    const FactorWriter writer = WriterOf(values);
    if (writer.to == nullptr) return;
    WithPackWidth<8>(columns_, [&](auto width) { Copy<width()>(values, writer); });
  }

  // Writes the values with `writer`. It is public because nvcc requires that of functions with lambdas.
  template <int kWidth>
  void Copy(const float* values, const FactorWriter& writer) {
    const Divisor by_packs(columns_ / kWidth);
    const auto stride = static_cast<int>(stride_);
    device_->ForEach(rows_ * columns_ / kWidth, [=] CATCHMENT_ON_DEVICE(int i) {
      int pack;
      const int row = by_packs.Divide(i, &pack);
      writer.Write(int64_t{row} * stride + pack * kWidth, LoadPack<kWidth>(values + int64_t{i} * kWidth));
    });
  }

  // Does the same for a kernel that writes `values` and, with the returned writer, the copy, if there is one;
  // value (r, c) is at r * stride() + c.
  FactorWriter WriterOf(const float* values) {
    values_ = values;
    return {copy_ ? copy_->data() : nullptr, device_->precision()};
  }

  // Returns the address of row `row`.
  const void* data(int64_t row = 0) const {
    return Offset(*device_, copy_ ? static_cast<const void*>(copy_->data()) : values_, row * stride_);
  }

 private:
  Device* device_;
  const int64_t rows_, columns_, stride_;
  std::optional<DeviceArray<uint16_t>> copy_;
  const float* values_ = nullptr;
};

}  // namespace catchment::cuda

#endif  // CATCHMENT_KERNELS_CUDA_FACTOR_H_
