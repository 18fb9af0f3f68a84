#include "server/worker_rates.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;

double SecondsOf(const v1::Progress& progress) {
  return progress.compute_seconds() + progress.push_seconds() + progress.pull_seconds() +
         progress.data_seconds();
}

Json Rates(uint32_t worker, const v1::Progress& before, const v1::Progress& now) {
  const double seconds = SecondsOf(now) - SecondsOf(before);
  const auto rate = [seconds](double amount) { return seconds > 0 ? Json(amount / seconds) : Json(); };
  return {{"worker", worker},
          {"samples_per_second", rate(static_cast<double>(now.samples() - before.samples()))},
          {"compute_share", rate(now.compute_seconds() - before.compute_seconds())},
          {"push_share", rate(now.push_seconds() - before.push_seconds())},
          {"pull_share", rate(now.pull_seconds() - before.pull_seconds())},
          {"data_share", rate(now.data_seconds() - before.data_seconds())}};
}

}  // namespace

Json WorkerRates::Look(const v1::JobStatus& status) {
  Json list = Json::array();
  std::map<uint32_t, v1::Progress> now;
  for (const v1::WorkerStatus& worker : status.workers()) {
    const v1::Progress& progress = now[worker.worker()] = worker.progress();
    const auto last = last_.find(worker.worker());
    // Another one may have its index by now, and has trained less.
    const bool goes_on = last != last_.end() && last->second.samples() <= progress.samples() &&
                         SecondsOf(last->second) <= SecondsOf(progress);
    list.push_back(Rates(worker.worker(), goes_on ? last->second : v1::Progress(), progress));
  }
  last_ = std::move(now);
  return list;
}

}  // namespace catchment
