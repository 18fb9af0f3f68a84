// An LSTM layer (Hochreiter and Schmidhuber 1997), over whole sequences, in PyTorch's definition: with the
// gates (i, f, g, o) = W_ih x_t + b_ih + W_hh h_{t-1} + b_hh, each of `units` rows,
//   c_t = sigmoid(f) c_{t-1} + sigmoid(i) tanh(g)
//   h_t = sigmoid(o) tanh(c_t)                        h = c = 0 before the first step
//
// The gates of a step are one product: of the weights, with the biases appended, and the columns [x_t,
// h_{t-1}, 1] of the samples. Samples are independent of each other, so each thread computes all steps of
// some of them. The values of a step are stored unit by unit (units x samples), so that loops over them are
// long for any number of units.
#include <algorithm>
#include <vector>

#include "kernels/cpu/exponential.h"
#include "kernels/cpu/layers.h"
#include "kernels/cpu/parallel.h"

namespace catchment {
namespace {

// The loops over the values of a step. They are functions of memory that does not overlap, so that compilers
// vectorise them.

// Computes the gates from their sums, and the next cell and state.
void MoveCell(const float* __restrict before, int64_t n, float* __restrict input, float* __restrict forget,
              float* __restrict candidate, float* __restrict output, float* __restrict cell,
              float* __restrict tanh_cell, float* __restrict state) {
  for (int64_t u = 0; u < n; ++u) {
    const float i = FastSigmoid(input[u]), f = FastSigmoid(forget[u]);
    const float g = FastTanh(candidate[u]), o = FastSigmoid(output[u]);
    const float c = f * before[u] + i * g, tanh_c = FastTanh(c);
    input[u] = i, forget[u] = f, candidate[u] = g, output[u] = o;
    cell[u] = c, tanh_cell[u] = tanh_c, state[u] = o * tanh_c;
  }
}

// Replaces d_cell by the gradient of the previous cell, and the gates by the gradients of their sums.
void MoveCellBack(const float* __restrict before, const float* __restrict tanh_cell,
                  const float* __restrict d_state, int64_t n, float* __restrict d_cell,
                  float* __restrict input, float* __restrict forget, float* __restrict candidate,
                  float* __restrict output) {
  for (int64_t u = 0; u < n; ++u) {
    const float i = input[u], f = forget[u], g = candidate[u], o = output[u], tanh_c = tanh_cell[u];
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
        width_(features_ + units_ + 1),
        d_width_((spec.input_gradient ? features_ : 0) + units_),
        sequences_(spec.layer.output.is_sequence()),
        input_gradient_(spec.input_gradient),
        input_(context, input, PlainLayout(input->layout().dims())),
        output_(context, PlainLayout(DimsOf(spec.layer.output, spec.batch_size))),
        inputs_((steps_ + 1) * width_ * samples_),
        gates_(steps_ * 4 * units_ * samples_),
        cells_((steps_ + 1) * units_ * samples_),
        tanh_cells_(steps_ * units_ * samples_),
        d_inputs_(d_width_ * samples_),
        d_cell_(units_ * samples_),
        weights_(4 * units_ * width_),
        d_weights_(width_ * 4 * units_) {
    for (int64_t t = 0; t < steps_; ++t) std::fill_n(Inputs(t + 1) - samples_, samples_, 1.0f);
  }

  Activation* output() override { return &output_; }

  void Forward(const float* parameters, const Pass&) override {
    JoinWeights(parameters);
    input_.Pull();
    ForEachPart([&](int64_t begin, int64_t end) {
      for (int64_t t = 0; t < steps_; ++t) Step(t, begin, end);
    });
  }

  void Backward(const float*, const Pass&, float* gradient) override {
    std::fill(d_cell_.begin(), d_cell_.end(), 0.0f);
    std::fill(d_inputs_.begin(), d_inputs_.end(), 0.0f);
    // A few steps at a time, so that their gates are still in the cache.
    constexpr int64_t kSteps = 4;
    for (int64_t end = steps_; end > 0; end -= kSteps) {
      const int64_t begin = std::max<int64_t>(end - kSteps, 0);
      ForEachPart([&](int64_t first, int64_t last) {
        for (int64_t t = end; t-- > begin;) StepBack(t, first, last);
      });
      AddWeightGradient(begin, end);
    }
    WriteWeightGradient(gradient);
    if (input_gradient_) input_.Push();
  }

 private:
  // Returns x_t, h_{t-1} and the ones.
  float* Inputs(int64_t t) { return inputs_.data() + t * width_ * samples_; }
  float* StateBefore(int64_t t) { return Inputs(t) + features_ * samples_; }
  float* Gates(int64_t t) { return gates_.data() + t * 4 * units_ * samples_; }
  float* CellBefore(int64_t t) { return cells_.data() + t * units_ * samples_; }
  float* TanhCell(int64_t t) { return tanh_cells_.data() + t * units_ * samples_; }
  // Returns the gradient of the state that the next step computed.
  float* DState() { return d_inputs_.data() + (d_width_ - units_) * samples_; }

  // Calls f(begin, end) for parts of the minibatch, on all threads.
  template <typename F>
  void ForEachPart(F f) {
    constexpr int64_t kWorthAThread = 1 << 17;  // multiplications
    ParallelFor(samples_, kWorthAThread / (4 * units_ * width_) + 1, f);
  }

  // Calls f(offset, n) for the values of the samples begin .. end-1 in arrays of units x samples.
  template <typename F>
  void ForUnits(int64_t begin, int64_t end, F f) {
    if (end - begin == samples_) return f(0, units_ * samples_);
    for (int64_t u = 0; u < units_; ++u) f(u * samples_ + begin, end - begin);
  }

  // Fills each row of weights_: W_ih, W_hh and the sum of the biases of one unit of a gate.
  void JoinWeights(const float* weight_ih) {
    const float* weight_hh = weight_ih + 4 * units_ * features_;
    const float* const bias_ih = weight_hh + 4 * units_ * units_;
    const float* const bias_hh = bias_ih + 4 * units_;
    float* row = weights_.data();
    for (int64_t i = 0; i < 4 * units_; ++i, weight_ih += features_, weight_hh += units_) {
      row = std::copy_n(weight_ih, features_, row);
      row = std::copy_n(weight_hh, units_, row);
      *row++ = bias_ih[i] + bias_hh[i];
    }
  }

  void Step(int64_t t, int64_t begin, int64_t end) {
    LoadInput(t, begin, end);
    Multiply({weights_.data(), width_}, {Inputs(t) + begin, samples_}, 4 * units_, end - begin, width_, false,
             Gates(t) + begin, samples_);
    ForUnits(begin, end, [&](int64_t at, int64_t n) {
      float* const gates = Gates(t) + at;
      MoveCell(CellBefore(t) + at, n, gates, gates + gate(), gates + 2 * gate(), gates + 3 * gate(),
               CellBefore(t + 1) + at, TanhCell(t) + at, StateBefore(t + 1) + at);
    });
    if (sequences_ || t == steps_ - 1) WriteOutput(t, begin, end);
  }

  // Copies x_t of each sample into a column.
  void LoadInput(int64_t t, int64_t begin, int64_t end) {
    for (int64_t sample = begin; sample < end; ++sample) {
      const float* const x = input_.value_data() + (sample * steps_ + t) * features_;
      float* const to = Inputs(t) + sample;
      for (int64_t i = 0; i < features_; ++i) to[i * samples_] = x[i];
    }
  }

  void WriteOutput(int64_t t, int64_t begin, int64_t end) {
    for (int64_t sample = begin; sample < end; ++sample) {
      const float* const state = StateBefore(t + 1) + sample;
      float* const to = output_.value_data() + OutputOffset(t, sample);
      for (int64_t u = 0; u < units_; ++u) to[u] = state[u * samples_];
    }
  }

  // Replaces the gates by the gradients of their sums, and computes the gradients of x_t and h_{t-1} from
  // them.
  void StepBack(int64_t t, int64_t begin, int64_t end) {
    if (sequences_ || t == steps_ - 1) AddOutputGradient(t, begin, end);
    ForUnits(begin, end, [&](int64_t at, int64_t n) {
      float* const gates = Gates(t) + at;
      MoveCellBack(CellBefore(t) + at, TanhCell(t) + at, DState() + at, n, d_cell_.data() + at, gates,
                   gates + gate(), gates + 2 * gate(), gates + 3 * gate());
    });
    if (t == 0 && !input_gradient_) return;
    Multiply({weights_.data() + width_ - 1 - d_width_, width_, true}, {Gates(t) + begin, samples_}, d_width_,
             end - begin, 4 * units_, false, d_inputs_.data() + begin, samples_);
    if (input_gradient_) WriteInputGradient(t, begin, end);
  }

  void AddOutputGradient(int64_t t, int64_t begin, int64_t end) {
    for (int64_t sample = begin; sample < end; ++sample) {
      const float* const d_output = output_.gradient_data() + OutputOffset(t, sample);
      float* const d_state = DState() + sample;
      for (int64_t u = 0; u < units_; ++u) d_state[u * samples_] += d_output[u];
    }
  }

  void WriteInputGradient(int64_t t, int64_t begin, int64_t end) {
    for (int64_t sample = begin; sample < end; ++sample) {
      float* const to = input_.gradient_data() + (sample * steps_ + t) * features_;
      for (int64_t i = 0; i < features_; ++i) to[i] = d_inputs_[i * samples_ + sample];
    }
  }

  // Adds the gradients of the steps begin .. end-1: the input of the gates times the gradients of their sums.
  void AddWeightGradient(int64_t begin, int64_t end) {
    constexpr int64_t kGrain = 16;
    ParallelFor(4 * units_, kGrain, [&](int64_t first, int64_t last) {
      for (int64_t t = end; t-- > begin;) {
        Multiply({Inputs(t), samples_}, {Gates(t) + first * samples_, samples_, true}, width_, last - first,
                 samples_, t < steps_ - 1, d_weights_.data() + first, 4 * units_);
      }
    });
  }

  void WriteWeightGradient(float* d_weight_ih) {
    float* const d_weight_hh = d_weight_ih + 4 * units_ * features_;
    float* const d_bias_ih = d_weight_hh + 4 * units_ * units_;
    float* const d_bias_hh = d_bias_ih + 4 * units_;
    const float* d = d_weights_.data();
    for (int64_t i = 0; i < 4 * units_; ++i, ++d) {
      for (int64_t j = 0; j < features_; ++j) d_weight_ih[i * features_ + j] = d[j * 4 * units_];
      for (int64_t j = 0; j < units_; ++j) d_weight_hh[i * units_ + j] = d[(features_ + j) * 4 * units_];
      d_bias_ih[i] = d_bias_hh[i] = d[(width_ - 1) * 4 * units_];
    }
  }

  // Returns the offset of a sample's values at a step in the output.
  int64_t OutputOffset(int64_t t, int64_t sample) const {
    return (sequences_ ? sample * steps_ + t : sample) * units_;
  }
  // Returns the number of values of one gate in a step.
  int64_t gate() const { return units_ * samples_; }

  int64_t samples_, steps_, features_, units_;
  int64_t width_;    // of the input of a step's gates: x_t, h_{t-1} and a 1 for the biases
  int64_t d_width_;  // of the gradients of x_t, if they are needed, and h_{t-1}
  bool sequences_;
  bool input_gradient_;
  InputPort input_;
  CpuActivation output_;
  std::vector<float> inputs_;      // (steps + 1) x width x samples; the last for the last step's states
  std::vector<float> gates_;       // steps x 4 units x samples; in the backward pass gradients of their sums
  std::vector<float> cells_;       // (steps + 1) x units x samples; the first are 0
  std::vector<float> tanh_cells_;  // steps x units x samples
  std::vector<float> d_inputs_;    // d_width x samples, of one step
  std::vector<float> d_cell_;      // units x samples, of one step
  std::vector<float> weights_;     // 4 units x width
  std::vector<float> d_weights_;   // width x 4 units
};

}  // namespace

std::unique_ptr<Kernel> MakeCpuLstm(CpuContext* context, const KernelSpec& spec, const CpuActivation* input) {
  return std::make_unique<CpuLstm>(context, spec, input);
}

}  // namespace catchment
