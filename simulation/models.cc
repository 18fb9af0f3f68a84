#include "simulation/models.h"

#include <cmath>

namespace catchment {
namespace {

// Marsaglia and Tsang 2000, "A simple method for generating gamma variables"; the scale is 1.
double SampleGamma(double shape, Random* random) {
  if (shape < 1) return SampleGamma(shape + 1, random) * std::pow(1 - random->Uniform(), 1 / shape);
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = random->Normal();
    const double v = std::pow(1 + c * x, 3);
    if (v <= 0) continue;
    if (std::log(1 - random->Uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) return d * v;
  }
}

}  // namespace

double Distribution::Sample(Random* random) const {
  switch (kind) {
    case kConstant:
      return mean;
    case kLogNormal:
      return mean * std::exp(shape * random->Normal() - shape * shape / 2);
    case kExponential:
      return -mean * std::log(1 - random->Uniform());
    case kGamma:
      return mean / shape * SampleGamma(shape, random);
  }
  return mean;
}

}  // namespace catchment
