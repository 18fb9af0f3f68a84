#include "kernels/cpu/lstm.h"

#include <algorithm>
#include <vector>

#include "glog/logging.h"
#include "kernels/cpu/exponential.h"
#include "kernels/cpu/parallel.h"

namespace catchment {
namespace {

// A row-major matrix, or its transpose.
struct Matrix {
  const float* values;
  int64_t stride;  // from row to row
  bool transposed = false;
};

// c (rows x columns) = a (rows x inner) b (inner x columns), or += with `add`.
void Multiply(const Matrix& a, const Matrix& b, int64_t rows, int64_t columns, int64_t inner, bool add,
              float* c, int64_t c_stride) {
  const dnnl_status_t status =
      dnnl_sgemm(a.transposed ? 'T' : 'N', b.transposed ? 'T' : 'N', rows, columns, inner, 1, a.values,
                 a.stride, b.values, b.stride, add ? 1 : 0, c, c_stride);
  CHECK_EQ(status, dnnl_success) << "oneDNN could not multiply matrices";
}

// out (b x a x size) = in (a x b x size)
void SwapOuter(const float* in, int64_t a, int64_t b, int64_t size, float* out) {
  for (int64_t i = 0; i < b; ++i) {
    for (int64_t j = 0; j < a; ++j, out += size) std::copy_n(in + (j * b + i) * size, size, out);
  }
}

// What a step does with one sample. Loops of their own, over memory that does not overlap, become vector
// instructions.

// y = sigmoid(y + bias)
void AddAndSigmoid(const float* __restrict bias, int64_t n, float* __restrict y) {
  for (int64_t i = 0; i < n; ++i) y[i] = FastSigmoid(y[i] + bias[i]);
}

// y = tanh(y + bias)
void AddAndTanh(const float* __restrict bias, int64_t n, float* __restrict y) {
  for (int64_t i = 0; i < n; ++i) y[i] = FastTanh(y[i] + bias[i]);
}

// The gates' values are n each of input, forget, candidate and output.
void MoveCell(const float* __restrict gates, const float* __restrict before, int64_t n,
              float* __restrict cell, float* __restrict state) {
  for (int64_t u = 0; u < n; ++u) {
    const float c = gates[n + u] * before[u] + gates[u] * gates[2 * n + u];
    cell[u] = c;
    state[u] = gates[3 * n + u] * FastTanh(c);
  }
}

// d_cell becomes the gradient of the cell before, and the gates' values the gradients of their sums.
void MoveCellBack(const float* __restrict before, const float* __restrict cell,
                  const float* __restrict d_state, int64_t n, float* __restrict d_cell,
                  float* __restrict input, float* __restrict forget, float* __restrict candidate,
                  float* __restrict output) {
  for (int64_t u = 0; u < n; ++u) {
    const float i = input[u], f = forget[u], g = candidate[u], o = output[u];
    const float tanh_c = FastTanh(cell[u]);
    const float d_c = d_cell[u] + d_state[u] * o * (1 - tanh_c * tanh_c);
    input[u] = d_c * g * i * (1 - i);
    forget[u] = d_c * before[u] * f * (1 - f);
    candidate[u] = d_c * i * (1 - g * g);
    output[u] = d_state[u] * tanh_c * o * (1 - o);
    d_cell[u] = d_c * f;
  }
}

class CpuLstm final : public Kernel {
 public:
  CpuLstm(CpuContext* context, const KernelSpec& spec, const CpuActivation* input)
      : samples_(spec.batch_size),
        steps_(spec.layer.input.channels),
        features_(spec.layer.input.width),
        units_(spec.layer.output.is_sequence() ? spec.layer.output.width : spec.layer.output.channels),
        sequences_(spec.layer.output.is_sequence()),
        input_gradient_(spec.input_gradient),
        input_(context, input, PlainLayout(input->layout().dims())),
        output_(context, PlainLayout(DimsOf(spec.layer.output, spec.batch_size))),
        inputs_(steps_ * samples_ * features_),
        gates_(steps_ * samples_ * 4 * units_),
        cells_(steps_ * samples_ * units_),
        states_(steps_ * samples_ * units_),
        d_state_(samples_ * units_),
        d_cell_(samples_ * units_),
        bias_(4 * units_),
        zeros_(samples_ * units_) {}

  Activation* output() override { return &output_; }

  void Forward(const float* parameters, const Pass&) override {
    const Parameters p = At(parameters);
    for (int64_t i = 0; i < 4 * units_; ++i) bias_[i] = p.bias_ih[i] + p.bias_hh[i];
    input_.Pull();
    SwapOuter(input_.value_data(), samples_, steps_, features_, inputs_.data());
    Multiply({inputs_.data(), features_}, {p.weight_ih, features_, true}, steps_ * samples_, 4 * units_,
             features_, false, gates_.data(), 4 * units_);
    for (int64_t t = 0; t < steps_; ++t) {
      if (t > 0) {
        Multiply({State(t - 1), units_}, {p.weight_hh, units_, true}, samples_, 4 * units_, units_, true,
                 Gates(t), 4 * units_);
      }
      ForEachSample([&](int64_t sample) { Step(t, sample); });
    }
    if (sequences_) {
      SwapOuter(states_.data(), steps_, samples_, units_, output_.value_data());
    } else {
      std::copy_n(State(steps_ - 1), samples_ * units_, output_.value_data());
    }
  }

  void Backward(const float* parameters, const Pass&, float* gradient) override {
    const Parameters p = At(parameters);
    std::fill(d_cell_.begin(), d_cell_.end(), 0.0f);
    std::fill(d_state_.begin(), d_state_.end(), 0.0f);
    for (int64_t t = steps_; t-- > 0;) {
      AddOutputGradient(t);
      ForEachSample([&](int64_t sample) { StepBack(t, sample); });
      if (t == 0) break;
      Multiply({Gates(t), 4 * units_}, {p.weight_hh, units_}, samples_, units_, 4 * units_, false,
               d_state_.data(), units_);
    }
    float* const d_weight_hh = gradient + (p.weight_hh - parameters);
    WriteBiasGradient(gradient + (p.bias_ih - parameters), gradient + (p.bias_hh - parameters));
    Multiply({gates_.data(), 4 * units_, true}, {inputs_.data(), features_}, 4 * units_, features_,
             steps_ * samples_, false, gradient, features_);
    if (steps_ > 1) {
      Multiply({Gates(1), 4 * units_, true}, {states_.data(), units_}, 4 * units_, units_,
               (steps_ - 1) * samples_, false, d_weight_hh, units_);
    } else {
      std::fill_n(d_weight_hh, 4 * units_ * units_, 0.0f);
    }
    if (!input_gradient_) return;
    Multiply({gates_.data(), 4 * units_}, {p.weight_ih, features_}, steps_ * samples_, features_, 4 * units_,
             false, inputs_.data(), features_);  // the inputs are read no more
    SwapOuter(inputs_.data(), steps_, samples_, features_, input_.gradient_data());
    input_.Push();
  }

 private:
  struct Parameters {
    const float* weight_ih;  // 4 units x features
    const float* weight_hh;  // 4 units x units
    const float* bias_ih;
    const float* bias_hh;
  };

  Parameters At(const float* parameters) const {
    const float* const weight_hh = parameters + 4 * units_ * features_;
    const float* const bias_ih = weight_hh + 4 * units_ * units_;
    return {parameters, weight_hh, bias_ih, bias_ih + 4 * units_};
  }

  float* Gates(int64_t t) { return gates_.data() + t * samples_ * 4 * units_; }
  float* Cell(int64_t t) { return cells_.data() + t * samples_ * units_; }
  float* State(int64_t t) { return states_.data() + t * samples_ * units_; }
  const float* CellBefore(int64_t t) { return t > 0 ? Cell(t - 1) : zeros_.data(); }

  template <typename F>
  void ForEachSample(F f) {
    constexpr int64_t kGrain = 1 << 11;
    ParallelFor(samples_, kGrain / units_ + 1, [&](int64_t begin, int64_t end) {
      for (int64_t sample = begin; sample < end; ++sample) f(sample);
    });
  }

  // From the gates' sums without biases to their values, the cell and the state.
  void Step(int64_t t, int64_t sample) {
    float* const gates = Gates(t) + sample * 4 * units_;
    AddAndSigmoid(bias_.data(), 2 * units_, gates);
    AddAndTanh(bias_.data() + 2 * units_, units_, gates + 2 * units_);
    AddAndSigmoid(bias_.data() + 3 * units_, units_, gates + 3 * units_);
    MoveCell(gates, CellBefore(t) + sample * units_, units_, Cell(t) + sample * units_,
             State(t) + sample * units_);
  }

  // From the gradients of state and cell to that of the cell before and, in the gates' place, of the gates'
  // sums.
  void StepBack(int64_t t, int64_t sample) {
    float* const gates = Gates(t) + sample * 4 * units_;
    MoveCellBack(CellBefore(t) + sample * units_, Cell(t) + sample * units_,
                 d_state_.data() + sample * units_, units_, d_cell_.data() + sample * units_, gates,
                 gates + units_, gates + 2 * units_, gates + 3 * units_);
  }

  void AddOutputGradient(int64_t t) {
    if (!sequences_ && t < steps_ - 1) return;
    const int64_t stride = sequences_ ? steps_ * units_ : units_;
    const float* d_output = output_.gradient_data() + (sequences_ ? t * units_ : 0);
    for (int64_t sample = 0; sample < samples_; ++sample, d_output += stride) {
      for (int64_t u = 0; u < units_; ++u) d_state_[sample * units_ + u] += d_output[u];
    }
  }

  void WriteBiasGradient(float* d_bias_ih, float* d_bias_hh) {
    std::fill_n(d_bias_ih, 4 * units_, 0.0f);
    const float* row = gates_.data();
    for (int64_t r = 0; r < steps_ * samples_; ++r, row += 4 * units_) {
      for (int64_t i = 0; i < 4 * units_; ++i) d_bias_ih[i] += row[i];
    }
    std::copy_n(d_bias_ih, 4 * units_, d_bias_hh);
  }

  int64_t samples_, steps_, features_, units_;
  bool sequences_;
  bool input_gradient_;
  InputPort input_;
  CpuActivation output_;
  std::vector<float> inputs_;  // steps x samples x features; after the backward pass their gradients
  std::vector<float> gates_;   // steps x samples x 4 units; in the backward pass gradients of their sums
  std::vector<float> cells_;   // steps x samples x units
  std::vector<float> states_;  // as cells_
  std::vector<float> d_state_, d_cell_;  // samples x units, of one step
  std::vector<float> bias_;              // the sum of the two
  std::vector<float> zeros_;             // the cells before the first step
};

}  // namespace

std::unique_ptr<Kernel> MakeCpuLstm(CpuContext* context, const KernelSpec& spec, const CpuActivation* input) {
  return std::make_unique<CpuLstm>(context, spec, input);
}

}  // namespace catchment
