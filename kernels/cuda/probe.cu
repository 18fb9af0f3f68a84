#include <cublas_v2.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <string>

// Reports this machine's devices and driver, as the CUDA runtime sees them.
#include "kernels/cuda/plugin.h"

namespace catchment::cuda {
namespace {

// Returns "13.0" for 13000.
std::string Version(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Returns what the driver lacks, and what a user can do about it.
std::string ExplainDriver() {
  int driver = 0;
  if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) return "there is no NVIDIA driver";
  const std::string needed = Version(CUDART_VERSION);
  std::string package = "cuda-compat-" + needed;
  std::replace(package.begin(), package.end(), '.', '-');
  return "the NVIDIA driver supports CUDA " + Version(driver) + " and the plugin needs " + needed +
         "; install a newer driver, or on a data centre GPU NVIDIA's package " + package +
         " and put its folder on LD_LIBRARY_PATH";
}

std::string Explain(cudaError_t error) {
  if (error == cudaErrorInsufficientDriver) return ExplainDriver();
  if (error == cudaErrorNoDevice) return "the NVIDIA driver shows no device (see CUDA_VISIBLE_DEVICES)";
  return "the CUDA runtime failed";
}

void Explain(cudaError_t error, char* why, int32_t why_size) {
  std::snprintf(why, why_size, "%s (CUDA error %d: %s)", Explain(error).c_str(), static_cast<int>(error),
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
