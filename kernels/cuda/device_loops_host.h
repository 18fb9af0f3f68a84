// The loops and sums of a device (device.h) in one thread of the CPU, for tests. device.h includes it in
// compilations by the host's compiler.
//
// Errors: those of Checked.
#ifndef CATCHMENT_KERNELS_CUDA_DEVICE_LOOPS_HOST_H_
#define CATCHMENT_KERNELS_CUDA_DEVICE_LOOPS_HOST_H_

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/pack.h"

namespace catchment::cuda {

template <typename F>
void Device::ForEach(int64_t n, F f) {
  for (int i = 0, end = Checked(n, "a loop"); i < end; ++i) f(i);
}

// One thread computes each row.
struct Team {
  static constexpr int rank = 0, size = 1;
  static void Barrier() {}
  static float Sum(float value) { return value; }
  static float Max(float value) { return value; }
};

template <typename F>
void Device::ForEachRow(int64_t rows, int64_t width, F f) {
  Checked(rows * width, "a loop");
  for (int row = 0; row < rows; ++row) f(row, Team());
}

template <typename F>
void Device::ForEachSequence(int64_t sequences, int64_t, F f) {
  for (int sequence = 0; sequence < sequences; ++sequence) f(sequence, Team());
}

template <int kSums, int kWidth, typename F, typename G>
void Device::SumRows(int64_t rows, int64_t columns, F f, G done) {
  Checked(rows * columns, "a sum");
  for (int c = 0; c < columns; c += kWidth) {
    double sums[kSums][kWidth] = {};
    for (int r = 0; r < rows; ++r) {
      Pack<kWidth> row[kSums] = {};
      f(r, c, row);
      for (int i = 0; i < kSums; ++i) {
        for (int k = 0; k < kWidth; ++k) sums[i][k] += row[i].at[k];
      }
    }
    for (int k = 0; k < kWidth; ++k) {
      float totals[kSums];
      for (int i = 0; i < kSums; ++i) totals[i] = static_cast<float>(sums[i][k]);
      done(c + k, totals);
    }
  }
}

}  // namespace catchment::cuda

#endif  // CATCHMENT_KERNELS_CUDA_DEVICE_LOOPS_HOST_H_
