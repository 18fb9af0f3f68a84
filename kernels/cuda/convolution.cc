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

std::string Describe(const ConvolutionSpec& s, Convolved convolved) {
  const char* const result = convolved == Convolved::kY   ? "the convolution"
                             : convolved == Convolved::kX ? "the gradient of the input of the convolution"
                                                          : "the gradient of the weights of the convolution";
  return std::string(result) + " of " + std::to_string(s.samples) + " x " + std::to_string(s.in_height) +
         " x " + std::to_string(s.in_width) + " x " + std::to_string(s.channels) + " with " +
         std::to_string(s.filters) + " filters of " + std::to_string(s.kernel_size) + " x " +
         std::to_string(s.kernel_size);
}

// A plan that layers of the same shape share, since cuDNN compiles some for seconds.
struct SharedPlan {
  std::optional<Descriptor> plan;
  std::string why_not;  // if there is none
};

// The library's handle of a device, with the plans that were made for it.
struct Context {
  Context(const Api& api, Device* device) : api(api) {
    cudnn::Check(api, api.Create(&handle), "a handle of cuDNN");
    cudnn::Check(api, api.SetStream(handle, device->streams().compute), "cuDNN's stream");
  }
  ~Context() {
    plans.clear();
    if (handle != nullptr) api.Destroy(handle);
  }
  Context(const Context&) = delete;

  const Api& api;
  void* handle = nullptr;
  std::map<std::string, std::shared_ptr<SharedPlan>> plans;  // by Key
};

Context& ContextOf(const Api& api, Device* device) {
  if (device->convolutions() == nullptr) device->convolutions() = std::make_shared<Context>(api, device);
  return *static_cast<Context*>(device->convolutions().get());
}

std::string Key(const ConvolutionSpec& s, Convolved convolved) {
  std::string key;
  for (const int64_t number :
       {s.samples, s.channels, s.in_height, s.in_width, s.filters, s.out_height, s.out_width, s.kernel_size,
        s.stride, s.padding, int64_t{s.bias}, int64_t{s.relu}, int64_t{s.rounds_x}, int64_t{s.rounds_y},
        static_cast<int64_t>(convolved)})
    key += std::to_string(number) + " ";
  return key;
}

SharedPlan MakePlan(const Context& context, Precision precision, Convolved convolved,
                    const ConvolutionSpec& spec) {
  const Api& api = context.api;
  SharedPlan made{std::nullopt, "it has no configuration"};
  const cudnn::ConvolutionGraph graph(api, context.handle, precision, convolved, spec);
  for (const Descriptor& config : graph.ListConfigs(nullptr)) {
    Descriptor plan(api, Kind::kExecutionPlan);
    plan.Set(Attribute::kPlanHandle, Type::kHandle, context.handle);
    plan.Set(Attribute::kPlanConfig, config);
    const int status = api.Finalize(plan.raw());
    if (status != cudnn::kSuccess) {
      made.why_not = api.GetErrorString(status);
      continue;
    }
    int64_t bytes = 0, count = 0;
    cudnn::Check(api,
                 api.GetAttribute(plan.raw(), static_cast<int>(Attribute::kPlanWorkspace),
                                  static_cast<int>(Type::kInt64), 1, &count, &bytes),
                 "the workspace of cuDNN's plan");
    if (bytes > static_cast<int64_t>(Device::kWorkspaceBytes)) {
      made.why_not = "it needs " + std::to_string(bytes) + " bytes of memory";
      continue;
    }
    made.plan.emplace(std::move(plan));
    return made;
  }
  return made;
}

}  // namespace

struct Convolution::Plan {
  const Api& api;
  Device* device;
  std::string description;
  std::shared_ptr<const SharedPlan> shared;
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
  std::string why_not;
  try {
    Context& context = ContextOf(*library.api, device);
    std::shared_ptr<SharedPlan>& shared = context.plans[Key(spec, convolved)];
    if (shared == nullptr)
      shared = std::make_shared<SharedPlan>(MakePlan(context, device->precision(), convolved, spec));
    if (shared->plan) {
      std::unique_ptr<Plan> made(new Plan{
          .api = *library.api, .device = device, .description = Describe(spec, convolved), .shared = shared});
      if (spec.bias && convolved == Convolved::kY) made->bias.emplace(device, spec.filters);
      return std::unique_ptr<Convolution>(new Convolution(std::move(made)));
    }
    why_not = shared->why_not;
  } catch (const cudnn::Error& error) {
    why_not = error.what();
  }
  *how += " has no plan for " + Describe(spec, convolved) + ": " + why_not;
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
    cudnn::Check(
        plan.api,
        plan.api.Execute(ContextOf(plan.api, plan.device).handle, plan.shared->plan->raw(), plan.pack->raw()),
        plan.description.c_str());
  } catch (const cudnn::Error& error) {
    throw Error(error.what());
  }
  plan.device->Launched(plan.description.c_str());
}

}  // namespace catchment::cuda
