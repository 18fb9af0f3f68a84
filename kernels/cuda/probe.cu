#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>

// What the CUDA runtime reports about this machine.
#include "kernels/cuda/plugin.h"

namespace catchment::cuda {
namespace {

void Explain(cudaError_t error, char* why, int32_t why_size) {
  const char* missing = "the CUDA runtime failed";
  if (error == cudaErrorInsufficientDriver) missing = "there is no NVIDIA driver, or one too old";
  if (error == cudaErrorNoDevice) missing = "the NVIDIA driver shows no device (see CUDA_VISIBLE_DEVICES)";
  std::snprintf(why, why_size, "%s (CUDA error %d: %s)", missing, static_cast<int>(error),
                cudaGetErrorString(error));
}

bool Fill(int index, CatchmentCudaDevice* device) {
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) return false;
  std::snprintf(device->name, sizeof device->name, "%s", properties.name);
  device->memory_bytes = properties.totalGlobalMem;
  device->capability_major = properties.major;
  device->capability_minor = properties.minor;
  return true;
}

}  // namespace

const char* Toolkit() {
  static char text[64];
  int major = 0, minor = 0;
  cublasGetProperty(MAJOR_VERSION, &major);
  cublasGetProperty(MINOR_VERSION, &minor);
  std::snprintf(text, sizeof text, "CUDA %d.%d, cuBLAS %d.%d", CUDART_VERSION / 1000,
                CUDART_VERSION % 1000 / 10, major, minor);
  return text;
}

int32_t ProbeDevices(CatchmentCudaDevice* devices, int32_t capacity, char* why, int32_t why_size) {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaSuccess && count == 0) error = cudaErrorNoDevice;
  if (error != cudaSuccess) {
    Explain(error, why, why_size);
    return 0;
  }
  for (int i = 0; i < std::min<int>(count, capacity); ++i) {
    if (!Fill(i, &devices[i])) {
      Explain(cudaGetLastError(), why, why_size);
      return 0;
    }
  }
  return count;
}

}  // namespace catchment::cuda
