#include "worker/model/loss_scale.h"

#include <cmath>

namespace catchment {

void Unscaling::AfterBackward(Range parameters) {
  bool finite = true;
  for (int64_t i = parameters.begin; i < parameters.end; ++i) {
    finite &= std::isfinite(gradient_[i]);
    gradient_[i] *= factor_;
  }
  finite_ &= finite;
}

}  // namespace catchment
