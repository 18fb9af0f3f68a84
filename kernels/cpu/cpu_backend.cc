#include "kernels/cpu/cpu_backend.h"

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/conv_choice.h"
#include "kernels/cpu/layers.h"
#include "kernels/cpu/parallel.h"

namespace catchment {
namespace {

// Returns the result of f(), or a status if it throws oneDNN's exceptions.
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
        output_(context, PlainLayout(DimsOf(shape, batch_size))) {}

  Activation* output() override { return &output_; }

  void Load(const float* inputs, int samples) override {
    std::memcpy(output_.value_data(), inputs, samples * size_ * sizeof(float));
    std::memset(output_.value_data() + samples * size_, 0, (batch_size_ - samples) * size_ * sizeof(float));
  }

 private:
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
                        CpuInstructionSet(), ", ", context_.threads(),
                        context_.threads() == 1 ? " thread" : " threads");
  }

  void Enter() override { SetThreads(context_.threads()); }

  absl::StatusOr<std::unique_ptr<Source>> CreateSource(const SampleShape& shape, int batch_size) override {
    return CatchErrors("input", [&]() -> absl::StatusOr<std::unique_ptr<Source>> {
      return std::make_unique<CpuSource>(&context_, shape, batch_size);
    });
  }

  absl::StatusOr<std::unique_ptr<Kernel>> CreateKernel(const KernelSpec& spec,
                                                       absl::Span<Activation* const> inputs) override {
    return CatchErrors(absl::StrCat("layer ", spec.layer.name), [&] {
      auto* const first = static_cast<CpuActivation*>(inputs.front());
      return Make(spec, first, static_cast<CpuActivation*>(inputs.back()));
    });
  }

  absl::StatusOr<std::unique_ptr<Fork>> CreateFork(Activation* activation, int readers) override {
    return CatchErrors("fork", [&]() -> absl::StatusOr<std::unique_ptr<Fork>> {
      return MakeCpuFork(&context_, static_cast<CpuActivation*>(activation), readers);
    });
  }

  absl::StatusOr<std::unique_ptr<Loss>> CreateLoss(const LossSpec& spec, Activation* outputs) override {
    return CatchErrors("loss", [&]() -> absl::StatusOr<std::unique_ptr<Loss>> {
      return MakeCpuLoss(&context_, spec, static_cast<CpuActivation*>(outputs));
    });
  }

 private:
  // Creates the kernel of the layer's kind. `other` is the second input of an addition.
  absl::StatusOr<std::unique_ptr<Kernel>> Make(const KernelSpec& spec, CpuActivation* input,
                                               CpuActivation* other) {
    switch (spec.layer.kind) {
      case LayerKind::kConv2D:
        return MakeCpuConv2d(&context_, &conv_choices_, spec, input);
      case LayerKind::kDense:
        return MakeCpuDense(&context_, spec, input);
      case LayerKind::kLstm:
        return MakeCpuLstm(&context_, spec, input);
      case LayerKind::kMaxPool:
      case LayerKind::kAveragePool:
        return MakeCpuPool(&context_, spec, input);
      case LayerKind::kGlobalAveragePool:
        return MakeCpuGlobalAveragePool(&context_, spec, input);
      case LayerKind::kBatchNorm:
        return MakeCpuBatchNorm(&context_, spec, input);
      case LayerKind::kLayerNorm:
        return MakeCpuLayerNorm(&context_, spec, input);
      case LayerKind::kGelu:
      case LayerKind::kTanh:
      case LayerKind::kSigmoid:
        return MakeCpuActivationFunction(&context_, spec, input);
      case LayerKind::kSoftmax:
        return MakeCpuSoftmax(&context_, spec, input);
      case LayerKind::kRelu:
        return MakeCpuRelu(&context_, spec, input);
      case LayerKind::kDropout:
        return MakeCpuDropout(&context_, spec, input);
      case LayerKind::kResidual:
        return MakeCpuAdd(&context_, spec, input, other);
      case LayerKind::kFlatten:
      case LayerKind::KIND_NOT_SET:
        break;
    }
    return absl::InternalError(absl::StrCat("layer ", spec.layer.name, " has no kernel"));
  }

  CpuContext context_;
  ConvChoices conv_choices_;
};

}  // namespace

std::string CpuInstructionSet() {
  switch (dnnl::get_effective_cpu_isa()) {
    case dnnl::cpu_isa::sse41:
      return "SSE4.1";
    case dnnl::cpu_isa::avx:
      return "AVX";
    case dnnl::cpu_isa::avx2:
    case dnnl::cpu_isa::avx2_vnni:
      return "AVX2";
    case dnnl::cpu_isa::avx512_core_amx:
      return "AVX-512 and AMX";
    case dnnl::cpu_isa::all:
      return "plain instructions";
    default:
      return "AVX-512";
  }
}

std::unique_ptr<Backend> MakeCpuBackend(const CpuOptions& options) {
  CHECK_GE(options.threads, 1);
  return std::make_unique<CpuBackend>(options);
}

}  // namespace catchment
