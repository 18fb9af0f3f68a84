#include "worker/attach/announced_plans.h"

#include <utility>
#include <vector>

#include "common/base/status_macros.h"

namespace catchment {
namespace {

std::vector<uint32_t> SamplesOf(const BatchPlan& plan, EpochOrder* order) {
  std::vector<uint32_t> samples;
  for (const Span& span : plan.spans) {
    if (span.begin > span.end || span.end > static_cast<uint64_t>(order->num_samples())) return {};
    const std::vector<uint32_t>& epoch = order->order(span.epoch);
    samples.insert(samples.end(), epoch.begin() + static_cast<int64_t>(span.begin),
                   epoch.begin() + static_cast<int64_t>(span.end));
  }
  return samples;
}

}  // namespace

NextPlan AnnouncePlans(NextPlan next, EpochOrder order, AttachedModel* model) {
  return [next = std::move(next), order = std::move(order),
          model]() mutable -> absl::StatusOr<std::optional<BatchPlan>> {
    absl::StatusOr<std::optional<BatchPlan>> plan = next();
    if (!plan.ok() || !plan->has_value()) return plan;
    RETURN_IF_ERROR(model->Plan(SamplesOf(**plan, &order)));
    return plan;
  };
}

}  // namespace catchment
