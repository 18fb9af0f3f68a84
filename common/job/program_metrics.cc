#include "common/job/program_metrics.h"

#include <algorithm>
#include <cmath>

namespace catchment {
namespace {

// Returns metrics.end() for a name that is not there.
template <typename Metrics>
auto Find(const std::string& name, Metrics& metrics) {
  return std::find_if(metrics.begin(), metrics.end(),
                      [&name](const v1::ProgramMetric& metric) { return metric.name() == name; });
}

}  // namespace

void AddProgramMetric(const std::string& name, double sum, uint64_t count, ProgramMetrics* totals) {
  const auto found = Find(name, *totals);
  if (found == totals->end() && totals->size() >= kMaxProgramMetrics) return;
  v1::ProgramMetric* const metric = found == totals->end() ? totals->Add() : &*found;
  metric->set_name(name);
  metric->set_sum(metric->sum() + sum);
  metric->set_count(metric->count() + count);
}

ProgramMetrics ProgramMetricsSince(const ProgramMetrics& before, const ProgramMetrics& after) {
  ProgramMetrics since;
  for (const v1::ProgramMetric& metric : after) {
    const auto found = Find(metric.name(), before);
    const bool is_new = found == before.end();
    const double sum = metric.sum() - (is_new ? 0 : found->sum());
    const uint64_t count = is_new ? 0 : found->count();
    if (metric.count() <= count || !std::isfinite(sum)) continue;
    AddProgramMetric(metric.name(), sum, metric.count() - count, &since);
  }
  return since;
}

}  // namespace catchment
