// What libcatchment_cuda.so exports: one C function, so that no C++ library has to agree across the border.
#ifndef CATCHMENT_KERNELS_CUDA_PLUGIN_API_H_
#define CATCHMENT_KERNELS_CUDA_PLUGIN_API_H_

#include <stdint.h>

extern "C" {

#define CATCHMENT_CUDA_PLUGIN_VERSION 1

struct CatchmentCudaDevice {
  char name[256];
  uint64_t memory_bytes;
  int32_t capability_major;  // compute capability 9.0 is 9 and 0
  int32_t capability_minor;
};

struct CatchmentCudaPlugin {
  // CATCHMENT_CUDA_PLUGIN_VERSION of the plugin's build; the others are only there if it is ours.
  int32_t version;

  // The CUDA Toolkit and cuBLAS that it was built with, for people; empty when built without.
  const char* toolkit;

  // Writes up to `capacity` devices, and returns how many there are. 0: there is none that can be used, and
  // `why` (why_size bytes with the closing zero) says what is missing.
  int32_t (*probe)(CatchmentCudaDevice* devices, int32_t capacity, char* why, int32_t why_size);
};

// The exported function is called "catchment_cuda_plugin" and has this type.
typedef const CatchmentCudaPlugin* (*CatchmentCudaPluginFunction)();

}  // extern "C"

#endif  // CATCHMENT_KERNELS_CUDA_PLUGIN_API_H_
