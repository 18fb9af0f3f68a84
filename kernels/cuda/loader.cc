#include "kernels/cuda/loader.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <cstdlib>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace catchment {
namespace {

constexpr char kName[] = "libcatchment_cuda.so";

std::string ExecutableFolder() {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof path);
  const std::string whole(path, length > 0 ? length : 0);
  return whole.substr(0, whole.rfind('/'));
}

// Returns dlerror(), with a hint if cuBLAS is missing.
std::string OpenError(const std::string& path) {
  const char* error = dlerror();
  const std::string text = error != nullptr ? error : "unknown error";
  const bool cublas = text.find("libcublas") != std::string::npos;
  return absl::StrCat(
      "the CUDA plugin ", path, " cannot be opened",
      cublas ? ": cuBLAS is missing; install it, or add its directory to LD_LIBRARY_PATH (" : " (", text,
      ")");
}

std::string BuiltWith(const CatchmentCudaPlugin& plugin) {
  return *plugin.toolkit == '\0' ? "" : absl::StrCat("; the plugin was built with ", plugin.toolkit);
}

}  // namespace

std::string Describe(const CudaDevice& device) {
  return absl::StrFormat("%s, %d GiB, compute capability %d.%d", device.name, device.memory_bytes >> 30,
                         device.capability_major, device.capability_minor);
}

std::string CudaPluginPath() { return CudaPluginPath(ExecutableFolder()); }

std::string CudaPluginPath(const std::string& folder) {
  const char* const path = std::getenv("CATCHMENT_CUDA_PLUGIN");
  return path != nullptr && *path != '\0' ? path : absl::StrCat(folder, "/", kName);
}

std::string DescribeCudaPlugin(const std::string& path) {
  const absl::StatusOr<const CatchmentCudaPlugin*> plugin = OpenCudaPlugin(path);
  if (absl::IsNotFound(plugin.status())) return absl::StrCat("no plugin at ", path);
  if (!plugin.ok()) return std::string(plugin.status().message());
  if (*(*plugin)->toolkit == '\0')
    return absl::StrCat("the plugin ", path, " was built without the CUDA Toolkit");
  return absl::StrCat("plugin ", path, ", built with ", (*plugin)->toolkit);
}

absl::StatusOr<const CatchmentCudaPlugin*> OpenCudaPlugin(const std::string& path) {
  if (access(path.c_str(), F_OK) != 0) {
    return absl::NotFoundError(
        absl::StrCat("there is no CUDA plugin at ", path, "; put ", kName,
                     " in the executable's directory, or set $CATCHMENT_CUDA_PLUGIN to its path"));
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return absl::FailedPreconditionError(OpenError(path));
  const auto function =
      reinterpret_cast<CatchmentCudaPluginFunction>(dlsym(library, "catchment_cuda_plugin"));
  if (function == nullptr)
    return absl::FailedPreconditionError(absl::StrCat(path, " is not a Catchment CUDA plugin"));
  const CatchmentCudaPlugin* const plugin = function();
  if (plugin->version != CATCHMENT_CUDA_PLUGIN_VERSION) {
    return absl::FailedPreconditionError(
        absl::StrCat("the CUDA plugin ", path, " has interface version ", plugin->version,
                     " and this program ", CATCHMENT_CUDA_PLUGIN_VERSION, "; use both from one build"));
  }
  return plugin;
}

absl::StatusOr<std::vector<CudaDevice>> ListCudaDevices(const CatchmentCudaPlugin& plugin) {
  constexpr int kCapacity = 64;
  std::vector<CatchmentCudaDevice> found(kCapacity);
  char why[512] = "";
  const int count = plugin.probe(found.data(), kCapacity, why, sizeof why);
  if (count < 1) return absl::FailedPreconditionError(absl::StrCat(why, BuiltWith(plugin)));
  std::vector<CudaDevice> devices;
  for (int i = 0; i < std::min(count, kCapacity); ++i) {
    devices.push_back(
        {found[i].name, found[i].memory_bytes, found[i].capability_major, found[i].capability_minor});
  }
  return devices;
}

}  // namespace catchment
