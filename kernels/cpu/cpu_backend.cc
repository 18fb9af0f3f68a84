#include "kernels/cpu/cpu_backend.h"

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/conv2d.h"
#include "kernels/cpu/dense.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/loss.h"
#include "kernels/cpu/max_pool.h"
#include "kernels/cpu/parallel.h"

namespace catchment {
namespace {

const char* InstructionSet() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "SSE4.1";
    case dnnl::cpu_isa::avx:
      return "AVX";
    case dnnl::cpu_isa::avx2:
    case dnnl::cpu_isa::avx2_vnni:
      return "AVX2";
    case dnnl::cpu_isa::all:
      return "plain instructions";
    default:
      return "AVX-512";
  }
}

// f()'s answer; oneDNN's exceptions end here.
template <typename F>
auto CatchErrors(const std::string& what, F f) -> decltype(f()) {
  try {
    return f();
  } catch (const dnnl::error& error) {
    const std::string message = absl::StrCat(what, ": oneDNN: ", error.what());
    if (error.status == dnnl_out_of_memory) return absl::ResourceExhaustedError(message);
    return absl::UnimplementedError(message);
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError(absl::StrCat(what, ": out of memory; use a smaller batch_size"));
  }
}

class CpuSource final : public Source {
 public:
  CpuSource(CpuContext* context, const SampleShape& shape, int batch_size)
      : size_(shape.size()),
        batch_size_(batch_size),
        output_(context, PlainLayout(Dims(shape, batch_size))) {}

  Activation* output() override { return &output_; }

  void Load(const float* inputs, int samples) override {
    std::memcpy(output_.value_data(), inputs, samples * size_ * sizeof(float));
    std::memset(output_.value_data() + samples * size_, 0, (batch_size_ - samples) * size_ * sizeof(float));
  }

 private:
  static dnnl::memory::dims Dims(const SampleShape& shape, int batch_size) {
    if (shape.is_vector) return {batch_size, shape.channels};
    return {batch_size, shape.channels, shape.height, shape.width};
  }

  int64_t size_;
  int64_t batch_size_;
  CpuActivation output_;
};

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const CpuOptions& options) : context_(options.threads, options.deterministic) {}

  std::string Describe() const override {
    const dnnl::version_t* version = dnnl::version();
    return absl::StrCat("cpu: oneDNN ", version->major, ".", version->minor, ".", version->patch, ", ",
                        InstructionSet(), ", ", context_.threads(),
                        context_.threads() == 1 ? " thread" : " threads");
  }

  void Enter() override { SetThreads(context_.threads()); }

  absl::StatusOr<std::unique_ptr<Source>> CreateSource(const SampleShape& shape, int batch_size) override {
    return CatchErrors("input", [&]() -> absl::StatusOr<std::unique_ptr<Source>> {
      return std::make_unique<CpuSource>(&context_, shape, batch_size);
    });
  }

  absl::StatusOr<std::unique_ptr<Kernel>> CreateKernel(const KernelSpec& spec, Activation* input) override {
    return CatchErrors(absl::StrCat("layer ", spec.layer.name),
                       [&] { return Make(spec, static_cast<CpuActivation*>(input)); });
  }

  absl::StatusOr<std::unique_ptr<Loss>> CreateLoss(int num_classes, int batch_size,
                                                   Activation* logits) override {
    return CatchErrors("loss", [&]() -> absl::StatusOr<std::unique_ptr<Loss>> {
      return MakeCpuLoss(&context_, num_classes, batch_size, static_cast<CpuActivation*>(logits));
    });
  }

 private:
  absl::StatusOr<std::unique_ptr<Kernel>> Make(const KernelSpec& spec, CpuActivation* input) {
    switch (spec.layer.kind) {
      case LayerKind::kConv2d:
        return MakeCpuConv2d(&context_, spec, input);
      case LayerKind::kDense:
        return MakeCpuDense(&context_, spec, input);
      case LayerKind::kMaxPool2d:
        return MakeCpuMaxPool(&context_, spec, input);
      case LayerKind::kRelu:
        return MakeCpuRelu(input);
      case LayerKind::kDropout:
        return MakeCpuDropout(spec, input);
      case LayerKind::kFlatten:
      case LayerKind::kSynthetic:
        break;
    }
    return absl::InternalError(absl::StrCat("layer ", spec.layer.name, " has no kernel"));
  }

  CpuContext context_;
};

}  // namespace

std::unique_ptr<Backend> MakeCpuBackend(const CpuOptions& options) {
  CHECK_GE(options.threads, 1);
  return std::make_unique<CpuBackend>(options);
}

}  // namespace catchment
