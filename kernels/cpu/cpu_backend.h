// The backend for the CPU, with oneDNN 2.6, whose layouts are used between layers.
#ifndef CATCHMENT_KERNELS_CPU_CPU_BACKEND_H_
#define CATCHMENT_KERNELS_CPU_CPU_BACKEND_H_

#include <memory>

#include "kernels/backend.h"

namespace catchment {

struct CpuOptions {
  int threads = 1;
  // If true, no algorithm is chosen by measuring.
  bool deterministic = false;
};

std::unique_ptr<Backend> MakeCpuBackend(const CpuOptions& options);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_CPU_BACKEND_H_
