#include <optional>

#include "common/base/work_rates.h"
#include "server/outputs/push_report.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;

Json OrNull(const std::optional<double>& number) { return number ? Json(*number) : Json(); }

Json Rates(uint32_t worker, const Work& work) {
  return {{"worker", worker},
          {"samples_per_second", OrNull(work.samples_per_second())},
          {"compute_share", OrNull(work.share(work.compute))},
          {"push_share", OrNull(work.share(work.push))},
          {"pull_share", OrNull(work.share(work.pull))},
          {"data_share", OrNull(work.share(work.data))},
          {"bytes_per_second", OrNull(work.bytes_per_second())},
          {"bytes_per_step", OrNull(work.bytes_per_step())},
          {"exchanges_per_step", OrNull(work.exchanges_per_step())},
          {"bytes_read_per_second", OrNull(work.bytes_read_per_second())},
          {"read_threads", OrNull(work.share(work.read))}};
}

}  // namespace

Json WorkerRates::Update(const v1::JobStatus& status) {
  Json list = Json::array();
  for (const v1::WorkerStatus& worker : status.workers()) {
    list.push_back(Rates(worker.worker(), WorkOf(worker, &last_)));
  }
  *last_.mutable_workers() = status.workers();
  return list;
}

}  // namespace catchment
