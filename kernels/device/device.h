// Chooses the device that a network is computed on.
#ifndef CATCHMENT_KERNELS_DEVICE_DEVICE_H_
#define CATCHMENT_KERNELS_DEVICE_DEVICE_H_

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

// Parses a worker's --device: "auto", "cpu", "cuda" or "cuda:3", in either case. An empty flag means the
// job's choice. Errors: InvalidArgument for anything else.
absl::StatusOr<DeviceRequest> ResolveDevice(const std::string& flag, v1::Device from_job);

struct DeviceOptions {
  CpuOptions cpu;
  // The index of this worker among those of the machine. Requests without an index are assigned the machine's
  // CUDA devices in turn.
  int local_index = 0;
  v1::Computation::Precision precision = v1::Computation::FLOAT32;  // of a CUDA device; a CPU's is float32
  std::string cuda_plugin;  // CudaPluginPath() (kernels/cuda/loader.h), except in tests
};

struct DeviceChoice {
  std::unique_ptr<Backend> backend;
  // For the log: "cpu: oneDNN 2.6.3, AVX-512, 2 threads"; with AUTO also why it is not a CUDA device, and a
  // note if the precision is not the requested one.
  std::string explanation;
};

// Creates the backend of the requested device. Errors: FailedPrecondition, NotFound or Unavailable if CUDA is
// requested and cannot be used, with a message that names the missing part, or says that the device is older
// than compute capability 8.0; OutOfRange if there is no device with that index.
absl::StatusOr<DeviceChoice> ChooseDevice(const DeviceRequest& request, const DeviceOptions& options);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_DEVICE_DEVICE_H_
