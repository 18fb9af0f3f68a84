// The loops and sums of a device (device.h) as kernels of a GPU. device.h includes it in nvcc's compilations.
//
// Threads: as device.h. Kernels are launched on the stream `compute`.
// Errors: those of Checked, and of Device::Launched for a kernel that could not be started.
#ifndef CATCHMENT_KERNELS_CUDA_DEVICE_LOOPS_H_
#define CATCHMENT_KERNELS_CUDA_DEVICE_LOOPS_H_

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <typeinfo>

#include "kernels/cuda/device.h"
#include "kernels/cuda/pack.h"

namespace catchment::cuda {

struct Device::Streams {
  cudaStream_t compute, in, out;
  cudaEvent_t copied_in, computed;
};

template <typename F>
__global__ void ForEachKernel(uint32_t n, F f) {
  const uint32_t stride = gridDim.x * blockDim.x;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) f(static_cast<int>(i));
}

template <typename F>
void Device::ForEach(int64_t n, F f) {
  if (n == 0) return;
  constexpr int kBlock = 256;
  constexpr int64_t kMaxBlocks = 1 << 16;
  const int64_t blocks = (Checked(n, "a loop") + kBlock - 1) / kBlock;
  ForEachKernel<<<static_cast<int>(blocks < kMaxBlocks ? blocks : kMaxBlocks), kBlock, 0,
                  streams_->compute>>>(static_cast<uint32_t>(n), f);
  Launched(typeid(F).name());
}

// The threads that compute one row, which are all of a block.
struct Team {
  int rank, size;
  float* shared;  // as many values as threads

  // Waits until all threads have called it: each then sees what the others have written. All threads must
  // call it.
  __device__ void Barrier() const { __syncthreads(); }

  // Return the sum and the largest of all threads' values, to each of them. All threads must call them.
  __device__ float Sum(float value) const {
    return Combine(value, [](float a, float b) { return a + b; });
  }
  __device__ float Max(float value) const {
    return Combine(value, [](float a, float b) { return fmaxf(a, b); });
  }

 private:
  template <typename F>
  __device__ float Combine(float value, F f) const {
    __syncthreads();  // the result of the call before has been read
    shared[rank] = value;
    for (int half = size / 2; half > 0; half /= 2) {
      __syncthreads();
      if (rank < half) shared[rank] = f(shared[rank], shared[rank + half]);
    }
    __syncthreads();
    return shared[0];
  }
};

template <typename F>
__global__ void ForEachRowKernel(F f) {
  __shared__ float shared[256];
  f(static_cast<int>(blockIdx.x), Team{static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x), shared});
}

template <typename F>
void Device::ForEachRow(int64_t rows, int64_t width, F f) {
  if (rows == 0) return;
  Checked(rows * width, "a loop");
  const int threads = width > 1024 ? 256 : 32;
  ForEachRowKernel<<<static_cast<int>(rows), threads, 0, streams_->compute>>>(f);
  Launched(typeid(F).name());
}

template <typename F>
void Device::ForEachSequence(int64_t sequences, int64_t values, F f) {
  if (sequences == 0) return;
  const auto threads = static_cast<int>(std::min<int64_t>((values + 31) / 32 * 32, kMaxTeamThreads));
  ForEachRowKernel<<<Checked(sequences, "a loop"), threads, 0, streams_->compute>>>(f);
  Launched(typeid(F).name());
}

// Adds the sums of the threads of a column, which differ in threadIdx.y, to those of the first.
template <int kSums, int kWidth>
__device__ void SumOverRows(Pack<kWidth> (&sums)[kSums], float* shared) {
  constexpr int kValues = kSums * kWidth;
  const int thread = threadIdx.y * blockDim.x + threadIdx.x, threads = blockDim.x * blockDim.y;
#pragma unroll
  for (int i = 0; i < kValues; ++i) shared[i * threads + thread] = sums[i / kWidth].at[i % kWidth];
  for (int half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y >= half) continue;
#pragma unroll
    for (int i = 0; i < kValues; ++i) {
      float* const sum = shared + i * threads + thread;
      *sum += sum[half * blockDim.x];
    }
  }
#pragma unroll
  for (int i = 0; i < kValues; ++i) sums[i / kWidth].at[i % kWidth] = shared[i * threads + thread];
  __syncthreads();
}

// A block sums blockDim.x packs of columns over a part of the rows, blockDim.y rows at a time. The last block
// of these columns sums the parts, in their order.
template <int kSums, int kWidth, typename F, typename G>
__global__ void SumRowsKernel(int rows, int packs, F f, G done, float* parts, uint32_t* finished) {
  constexpr int kValues = kSums * kWidth;
  __shared__ float shared[256 * kValues];
  const int pack = blockIdx.x * blockDim.x + threadIdx.x;
  const auto first = static_cast<int>(int64_t{rows} * blockIdx.y / gridDim.y);
  const auto end = static_cast<int>(int64_t{rows} * (blockIdx.y + 1) / gridDim.y);
  Pack<kWidth> sums[kSums] = {};
  if (pack < packs) {
    for (int row = first + threadIdx.y; row < end; row += blockDim.y) f(row, pack * kWidth, sums);
  }
  SumOverRows(sums, shared);
  if (gridDim.y > 1) {
    float* const part = parts + (blockIdx.y * packs + pack) * kValues;
    if (threadIdx.y == 0 && pack < packs) {
      for (int i = 0; i < kSums; ++i) StorePack(part + i * kWidth, sums[i]);
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0)
      shared[0] = atomicInc(&finished[blockIdx.x], gridDim.y - 1) == gridDim.y - 1 ? 1.0f : 0.0f;
    __syncthreads();
    if (shared[0] == 0) return;
    __threadfence();
    __syncthreads();  // shared[0] has been read
    for (Pack<kWidth>& sum : sums) sum = {};
    if (pack < packs) {
      for (int p = threadIdx.y; p < gridDim.y; p += blockDim.y) {
        const float* const other = parts + (p * packs + pack) * kValues;
#pragma unroll
        for (int i = 0; i < kValues; ++i) sums[i / kWidth].at[i % kWidth] += __ldcg(other + i);
      }
    }
    SumOverRows(sums, shared);
  }
  if (threadIdx.y > 0 || pack >= packs) return;
  for (int k = 0; k < kWidth; ++k) {
    float totals[kSums];
    for (int i = 0; i < kSums; ++i) totals[i] = sums[i].at[k];
    done(pack * kWidth + k, totals);
  }
}

template <int kSums, int kWidth, typename F, typename G>
void Device::SumRows(int64_t rows, int64_t columns, F f, G done) {
  static_assert(kSums * kWidth <= kMaxSummedValues);
  Checked(rows * columns, "a sum");
  const auto packs = static_cast<int>(columns / kWidth);
  int width = 1;
  while (width < packs && width < 32) width *= 2;
  // Each thread has at least four rows.
  int height = kSumThreads / width;
  while (height > 1 && height * 4 > rows) height /= 2;
  const int ranges = (packs + width - 1) / width;
  const int64_t parts = std::clamp<int64_t>(rows / (8 * height), 1, std::max(1, kMaxSumBlocks / ranges));
  auto* const finished = reinterpret_cast<uint32_t*>(static_cast<char*>(workspace_) + kWorkspaceBytes);
  auto* const sums =
      reinterpret_cast<float*>(static_cast<char*>(workspace_) + kWorkspaceBytes + kSumCounterBytes);
  SumRowsKernel<kSums, kWidth>
      <<<dim3(ranges, static_cast<unsigned>(parts)), dim3(width, height), 0, streams_->compute>>>(
          static_cast<int>(rows), packs, f, done, sums, finished);
  Launched(typeid(F).name());
}

}  // namespace catchment::cuda

#endif  // CATCHMENT_KERNELS_CUDA_DEVICE_LOOPS_H_
