// The momentum that asynchrony adds (Mitliagkas et al. 2016, arXiv:1605.09774): with g workers, exponential
// service times and plain SGD on f(w) = k w*w / 2, the mean over many runs obeys
//   E[dw_{t+1}] = a E[dw_t] - b E[w_t],   a = 1 - 1/g,   b = eta k / g
#ifndef CATCHMENT_TESTS_CONFORMANCE_IMPLICIT_MOMENTUM_H_
#define CATCHMENT_TESTS_CONFORMANCE_IMPLICIT_MOMENTUM_H_

#include <cstdint>
#include <vector>

namespace catchment {

struct ImplicitMomentum {
  std::vector<double> mean;  // E[w_t], t = 0, 1, ...
  double a = 0;              // fitted by least squares
  double b = 0;
};

// `rate`: eta k. The center begins at 1, and what the workers have seen of it at 0: began both at one place,
// With a single worker the ratio of w and dw would be constant, and a and b could not be distinguished.
ImplicitMomentum MeasureImplicitMomentum(int workers, double rate, int updates, int runs, uint64_t seed);

}  // namespace catchment

#endif  // CATCHMENT_TESTS_CONFORMANCE_IMPLICIT_MOMENTUM_H_
