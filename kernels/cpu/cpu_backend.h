// The CPU: oneDNN 2.6, in its own layouts between layers.
#ifndef CATCHMENT_KERNELS_CPU_CPU_BACKEND_H_
#define CATCHMENT_KERNELS_CPU_CPU_BACKEND_H_

#include <memory>

#include "kernels/backend.h"

namespace catchment {

struct CpuOptions {
  int threads = 1;
  // No algorithm is chosen by measuring.
  bool deterministic = false;
};

std::unique_ptr<Backend> MakeCpuBackend(const CpuOptions& options);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_CPU_BACKEND_H_
