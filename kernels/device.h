// Which device a network is computed on, and why.
#ifndef CATCHMENT_KERNELS_DEVICE_H_
#define CATCHMENT_KERNELS_DEVICE_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cpu/cpu_backend.h"
#include "proto/job.pb.h"

namespace catchment {

struct DeviceRequest {
  v1::Device device = v1::AUTO;
  std::optional<int> cuda_index;
};

// "auto", "cpu", "cuda" or "cuda:3" (a worker's --device); an empty flag is the job's choice.
// Errors: InvalidArgument for anything else.
absl::StatusOr<DeviceRequest> ResolveDevice(const std::string& flag, v1::Device from_job);

struct DeviceOptions {
  CpuOptions cpu;
  // Which one of several workers on this machine asks. Without an index in the request, they take its CUDA
  // devices in turn.
  int local_index = 0;
  v1::Computation::Precision precision = v1::Computation::FLOAT32;  // of a CUDA device; a CPU's is float32
  std::string cuda_plugin;  // CudaPluginPath() (kernels/cuda/loader.h), but for tests
};

struct DeviceChoice {
  std::unique_ptr<Backend> backend;
  // For the log: "cpu: oneDNN 2.6.3, AVX-512, 2 threads", with AUTO why it is not a CUDA device, and where
  // the precision is not the one that was asked for.
  std::string explanation;
};

// Errors: FailedPrecondition, NotFound or Unavailable when the device is CUDA and cannot be used; the message
// says what is missing. OutOfRange: there is no device of that index.
absl::StatusOr<DeviceChoice> ChooseDevice(const DeviceRequest& request, const DeviceOptions& options);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_DEVICE_H_
