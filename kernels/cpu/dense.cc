// The dense layer, out = in weight' + bias, on oneDNN's sgemm. Weights and their gradient stay in the flat
// vector: a copy in a layout of oneDNN's choice is not faster.
//
// A large layer is computed in parts, each a range of its units, so that the weights of one part are
// exchanged with the servers while another part is computed. In most models with dense layers one of them
// holds most of the parameters.
#include <algorithm>

#include "kernels/cpu/layers.h"
#include "kernels/cpu/parallel.h"

namespace catchment {
namespace {

constexpr int64_t kGrain = 1 << 15;  // the values that justify another thread

// The smallest number of units and of weights in a part; with fewer the products become slower.
constexpr int64_t kMinUnits = 128;
constexpr int64_t kMinWeights = 1 << 15;

int CountParts(int64_t units, int64_t inputs) {
  return static_cast<int>(
      std::clamp<int64_t>(units * inputs / kMinWeights, 1, std::max<int64_t>(units / kMinUnits, 1)));
}

// Computes values += a.
void Add(const float* __restrict a, int64_t size, float* __restrict values) {
  for (int64_t i = 0; i < size; ++i) values[i] += a[i];
}

// Computes values = max(values, 0).
void Relu(int64_t size, float* values) {
  for (int64_t i = 0; i < size; ++i) values[i] = std::max(values[i], 0.0f);
}

class CpuDense final : public Kernel {
 public:
  CpuDense(CpuContext* context, const KernelSpec& spec, const CpuActivation* input)
      : relu_(spec.relu),
        input_gradient_(spec.input_gradient),
        samples_(spec.batch_size),
        inputs_(spec.layer.fan_in),
        units_(spec.layer.output.channels),
        has_bias_(spec.layer.bias),
        parts_(CountParts(units_, inputs_)),
        input_(context, input, PlainLayout(input->layout().dims())),
        output_(context, PlainLayout({samples_, units_})) {}

  Activation* output() override { return &output_; }

  int parts() const override { return parts_; }
  int64_t part_begin(int part) const override { return FirstUnit(part) * inputs_; }

  void Forward(const float* parameters, const Pass& pass) override {
    if (pass.part == 0) input_.Pull();
    const int64_t first = FirstUnit(pass.part), last = FirstUnit(pass.part + 1);
    Multiply({input_.value_data(), inputs_}, {parameters + first * inputs_, inputs_, true}, samples_,
             last - first, inputs_, false, output_.value_data() + first, units_);
    if (last == units_) Finish(parameters + units_ * inputs_);
  }

  void Backward(const float* parameters, const Pass& pass, float* gradient) override {
    const int64_t first = FirstUnit(pass.part), last = FirstUnit(pass.part + 1);
    if (last == units_) {
      if (relu_) ReluBackward(output_);
      // It reads all weights, so it must run before the first part is finished.
      if (input_gradient_) WriteInputGradient(parameters);
      if (has_bias_) WriteBiasGradient(gradient + units_ * inputs_);
    }
    Multiply({output_.gradient_data() + first, units_, true}, {input_.value_data(), inputs_}, last - first,
             inputs_, samples_, false, gradient + first * inputs_, inputs_);
  }

 private:
  int64_t FirstUnit(int part) const { return units_ * part / parts_; }

  // Adds the bias to the output, and then applies relu if this kernel computes it.
  void Finish(const float* bias) {
    ParallelFor(samples_, kGrain / units_ + 1, [&](int64_t begin, int64_t end) {
      for (int64_t sample = begin; sample < end; ++sample) {
        float* const row = output_.value_data() + sample * units_;
        if (has_bias_) Add(bias, units_, row);
        if (relu_) Relu(units_, row);
      }
    });
  }

  void WriteInputGradient(const float* weights) {
    Multiply({output_.gradient_data(), units_}, {weights, inputs_}, samples_, inputs_, units_, false,
             input_.gradient_data(), inputs_);
    input_.Push();
  }

  void WriteBiasGradient(float* d_bias) {
    std::fill_n(d_bias, units_, 0.0f);
    for (int64_t sample = 0; sample < samples_; ++sample) {
      Add(output_.gradient_data() + sample * units_, units_, d_bias);
    }
  }

  bool relu_;
  bool input_gradient_;
  int64_t samples_, inputs_, units_;
  bool has_bias_;
  int parts_;
  InputPort input_;
  CpuActivation output_;
};

}  // namespace

std::unique_ptr<Kernel> MakeCpuDense(CpuContext* context, const KernelSpec& spec,
                                     const CpuActivation* input) {
  return std::make_unique<CpuDense>(context, spec, input);
}

}  // namespace catchment
