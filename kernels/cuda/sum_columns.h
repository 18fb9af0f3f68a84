// The gradient of a bias: sums over all rows.
#ifndef CATCHMENT_KERNELS_CUDA_SUM_COLUMNS_H_
#define CATCHMENT_KERNELS_CUDA_SUM_COLUMNS_H_

#include "kernels/cuda/device.h"

namespace catchment::cuda {

// values: rows x columns; sums (=): columns
inline void SumColumns(Device* device, int64_t rows, int64_t columns, const float* values, float* sums) {
  device->SumRows(
      rows, columns, [=] CATCHMENT_ON_DEVICE(int r, int c) { return values[r * columns + c]; }, sums);
}

}  // namespace catchment::cuda

#endif  // CATCHMENT_KERNELS_CUDA_SUM_COLUMNS_H_
