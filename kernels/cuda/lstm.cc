// Hochreiter and Schmidhuber 1997, in PyTorch's order of gates: input i, forget f, cell g, output o.
//   i, f, o = sigmoid, g = tanh of (x_t W_ih' + b_ih + h_(t-1) W_hh' + b_hh)
//   c_t = f c_(t-1) + i g          h_t = o tanh(c_t)
// The products with x are computed for all steps at once. If a block has a thread for each unit, the others
// are computed within one kernel for all steps, forward and backward: a block has the sequence of a sample.
// Its products with W_hh are float32's in every precision, since tensor cores cannot be used for one sample.
// Wider layers have a matrix product and a kernel in each step.
#include <cmath>
#include <optional>

#include "kernels/cuda/device.h"
#include "kernels/cuda/factor.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda/loops.h"
#include "kernels/cuda/node.h"

namespace catchment::cuda {
namespace {

// Computes a cell and its hidden state from the sums of its gates, in their order.
CATCHMENT_ON_DEVICE inline Pack<4> ComputeGates(const Pack<4>& sums, float cell_before, float* cell,
                                                float* hidden) {
  const Pack<4> gates = {1 / (1 + expf(-sums.at[0])), 1 / (1 + expf(-sums.at[1])), tanhf(sums.at[2]),
                         1 / (1 + expf(-sums.at[3]))};
  *cell = gates.at[1] * cell_before + gates.at[0] * gates.at[2];
  *hidden = gates.at[3] * tanhf(*cell);
  return gates;
}

// Returns the gradients of the sums of the gates. `d_cell` is the gradient of the cell from the step after,
// and becomes that of the cell before.
CATCHMENT_ON_DEVICE inline Pack<4> ComputeGateGradients(const Pack<4>& gates, float cell_before, float cell,
                                                        float d_hidden, float* d_cell) {
  const float i = gates.at[0], f = gates.at[1], g = gates.at[2], o = gates.at[3], c = tanhf(cell);
  const float d_c = *d_cell + d_hidden * o * (1 - c * c);
  *d_cell = d_c * f;
  return {d_c * g * i * (1 - i), d_c * cell_before * f * (1 - f), d_c * i * (1 - g * g),
          d_hidden * c * o * (1 - o)};
}

class Lstm final : public Layer {
 public:
  Lstm(Device* device, const CatchmentCudaLayer& spec, const Tensor& input)
      : Layer(device, spec, 4 * Units(spec) * (spec.input.width + Units(spec) + 2)),
        device_(device),
        input_(input),
        sequences_(spec.output.kind == 2),
        input_gradient_(spec.input_gradient != 0),
        batch_(static_cast<int>(input.batch)),
        steps_(static_cast<int>(spec.input.channels)),
        features_(static_cast<int>(spec.input.width)),
        units_(static_cast<int>(Units(spec))),
        in_one_kernel_(units_ <= Device::kMaxTeamThreads),
        gates_(device, Checked(int64_t{batch_} * steps_ * 4 * units_, "an lstm's gates")),
        cells_(device, int64_t{batch_} * steps_ * units_),
        hidden_(device, int64_t{batch_} * steps_ * units_),
        d_hidden_(device, in_one_kernel_ ? 0 : int64_t{batch_} * units_),
        d_cell_(device, int64_t{batch_} * units_),
        x_(device, int64_t{batch_} * steps_, features_),
        input_weight_(device, 4 * units_, features_),
        weight_by_unit_(device, in_one_kernel_ ? int64_t{4} * units_ * units_ : 0),
        hidden_weight_(device, in_one_kernel_ ? 0 : 4 * units_, units_),
        h_(device, in_one_kernel_ ? 0 : int64_t{batch_} * steps_, units_),
        before_(device, int64_t{batch_} * steps_, units_),
        d_gates_(device, int64_t{batch_} * steps_, 4 * units_) {
    const int64_t rows = int64_t{batch_} * steps_, g = 4 * units_, h = units_, f = features_;
    constexpr int kFloat = sizeof(float);
    from_input_.emplace(device, GemmSpec{.transpose_b = true,
                                         .m = rows,
                                         .n = g,
                                         .k = f,
                                         .lda = x_.stride(),
                                         .ldb = input_weight_.stride(),
                                         .ldc = g,
                                         .bias = true});
    to_input_weight_.emplace(device, GemmSpec{.transpose_a = true,
                                              .m = g,
                                              .n = f,
                                              .k = rows,
                                              .lda = d_gates_.stride(),
                                              .ldb = x_.stride(),
                                              .ldc = f});
    to_hidden_weight_.emplace(device, GemmSpec{.transpose_a = true,
                                               .m = g,
                                               .n = h,
                                               .k = rows,
                                               .lda = d_gates_.stride(),
                                               .ldb = before_.stride(),
                                               .ldc = h,
                                               .c_alignment = AlignmentOf({g * f * kFloat})});
    if (input_gradient_) {
      to_input_.emplace(
          device,
          GemmSpec{
              .m = rows, .n = f, .k = g, .lda = d_gates_.stride(), .ldb = input_weight_.stride(), .ldc = f});
    }
    if (!in_one_kernel_) MakeStepProducts();
  }

  void Forward(const Pass&) override {
    x_.Take(input_.value);
    input_weight_.Take(InputWeight(parameters->value()));
    from_input_->Run(x_.data(), input_weight_.data(), InputBias(parameters->value()), gates_.data());
    if (in_one_kernel_) {
      TakeWeightByUnit();
      AllSteps();
    } else {
      hidden_weight_.Take(HiddenWeight(parameters->value()));
      for (int t = 0; t < steps_; ++t) {
        if (t > 0) {
          from_hidden_->Run(h_.data(t - 1), hidden_weight_.data(), nullptr, gates_.data() + t * 4 * units_);
        }
        Step(t);
      }
    }
    WriteOutput();
  }

  void Backward(const Pass&) override {
    float* const gradient = parameters->gradient();
    if (in_one_kernel_) AllStepsBack();
    for (int t = in_one_kernel_ ? -1 : steps_ - 1; t >= 0; --t) {
      StepBack(t);
      if (t > 0) to_hidden_->Run(d_gates_.data(t), hidden_weight_.data(), nullptr, d_hidden_.data());
    }
    to_input_weight_->Run(d_gates_.data(), x_.data(), nullptr, InputWeight(gradient));
    if (input_gradient_) to_input_->Run(d_gates_.data(), input_weight_.data(), nullptr, input_.gradient);
    ShiftHidden();
    to_hidden_weight_->Run(d_gates_.data(), before_.data(), nullptr, HiddenWeight(gradient));
    SumBias();
  }

  // Both biases have the same gradient.
  void SumBias() {
    const int columns = 4 * units_;
    const float* const d_gates = gates_.data();
    float *const d_input_bias = InputBias(parameters->gradient()), *const d_hidden_bias =
                                                                       HiddenBias(parameters->gradient());
    device_->SumRows<1, 4>(
        int64_t{batch_} * steps_, columns,
        [=] CATCHMENT_ON_DEVICE(int r, int c, Pack<4>* sums) {
          const auto gradients = LoadPack<4>(d_gates + int64_t{r} * columns + c);
          for (int k = 0; k < 4; ++k) sums[0].at[k] += gradients.at[k];
        },
        [=] CATCHMENT_ON_DEVICE(int c, const float* sums) {
          d_input_bias[c] = sums[0];
          d_hidden_bias[c] = sums[0];
        });
  }

  // Computes gates, cells and hidden states from the sums of the gates.
  void Step(int t) {
    const int units = units_, steps = steps_;
    const float* const bias = HiddenBias(parameters->value());
    float *const gates = gates_.data(), *const cells = cells_.data(), *const hidden = hidden_.data();
    const FactorWriter h_writer = h_.WriterOf(hidden);
    const int stride = static_cast<int>(h_.stride());
    const Divisor by_units(units);
    device_->ForEach(int64_t{batch_} * units, [=] CATCHMENT_ON_DEVICE(int n) {
      int u;
      const int row = by_units.Divide(n, &u) * steps + t, at = row * units + u;
      float* const gate = gates + row * 4 * units + u;
      Pack<4> sums;
      for (int k = 0; k < 4; ++k) sums.at[k] = gate[k * units] + bias[k * units + u];
      float h;
      const Pack<4> now = ComputeGates(sums, t > 0 ? cells[at - units] : 0.0f, cells + at, &h);
      for (int k = 0; k < 4; ++k) gate[k * units] = now.at[k];
      hidden[at] = h;
      h_writer.Write(row * stride + u, h);
    });
  }

  // Replaces the gates by the gradients of their sums.
  void StepBack(int t) {
    const int units = units_, steps = steps_;
    const bool last = t == steps - 1, sequences = sequences_;
    const float *const cells = cells_.data(), *const d_out = output->gradient,
                       *const d_hidden = d_hidden_.data();
    float *const gates = gates_.data(), *const d_cell = d_cell_.data();
    const FactorWriter d_gates = d_gates_.WriterOf(gates);
    const int stride = static_cast<int>(d_gates_.stride());
    const Divisor by_units(units);
    device_->ForEach(int64_t{batch_} * units, [=] CATCHMENT_ON_DEVICE(int n) {
      int u;
      const int row = by_units.Divide(n, &u) * steps + t, at = row * units + u;
      float* const gate = gates + row * 4 * units + u;
      Pack<4> now;
      for (int k = 0; k < 4; ++k) now.at[k] = gate[k * units];
      const float d_h = (last ? 0.0f : d_hidden[n]) + (sequences ? d_out[at] : last ? d_out[n] : 0.0f);
      float d_c = last ? 0.0f : d_cell[n];
      const Pack<4> d_now = ComputeGateGradients(now, t > 0 ? cells[at - units] : 0.0f, cells[at], d_h, &d_c);
      d_cell[n] = d_c;
      for (int k = 0; k < 4; ++k) gate[k * units] = d_now.at[k];
      for (int k = 0; k < 4; ++k) d_gates.Write(row * stride + k * units + u, gate[k * units]);
    });
  }

  // Sets weight_by_unit_, from which neighbouring threads read neighbouring values.
  void TakeWeightByUnit() {
    const int units = units_;
    const Divisor by_units(units);
    const float* const from = HiddenWeight(parameters->value());
    float* const to = weight_by_unit_.data();
    device_->ForEach(int64_t{4} * units * units, [=] CATCHMENT_ON_DEVICE(int i) {
      int u;
      const int before = by_units.Divide(i / 4, &u);
      to[i] = from[(i % 4 * units + u) * units + before];
    });
  }

  // Does what Step does for all steps, with the products with the hidden states of the step before.
  void AllSteps() {
    const int units = units_, steps = steps_;
    const float *const bias = HiddenBias(parameters->value()), *const weight = weight_by_unit_.data();
    float *const all_gates = gates_.data(), *const cells = cells_.data(), *const hidden = hidden_.data();
    device_->ForEachSequence(batch_, units, [=] CATCHMENT_ON_DEVICE(int sample, const Team& team) {
      for (int t = 0; t < steps; ++t) {
        const int row = sample * steps + t;
        for (int u = team.rank; u < units; u += team.size) {
          float* const gate = all_gates + row * 4 * units + u;
          const int at = row * units + u;
          Pack<4> sums;
          for (int k = 0; k < 4; ++k) sums.at[k] = gate[k * units] + bias[k * units + u];
          for (int before = 0; t > 0 && before < units; ++before) {
            const float h = hidden[(row - 1) * units + before];
            const auto weights = LoadPack<4>(weight + (before * units + u) * 4);
            for (int k = 0; k < 4; ++k) sums.at[k] += h * weights.at[k];
          }
          const Pack<4> now = ComputeGates(sums, t > 0 ? cells[at - units] : 0.0f, cells + at, hidden + at);
          for (int k = 0; k < 4; ++k) gate[k * units] = now.at[k];
        }
        team.Barrier();
      }
    });
  }

  // Does what StepBack does for all steps, with the products with the gradients of the gates of the step
  // after.
  void AllStepsBack() {
    const int units = units_, steps = steps_;
    const bool sequences = sequences_;
    const float *const cells = cells_.data(), *const d_out = output->gradient,
                       *const weight = HiddenWeight(parameters->value());
    float *const gates = gates_.data(), *const d_cells = d_cell_.data();
    const FactorWriter d_gates = d_gates_.WriterOf(gates);
    const int stride = static_cast<int>(d_gates_.stride());
    device_->ForEachSequence(batch_, units, [=] CATCHMENT_ON_DEVICE(int sample, const Team& team) {
      for (int t = steps - 1; t >= 0; --t) {
        const int row = sample * steps + t;
        const bool last = t == steps - 1;
        for (int u = team.rank; u < units; u += team.size) {
          float* const gate = gates + row * 4 * units + u;
          const int at = row * units + u, n = sample * units + u;
          float d_h = sequences ? d_out[at] : last ? d_out[n] : 0.0f;
          for (int after = 0; !last && after < 4 * units; ++after)
            d_h += gates[(row + 1) * 4 * units + after] * weight[after * units + u];
          Pack<4> now;
          for (int k = 0; k < 4; ++k) now.at[k] = gate[k * units];
          float d_c = last ? 0.0f : d_cells[n];
          const Pack<4> d_now =
              ComputeGateGradients(now, t > 0 ? cells[at - units] : 0.0f, cells[at], d_h, &d_c);
          d_cells[n] = d_c;
          for (int k = 0; k < 4; ++k) {
            gate[k * units] = d_now.at[k];
            d_gates.Write(row * stride + k * units + u, d_now.at[k]);
          }
        }
        team.Barrier();
      }
    });
  }

  void WriteOutput() {
    const int units = units_, steps = steps_;
    const bool sequences = sequences_;
    const float* const hidden = hidden_.data();
    float* const out = output->value;
    const Divisor by_units(units);
    device_->ForEach(output->size(), [=] CATCHMENT_ON_DEVICE(int i) {
      int u;
      const int sequence = by_units.Divide(i, &u);
      out[i] = hidden[sequences ? i : (sequence * steps + steps - 1) * units + u];
    });
  }

  // Writes each step's h_(t-1), a factor; with 32 bits over the cells, whose values are not used again.
  void ShiftHidden() {
    const int units = units_, stride = static_cast<int>(before_.stride());
    const Divisor by_units(units), by_steps(steps_);
    const float* const hidden = hidden_.data();
    FactorWriter before = before_.WriterOf(cells_.data());
    if (before.to == nullptr) before.to = cells_.data();
    device_->ForEach(int64_t{batch_} * steps_ * units, [=] CATCHMENT_ON_DEVICE(int i) {
      int u;
      const int row = by_units.Divide(i, &u);
      before.Write(int64_t{row} * stride + u, row % by_steps > 0 ? hidden[i - units] : 0.0f);
    });
  }

 private:
  void MakeStepProducts() {
    const int64_t g = 4 * units_, h = units_, f = features_;
    // Weights that are not copies begin where the tensor before them ends; so do steps.
    const int bytes = BytesOf(device_->precision());
    const int h_alignment = AlignmentOf({h_.stride() * bytes});
    const int d_gates_alignment = AlignmentOf({d_gates_.stride() * bytes});
    const int weight_alignment = Is16Bit(device_->precision()) ? 256 : AlignmentOf({g * f * bytes});
    constexpr int kFloat = sizeof(float);
    from_hidden_.emplace(device_, GemmSpec{.transpose_b = true,
                                           .m = batch_,
                                           .n = g,
                                           .k = h,
                                           .lda = steps_ * h_.stride(),
                                           .ldb = hidden_weight_.stride(),
                                           .ldc = steps_ * g,
                                           .accumulate = true,
                                           .a_alignment = h_alignment,
                                           .b_alignment = weight_alignment,
                                           .c_alignment = AlignmentOf({g * kFloat})});
    to_hidden_.emplace(device_, GemmSpec{.m = batch_,
                                         .n = h,
                                         .k = g,
                                         .lda = steps_ * d_gates_.stride(),
                                         .ldb = hidden_weight_.stride(),
                                         .ldc = h,
                                         .a_alignment = d_gates_alignment,
                                         .b_alignment = weight_alignment});
  }

  static int64_t Units(const CatchmentCudaLayer& spec) {
    return spec.output.kind == 2 ? spec.output.width : spec.output.channels;
  }

  // Parts of the parameters, or of their gradient.
  float* InputWeight(float* all) const { return all; }
  float* HiddenWeight(float* all) const { return all + int64_t{4} * units_ * features_; }
  float* InputBias(float* all) const { return HiddenWeight(all) + int64_t{4} * units_ * units_; }
  float* HiddenBias(float* all) const { return InputBias(all) + 4 * units_; }

  Device* device_;
  const Tensor input_;
  const bool sequences_, input_gradient_;
  const int batch_, steps_, features_, units_;
  const bool in_one_kernel_;
  DeviceArray<> gates_;           // batch x steps x 4 units
  DeviceArray<> cells_, hidden_;  // batch x steps x units
  DeviceArray<> d_hidden_,
      d_cell_;  // batch x units, of the step before; d_hidden_ is for a product in each step
  Factor x_, input_weight_;
  DeviceArray<> weight_by_unit_;  // W_hh as unit before x unit x gate, for one kernel
  Factor hidden_weight_;          // W_hh, for a product in each step
  Factor h_;                      // of hidden_, likewise
  Factor before_;                 // of each step's h_(t-1)
  Factor d_gates_;                // of gates_, once they are gradients
  std::optional<Gemm> from_input_, from_hidden_, to_hidden_, to_input_weight_, to_hidden_weight_, to_input_;
};

}  // namespace

std::unique_ptr<Layer> MakeLstm(Device* device, const CatchmentCudaLayer& spec, const Tensor& input) {
  return std::make_unique<Lstm>(device, spec, input);
}

}  // namespace catchment::cuda
