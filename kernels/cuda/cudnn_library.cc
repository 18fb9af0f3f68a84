#include <dlfcn.h>

#include <cstdlib>
#include <string>
#include <utility>

#include "kernels/cuda/cudnn_api.h"

namespace catchment::cuda::cudnn {
namespace {

template <typename Function>
bool Find(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  return *function != nullptr;
}

bool FindAll(void* library, Api* api) {
  return Find(library, "cudnnGetVersion", &api->GetVersion) &&
         Find(library, "cudnnGetErrorString", &api->GetErrorString) &&
         Find(library, "cudnnGetLastErrorString", &api->GetLastErrorString) &&
         Find(library, "cudnnCreate", &api->Create) && Find(library, "cudnnDestroy", &api->Destroy) &&
         Find(library, "cudnnSetStream", &api->SetStream) &&
         Find(library, "cudnnBackendCreateDescriptor", &api->CreateDescriptor) &&
         Find(library, "cudnnBackendDestroyDescriptor", &api->DestroyDescriptor) &&
         Find(library, "cudnnBackendSetAttribute", &api->SetAttribute) &&
         Find(library, "cudnnBackendGetAttribute", &api->GetAttribute) &&
         Find(library, "cudnnBackendFinalize", &api->Finalize) &&
         Find(library, "cudnnBackendExecute", &api->Execute);
}

// 91900 is 9.19.0.
std::string VersionText(size_t version) {
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

Library Open() {
  const char* const variable = std::getenv("CATCHMENT_CUDNN");
  const std::string path = variable != nullptr && *variable != '\0' ? variable : "libcudnn.so.9";
  if (path == "off") return {nullptr, "CATCHMENT_CUDNN=off"};
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {nullptr, std::string("no cuDNN: ") + dlerror()};
  static Api api;
  if (!FindAll(library, &api)) return {nullptr, path + " lacks functions of cuDNN 9"};
  const size_t version = api.GetVersion();
  if (version < kMinVersion) return {nullptr, path + " is cuDNN " + VersionText(version) + ", not 9"};
  return {&api, "cuDNN " + VersionText(version)};
}

}  // namespace

const Library& FindLibrary() {
  static const Library library = Open();
  return library;
}

}  // namespace catchment::cuda::cudnn
