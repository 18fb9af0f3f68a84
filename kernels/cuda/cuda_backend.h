// The backend (kernels/backend.h) for a CUDA device, through the plugin.
//
// Errors: a failing run (when a device is lost) ends the process with the reason; the job continues without
// this worker.
#ifndef CATCHMENT_KERNELS_CUDA_CUDA_BACKEND_H_
#define CATCHMENT_KERNELS_CUDA_CUDA_BACKEND_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/plugin_api.h"

namespace catchment {

struct CudaOptions {
  int index = 0;  // of the device
  CatchmentCudaPrecision precision = CATCHMENT_CUDA_FLOAT32;
};

// Creates the backend. `plugin` must outlive it. Errors: FailedPrecondition, the plugin was built without the
// CUDA Toolkit; Unavailable, the device cannot be used; the message says why.
absl::StatusOr<std::unique_ptr<Backend>> MakeCudaBackend(const CatchmentCudaPlugin& plugin,
                                                         const CudaOptions& options);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CUDA_CUDA_BACKEND_H_
