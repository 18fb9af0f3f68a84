// Which device a network is computed on, and why.
#ifndef CATCHMENT_KERNELS_DEVICE_H_
#define CATCHMENT_KERNELS_DEVICE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "proto/job.pb.h"

namespace catchment {

// "auto", "cpu" or "cuda" (a worker's --device); an empty flag is the job's choice.
// Errors: InvalidArgument for any other word.
absl::StatusOr<v1::Device> ResolveDevice(const std::string& flag, v1::Device from_job);

struct DeviceChoice {
  std::unique_ptr<Backend> backend;
  // For the log: "cpu: oneDNN 2.6.3, AVX-512, 2 threads", and with AUTO why it is not a CUDA device.
  std::string explanation;
};

// `cuda_plugin` is CudaPluginPath() (kernels/cuda/loader.h), but for tests.
// Errors: FailedPrecondition or NotFound when the device is CUDA and cannot be used; the message says what is
// missing. This build has no CUDA kernels for training, so CUDA always ends so, and AUTO takes the CPU.
absl::StatusOr<DeviceChoice> ChooseDevice(v1::Device device, const CpuOptions& cpu,
                                          const std::string& cuda_plugin);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_DEVICE_H_
