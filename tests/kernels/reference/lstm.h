// An LSTM layer in plain loops, one sample at a time. "=" and "+=" as in reference.h; formulas in
// kernels/cpu/lstm.cc.
#ifndef CATCHMENT_TESTS_KERNELS_REFERENCE_LSTM_H_
#define CATCHMENT_TESTS_KERNELS_REFERENCE_LSTM_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/kernels/reference/activations.h"

namespace catchment::reference {

struct LstmShape {
  int64_t steps, features, units;
  bool sequences;

  int64_t weight_hh() const { return 4 * units * features; }  // its offset among the parameters
  int64_t bias_ih() const { return weight_hh() + 4 * units * units; }
  int64_t bias_hh() const { return bias_ih() + 4 * units; }
  int64_t parameters() const { return bias_hh() + 4 * units; }
  int64_t out_size() const { return sequences ? steps * units : units; }
};

// The results of one sample's forward pass: for each step the gates (i, f, g, o), the cell and the state.
template <typename T>
struct LstmTrace {
  std::vector<T> gates, cells, states;
};

template <typename T>
LstmTrace<T> RunLstm(const LstmShape& s, const T* in, const T* p) {
  const int64_t h = s.units;
  LstmTrace<T> trace = {std::vector<T>(s.steps * 4 * h), std::vector<T>(s.steps * h),
                        std::vector<T>(s.steps * h)};
  for (int64_t t = 0; t < s.steps; ++t, in += s.features) {
    T* const gate = trace.gates.data() + t * 4 * h;
    for (int64_t r = 0; r < 4 * h; ++r) {
      T sum = p[s.bias_ih() + r] + p[s.bias_hh() + r];
      for (int64_t i = 0; i < s.features; ++i) sum += p[r * s.features + i] * in[i];
      for (int64_t u = 0; t > 0 && u < h; ++u)
        sum += p[s.weight_hh() + r * h + u] * trace.states[(t - 1) * h + u];
      gate[r] = r / h == 2 ? std::tanh(sum) : Sigmoid(sum);
    }
    for (int64_t u = 0; u < h; ++u) {
      const T before = t > 0 ? trace.cells[(t - 1) * h + u] : T{0};
      trace.cells[t * h + u] = gate[h + u] * before + gate[u] * gate[2 * h + u];
      trace.states[t * h + u] = gate[3 * h + u] * std::tanh(trace.cells[t * h + u]);
    }
  }
  return trace;
}

// out (N x units, or N x steps x units) =
template <typename T>
void LstmForward(int64_t n, const LstmShape& s, const T* in, const T* parameters, T* out) {
  for (int64_t i = 0; i < n; ++i, in += s.steps * s.features, out += s.out_size()) {
    const LstmTrace<T> trace = RunLstm(s, in, parameters);
    std::copy(trace.states.end() - s.out_size(), trace.states.end(), out);
  }
}

// d_in =, d_parameters +=, of one sample
template <typename T>
void LstmBackwardSample(const LstmShape& s, const T* in, const T* p, const T* d_out, T* d_in, T* d_p) {
  const int64_t h = s.units;
  const LstmTrace<T> trace = RunLstm(s, in, p);
  std::vector<T> d_state(h), d_cell(h), d_sum(4 * h);
  for (int64_t t = s.steps; t-- > 0;) {
    const T* const gate = trace.gates.data() + t * 4 * h;
    for (int64_t u = 0; u < h; ++u) {
      if (s.sequences || t == s.steps - 1) d_state[u] += d_out[s.sequences ? t * h + u : u];
      const T i = gate[u], f = gate[h + u], g = gate[2 * h + u], o = gate[3 * h + u];
      const T squashed = std::tanh(trace.cells[t * h + u]),
              before = t > 0 ? trace.cells[(t - 1) * h + u] : T{0};
      d_cell[u] += d_state[u] * o * (1 - squashed * squashed);
      d_sum[u] = d_cell[u] * g * i * (1 - i);
      d_sum[h + u] = d_cell[u] * before * f * (1 - f);
      d_sum[2 * h + u] = d_cell[u] * i * (1 - g * g);
      d_sum[3 * h + u] = d_state[u] * squashed * o * (1 - o);
      d_cell[u] *= f;
    }
    std::fill(d_state.begin(), d_state.end(), T{0});
    std::fill_n(d_in + t * s.features, s.features, T{0});
    for (int64_t r = 0; r < 4 * h; ++r) {
      for (int64_t i = 0; i < s.features; ++i) {
        d_p[r * s.features + i] += d_sum[r] * in[t * s.features + i];
        d_in[t * s.features + i] += d_sum[r] * p[r * s.features + i];
      }
      for (int64_t u = 0; t > 0 && u < h; ++u) {
        d_p[s.weight_hh() + r * h + u] += d_sum[r] * trace.states[(t - 1) * h + u];
        d_state[u] += d_sum[r] * p[s.weight_hh() + r * h + u];
      }
      d_p[s.bias_ih() + r] += d_sum[r];
      d_p[s.bias_hh() + r] += d_sum[r];
    }
  }
}

// d_in =, d_parameters =
template <typename T>
void LstmBackward(int64_t n, const LstmShape& s, const T* in, const T* parameters, const T* d_out, T* d_in,
                  T* d_parameters) {
  std::fill_n(d_parameters, s.parameters(), T{0});
  for (int64_t i = 0; i < n; ++i) {
    LstmBackwardSample(s, in, parameters, d_out, d_in, d_parameters);
    in += s.steps * s.features;
    d_in += s.steps * s.features;
    d_out += s.out_size();
  }
}

}  // namespace catchment::reference

#endif  // CATCHMENT_TESTS_KERNELS_REFERENCE_LSTM_H_
