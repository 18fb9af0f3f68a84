#include "kernels/cuda/convolution.h"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace catchment::cuda {
namespace {

using cudnn::Api;
using cudnn::Attribute;
using cudnn::Descriptor;
using cudnn::Kind;
using cudnn::Type;

// Returns the calling thread's handle of a device: a handle has one stream at a time. Loading the library's kernels takes
// a second or so.
void* HandleOf(const Api& api, Device* device) {
  thread_local std::map<int, void*> handles;
  void*& handle = handles[device->index()];
  if (handle == nullptr) cudnn::Check(api, api.Create(&handle), "a handle of cuDNN");
  cudnn::Check(api, api.SetStream(handle, device->streams().compute), "cuDNN's stream");
  return handle;
}

std::string Describe(const ConvolutionSpec& s, Convolved convolved) {
  const char* const result = convolved == Convolved::kY   ? "the convolution"
                             : convolved == Convolved::kX ? "the gradient of the input of the convolution"
                                                          : "the gradient of the weights of the convolution";
  return std::string(result) + " of " + std::to_string(s.samples) + " x " + std::to_string(s.in_height) +
         " x " + std::to_string(s.in_width) + " x " + std::to_string(s.channels) + " with " +
         std::to_string(s.filters) + " filters of " + std::to_string(s.kernel_size) + " x " +
         std::to_string(s.kernel_size);
}

}  // namespace

struct Convolution::Plan {
  const Api& api;
  Device* device;
  std::string description;
  Descriptor plan;
  std::optional<DeviceArray<>> bias;  // a copy, for one that is not aligned

  // The tensors of the last run, which are usually those of all runs.
  std::vector<const void*> pointers;
  std::optional<Descriptor> pack;
};

std::unique_ptr<Convolution> Convolution::Create(Device* device, Convolved convolved,
                                                 const ConvolutionSpec& spec, std::string* how) {
  const cudnn::Library& library = cudnn::FindLibrary();
  *how = library.description;
  if (library.api == nullptr) return nullptr;
  const Api& api = *library.api;
  std::string why = "no configuration";
  try {
    void* const handle = HandleOf(api, device);
    const cudnn::ConvolutionGraph graph(api, handle, device->precision(), convolved, spec);
    for (const Descriptor& config : graph.ListConfigs(nullptr)) {
      Descriptor plan(api, Kind::kExecutionPlan);
      plan.Set(Attribute::kPlanHandle, Type::kHandle, handle);
      plan.Set(Attribute::kPlanConfig, config);
      if (api.Finalize(plan.raw()) != cudnn::kSuccess) continue;
      int64_t bytes = 0, count = 0;
      cudnn::Check(api,
                   api.GetAttribute(plan.raw(), static_cast<int>(Attribute::kPlanWorkspace),
                                    static_cast<int>(Type::kInt64), 1, &count, &bytes),
                   "the workspace of cuDNN's plan");
      if (bytes > static_cast<int64_t>(Device::kWorkspaceBytes)) {
        why = "only with " + std::to_string(bytes) + " bytes of memory";
        continue;
      }
      std::unique_ptr<Plan> made(new Plan{
          .api = api, .device = device, .description = Describe(spec, convolved), .plan = std::move(plan)});
      if (spec.bias && convolved == Convolved::kY) made->bias.emplace(device, spec.filters);
      return std::unique_ptr<Convolution>(new Convolution(std::move(made)));
    }
  } catch (const cudnn::Error& error) {
    why = error.what();
  }
  *how += " has no plan for " + Describe(spec, convolved) + " (" + why + ")";
  return nullptr;
}

Convolution::Convolution(std::unique_ptr<Plan> plan) : plan_(std::move(plan)) {}
Convolution::~Convolution() = default;

void Convolution::Run(const void* x, const void* w, const void* y, const float* bias) {
  Plan& plan = *plan_;
  if (plan.bias && reinterpret_cast<uintptr_t>(bias) % cudnn::kAlignment != 0) {
    if (cudaMemcpyAsync(plan.bias->data(), bias, plan.bias->bytes(), cudaMemcpyDeviceToDevice,
                        plan.device->streams().compute) != cudaSuccess) {
      throw Error("a bias cannot be copied");
    }
    bias = plan.bias->data();
  }
  std::vector<int64_t> ids = {cudnn::kXId, cudnn::kWId, cudnn::kYId};
  std::vector<const void*> pointers = {x, w, y};
  if (plan.bias) {
    ids.push_back(cudnn::kBiasId);
    pointers.push_back(bias);
  }
  try {
    if (!plan.pack || pointers != plan.pointers) {
      plan.pack.reset();
      plan.pack.emplace(plan.api, Kind::kVariantPack);
      plan.pack->Set(Attribute::kPackIds, ids);
      plan.pack->Set(Attribute::kPackPointers, Type::kPointer, static_cast<int64_t>(pointers.size()),
                     pointers.data());
      plan.pack->Set(Attribute::kPackWorkspace, Type::kPointer, plan.device->workspace());
      plan.pack->Finalize();
      plan.pointers = std::move(pointers);
    }
    cudnn::Check(plan.api,
                 plan.api.Execute(HandleOf(plan.api, plan.device), plan.plan.raw(), plan.pack->raw()),
                 plan.description.c_str());
  } catch (const cudnn::Error& error) {
    throw Error(error.what());
  }
  plan.device->Launched(plan.description.c_str());
}

}  // namespace catchment::cuda
