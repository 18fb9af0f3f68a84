#include "server/rules/gradient_compensation.h"

namespace catchment {

std::unique_ptr<GradientCompensation> MakeGradientCompensation(const v1::Job& job) {
  const v1::Compensation& compensation = job.algorithm().compensation();
  if (compensation.has_delay_compensated()) {
    const v1::DelayCompensation& config = compensation.delay_compensated();
    if (!config.adaptive()) return std::make_unique<DelayCompensation>(config.lambda());
    return std::make_unique<AdaptiveDelayCompensation>(config.lambda(), config.decay());
  }
  if (compensation.has_gap_aware()) return std::make_unique<GapAware>(job.optimizer().learning_rate());
  return nullptr;
}

}  // namespace catchment
