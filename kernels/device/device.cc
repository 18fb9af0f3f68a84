#include "kernels/device/device.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/loader.h"

namespace catchment {
namespace {

absl::Status NoSuchDevice(int index, const std::vector<CudaDevice>& devices) {
  return absl::OutOfRangeError(
      absl::StrCat("cuda:", index, " does not exist; this machine has cuda:0 to cuda:", devices.size() - 1,
                   " (cuda:0 is ", Describe(devices.front()), ")"));
}

CatchmentCudaPrecision PrecisionOf(v1::Computation::Precision precision) {
  switch (precision) {
    case v1::Computation::TF32:
      return CATCHMENT_CUDA_TF32;
    case v1::Computation::BFLOAT16:
      return CATCHMENT_CUDA_BFLOAT16;
    case v1::Computation::FLOAT16:
      return CATCHMENT_CUDA_FLOAT16;
    default:
      return CATCHMENT_CUDA_FLOAT32;
  }
}

// Returns a note if a CPU does not support the precision; otherwise an empty string.
std::string NotOnCpu(v1::Computation::Precision precision) {
  if (PrecisionOf(precision) == CATCHMENT_CUDA_FLOAT32) return "";
  return absl::StrCat(" (in float32: ", v1::Computation::Precision_Name(precision), " is of CUDA devices)");
}

// The plugin is compiled for this compute capability and later ones (common/bazel/cuda.bzl).
constexpr int kMinCapability = 8;

bool IsUsable(const CudaDevice& device) { return device.capability_major >= kMinCapability; }

absl::Status TooOld(int index, const CudaDevice& device) {
  return absl::FailedPreconditionError(absl::StrCat("cuda:", index, " is too old: it is ", Describe(device),
                                                    ", and the CUDA plugin needs ", kMinCapability,
                                                    ".0 or later"));
}

// Returns the index of the device that is asked for, or the one in turn of those that can be used.
absl::StatusOr<int> ChooseIndex(const DeviceRequest& request, int local_index,
                                const std::vector<CudaDevice>& devices) {
  std::vector<int> usable;
  for (int i = 0; i < static_cast<int>(devices.size()); ++i) {
    if (IsUsable(devices[i])) usable.push_back(i);
  }
  if (!request.cuda_index.has_value()) {
    if (usable.empty()) return TooOld(0, devices.front());
    return usable[local_index % usable.size()];
  }
  const int index = *request.cuda_index;
  if (index >= static_cast<int>(devices.size())) return NoSuchDevice(index, devices);
  if (!IsUsable(devices[index])) return TooOld(index, devices[index]);
  return index;
}

absl::StatusOr<std::unique_ptr<Backend>> MakeCuda(const DeviceRequest& request,
                                                  const DeviceOptions& options) {
  ASSIGN_OR_RETURN(const CatchmentCudaPlugin* plugin, OpenCudaPlugin(options.cuda_plugin));
  ASSIGN_OR_RETURN(const std::vector<CudaDevice> devices, ListCudaDevices(*plugin));
  ASSIGN_OR_RETURN(const int index, ChooseIndex(request, options.local_index, devices));
  return MakeCudaBackend(*plugin, {.index = index, .precision = PrecisionOf(options.precision)});
}

}  // namespace

absl::StatusOr<DeviceRequest> ResolveDevice(const std::string& given, v1::Device from_job) {
  if (given.empty()) return DeviceRequest{from_job};
  const std::string flag = absl::AsciiStrToLower(given);
  if (flag == "auto") return DeviceRequest{v1::AUTO};
  if (flag == "cpu") return DeviceRequest{v1::CPU};
  if (flag == "cuda") return DeviceRequest{v1::CUDA};
  int index = 0;
  absl::string_view number = flag;
  if (absl::ConsumePrefix(&number, "cuda:") && absl::SimpleAtoi(number, &index) && index >= 0) {
    return DeviceRequest{v1::CUDA, index};
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--device=", given, " is none of auto, cpu, cuda, cuda:0, cuda:1, ..."));
}

absl::StatusOr<DeviceChoice> ChooseDevice(const DeviceRequest& request, const DeviceOptions& options) {
  DeviceChoice choice;
  std::string not_cuda;
  if (request.device != v1::CPU) {
    absl::StatusOr<std::unique_ptr<Backend>> cuda = MakeCuda(request, options);
    if (cuda.ok()) {
      choice.backend = *std::move(cuda);
      choice.explanation = choice.backend->Describe();
      return choice;
    }
    const std::string why(cuda.status().message());
    if (request.device == v1::CUDA) {
      return absl::Status(cuda.status().code(), absl::StrCat("device: CUDA: ", why, "; use CPU or AUTO"));
    }
    not_cuda = absl::StrCat(" (no CUDA device: ", why, ")");
  }
  choice.backend = MakeCpuBackend(options.cpu);
  choice.explanation = absl::StrCat(choice.backend->Describe(), not_cuda, NotOnCpu(options.precision));
  return choice;
}

}  // namespace catchment
