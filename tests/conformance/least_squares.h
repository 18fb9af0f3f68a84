// A training problem small enough to be worked out by hand or in double precision: rows a, targets y,
// f_j(w) = (a_j . w - y_j)^2 / 2.
#ifndef CATCHMENT_TESTS_CONFORMANCE_LEAST_SQUARES_H_
#define CATCHMENT_TESTS_CONFORMANCE_LEAST_SQUARES_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/base/random.h"

namespace catchment {

class LeastSquares {
 public:
  LeastSquares(int64_t num_parameters, int64_t num_rows, uint64_t seed)
      : n_(num_parameters), rows_(num_rows) {
    Random random(seed);
    for (auto& row : rows_) {
      row.a.resize(n_);
      for (float& value : row.a) value = static_cast<float>(random.Normal());
      row.y = static_cast<float>(random.Normal());
    }
  }

  // Mean over rows begin .. end-1, counted round and round.
  void Gradient(int64_t begin, int64_t end, absl::Span<const float> w, absl::Span<float> gradient) const {
    std::vector<double> sum(n_, 0.0);
    for (int64_t j = begin; j < end; ++j) {
      const Row& row = rows_[j % rows_.size()];
      double error = -row.y;
      for (int64_t i = 0; i < n_; ++i) error += double{row.a[i]} * w[i];
      for (int64_t i = 0; i < n_; ++i) sum[i] += error * row.a[i];
    }
    for (int64_t i = 0; i < n_; ++i)
      gradient[i] = static_cast<float>(sum[i] / static_cast<double>(end - begin));
  }

  double Loss(absl::Span<const float> w) const {
    double loss = 0;
    for (const Row& row : rows_) {
      double error = -row.y;
      for (int64_t i = 0; i < n_; ++i) error += double{row.a[i]} * w[i];
      loss += error * error / 2;
    }
    return loss / static_cast<double>(rows_.size());
  }

 private:
  struct Row {
    std::vector<float> a;
    float y = 0;
  };

  const int64_t n_;
  std::vector<Row> rows_;
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_CONFORMANCE_LEAST_SQUARES_H_
