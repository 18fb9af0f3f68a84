// The backend for the CPU, with oneDNN 2.6, whose layouts are used between layers.
#ifndef CATCHMENT_KERNELS_CPU_CPU_BACKEND_H_
#define CATCHMENT_KERNELS_CPU_CPU_BACKEND_H_

#include <memory>
#include <string>

#include "kernels/backend.h"

namespace catchment {

struct CpuOptions {
  int threads = 1;
  // If true, no algorithm is chosen by measuring.
  bool deterministic = false;
};

// Returns the instructions that the kernels use on this processor, such as "AVX2" or "AVX-512".
std::string CpuInstructionSet();

std::unique_ptr<Backend> MakeCpuBackend(const CpuOptions& options);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_CPU_BACKEND_H_
