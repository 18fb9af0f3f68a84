#include "kernels/device.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/cuda/loader.h"

namespace catchment {
namespace {

// Why no CUDA device is taken. Never OK yet.
absl::Status CudaStatus(const std::string& plugin) {
  const absl::StatusOr<std::vector<CudaDevice>> devices = ProbeCuda(plugin);
  if (!devices.ok()) return devices.status();
  return absl::FailedPreconditionError(
      absl::StrCat("there is ", Describe(devices->front()), ", but this build has no CUDA training kernels"));
}

}  // namespace

absl::StatusOr<v1::Device> ResolveDevice(const std::string& flag, v1::Device from_job) {
  if (flag.empty()) return from_job;
  if (flag == "auto") return v1::AUTO;
  if (flag == "cpu") return v1::CPU;
  if (flag == "cuda") return v1::CUDA;
  return absl::InvalidArgumentError(absl::StrCat("--device=", flag, " is none of auto, cpu, cuda"));
}

absl::StatusOr<DeviceChoice> ChooseDevice(v1::Device device, const CpuOptions& cpu,
                                          const std::string& cuda_plugin) {
  std::string not_cuda;
  if (device != v1::CPU) {
    const absl::Status cuda = CudaStatus(cuda_plugin);
    if (device == v1::CUDA) {
      return absl::Status(cuda.code(),
                          absl::StrCat("device: CUDA: ", std::string(cuda.message()), "; use CPU or AUTO"));
    }
    not_cuda = absl::StrCat(" (no CUDA device: ", std::string(cuda.message()), ")");
  }
  DeviceChoice choice;
  choice.backend = MakeCpuBackend(cpu);
  choice.explanation = absl::StrCat(choice.backend->Describe(), not_cuda);
  return choice;
}

}  // namespace catchment
