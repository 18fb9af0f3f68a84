#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/checks.h"

namespace catchment {
namespace {

// 2^40; from there on float16's smallest number would overflow.
constexpr double kLargestScale = 1099511627776;

bool IsPowerOfTwo(double value) {
  int exponent;
  return std::frexp(value, &exponent) == 0.5;
}

// Checks that the scale is a power of two, because scaling and unscaling must be exact.
void CheckLossScale(const v1::Computation& computation, Problems* problems) {
  const double scale = computation.loss_scale();
  problems->Require(IsPowerOfTwo(scale) && scale >= 1 && scale <= kLargestScale, "computation.loss_scale",
                    scale, "must be a power of two from 1 to 2^40, so that scaling a gradient is exact");
  problems->AtLeast<uint32_t>(1, "computation.loss_scale_period", computation.loss_scale_period());
}

void RequireFloat16(bool is_set, const std::string& path, Problems* problems) {
  if (!is_set) return;
  problems->Add(path, Reason::kUnused,
                "belongs to precision FLOAT16, whose gradients may overflow; leave it out, or set "
                "computation.precision to FLOAT16");
}

}  // namespace

void CheckComputation(const v1::Job& job, Problems* problems) {
  const v1::Computation& computation = job.computation();
  if (!v1::Computation::Precision_IsValid(computation.precision())) {
    return problems->Require(false, "computation.precision", static_cast<int>(computation.precision()),
                             "must be one of FLOAT32, TF32, BFLOAT16, FLOAT16");
  }
  if (computation.precision() == v1::Computation::FLOAT16) return CheckLossScale(computation, problems);
  RequireFloat16(computation.has_loss_scale(), "computation.loss_scale", problems);
  RequireFloat16(computation.has_loss_scale_period(), "computation.loss_scale_period", problems);
}

}  // namespace catchment
