#include <cublasLt.h>
#include <cuda_runtime.h>

#include <cstdlib>

#include "tests/kernels/cuda/ptx/faults.h"

namespace catchment::ptx {
namespace {

constexpr int kThreads = 64;

__global__ void SomeWait(float* out) {
  __shared__ float values[kThreads];
  values[threadIdx.x] = out[threadIdx.x];
  if (out[threadIdx.x] > 1) {
    __syncthreads();
    out[threadIdx.x] = values[kThreads - 1 - threadIdx.x];
  }
}

__global__ void SumBlock(float* out) {
  __shared__ float values[kThreads];
  values[threadIdx.x] = static_cast<float>(threadIdx.x);
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) values[threadIdx.x] += values[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *out = values[0];
}

__global__ void Set(float* out, float value) { *out = value; }

cudaStream_t MakeStream() {
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  return stream;
}

float* Allocate(int values) {
  void* memory = nullptr;
  cudaMalloc(&memory, values * sizeof(float));
  return static_cast<float*>(memory);
}

float* AllocatePinned(int values) {
  void* memory = nullptr;
  cudaMallocHost(&memory, values * sizeof(float));
  return static_cast<float*>(memory);
}

}  // namespace

void ReachABarrierWithSomeThreads() {
  float* const pinned = AllocatePinned(kThreads);
  for (int i = 0; i < kThreads; ++i) pinned[i] = static_cast<float>(i % 4);
  float* const values = Allocate(kThreads);
  const cudaStream_t stream = MakeStream();
  cudaMemcpyAsync(values, pinned, kThreads * sizeof(float), cudaMemcpyHostToDevice, stream);
  SomeWait<<<1, kThreads, 0, stream>>>(values);
  cudaDeviceSynchronize();
}

void LaunchTooManyThreads() { Set<<<1, 2048, 0, MakeStream()>>>(Allocate(1), 1); }

void UseTheDefaultStream() { Set<<<1, 1>>>(Allocate(1), 1); }

void CopyBeyondAnAllocation() {
  cudaMemcpyAsync(Allocate(4), AllocatePinned(8), 5 * sizeof(float), cudaMemcpyHostToDevice, MakeStream());
}

void FreeTwice() {
  float* const memory = Allocate(4);
  cudaFree(memory);
  cudaFree(memory);
}

namespace {

constexpr size_t kPage = 4096;

// Returns two pages, each of which is registered.
char* RegisterTwoPages() {
  char* const memory = static_cast<char*>(std::aligned_alloc(kPage, 2 * kPage));
  for (int page = 0; page < 2; ++page)
    cudaHostRegister(memory + page * kPage, kPage, cudaHostRegisterPortable);
  return memory;
}

}  // namespace

void CopyAcrossRegistrations() {
  cudaMemcpyAsync(Allocate(2), RegisterTwoPages() + kPage - 4, 8, cudaMemcpyHostToDevice, MakeStream());
}

void UnregisterDuringACopy() {
  char* const memory = RegisterTwoPages();
  cudaMemcpyAsync(Allocate(2), memory, 8, cudaMemcpyHostToDevice, MakeStream());
  cudaHostUnregister(memory);
}

bool RegistersAPageTwice() {
  char* const memory = RegisterTwoPages();
  return cudaHostRegister(memory + 8, 8, cudaHostRegisterPortable) == cudaSuccess;
}

void MultiplyUnalignedMatrices() {
  cublasLtHandle_t handle;
  cublasLtCreate(&handle);
  cublasLtMatmulDesc_t product;
  cublasLtMatmulDescCreate(&product, CUBLAS_COMPUTE_32F, CUDA_R_32F);
  cublasLtMatrixLayout_t layout;
  cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 2, 2, 2);
  cublasLtMatmulPreference_t preference;
  cublasLtMatmulPreferenceCreate(&preference);
  cublasLtMatmulHeuristicResult_t found;
  int count = 0;
  cublasLtMatmulAlgoGetHeuristic(handle, product, layout, layout, layout, layout, preference, 1, &found,
                                 &count);
  const float one = 1, zero = 0;
  float* const matrix = Allocate(8);
  // The algorithm was chosen for matrices that are aligned to 256 bytes.
  cublasLtMatmul(handle, product, &one, matrix, layout, matrix + 1, layout, &zero, matrix, layout, matrix,
                 layout, &found.algo, matrix, 0, MakeStream());
}

float SumOfABlock() {
  const cudaStream_t stream = MakeStream();
  float* const sum = Allocate(1);
  float* const result = AllocatePinned(1);
  SumBlock<<<1, kThreads, 0, stream>>>(sum);
  cudaMemcpyAsync(result, sum, sizeof(float), cudaMemcpyDeviceToHost, stream);
  cudaDeviceSynchronize();
  cudaStreamDestroy(stream);
  return *result;
}

float CopyAfterAKernel(bool wait) {
  const cudaStream_t compute = MakeStream(), out = MakeStream();
  cudaEvent_t computed;
  cudaEventCreateWithFlags(&computed, cudaEventDisableTiming);
  float* const value = Allocate(1);
  float* const result = AllocatePinned(1);
  Set<<<1, 1, 0, compute>>>(value, 1);
  cudaDeviceSynchronize();
  Set<<<1, 1, 0, compute>>>(value, 2);
  cudaEventRecord(computed, compute);
  if (wait) cudaStreamWaitEvent(out, computed);
  cudaMemcpyAsync(result, value, sizeof(float), cudaMemcpyDeviceToHost, out);
  cudaDeviceSynchronize();
  for (const cudaStream_t stream : {compute, out}) cudaStreamDestroy(stream);
  return *result;
}

}  // namespace catchment::ptx
