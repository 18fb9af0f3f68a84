#include <optional>
#include <string>

#include "cli/live/advice.h"
#include "cli/live/status_text.h"
#include "common/measures/measures.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json OrNull(const std::optional<T>& value) {
  return value.has_value() ? Json(*value) : Json();
}

const v1::ShardReport* ReportOf(const v1::JobStatus& status, int shard) {
  for (const v1::ShardReport& report : status.shards()) {
    if (static_cast<int>(report.shard()) == shard) return &report;
  }
  return nullptr;
}

Json ShardJson(const v1::JobStatus& status, int shard) {
  const v1::ShardReport* const report = ReportOf(status, shard);
  Json object;
  AddMeasures(ShardMeasures(), kInStatus, {static_cast<uint32_t>(shard), report, &status.servers(shard)},
              &object);
  AddMeasures(PushMeasures(), kInStatus, {TotalPushes(report != nullptr ? *report : v1::ShardReport())},
              &object);
  for (const Measure<PushReading>& measure : PushMeasures()) {
    if (report == nullptr && object.contains(measure.key)) object[measure.key] = nullptr;
  }
  return object;
}

Json WarningJson(const Warning& warning) {
  return {
      {"code", warning.code},         {"worker", OrNull(warning.worker)}, {"shard", OrNull(warning.shard)},
      {"measured", warning.measured}, {"bound", warning.bound},           {"found", warning.found},
      {"why", warning.why},           {"advice", warning.advice}};
}

}  // namespace

Json WarningsJson(const std::vector<Warning>& warnings) {
  Json list = Json::array();
  for (const Warning& warning : warnings) list.push_back(WarningJson(warning));
  return list;
}

Json StatusJson(const v1::JobStatus& status, const v1::JobStatus* before) {
  Json object;
  AddMeasures(JobMeasures(), kInStatus, JobReading(status, before), &object);
  object["workers"] = Json::array();
  for (const v1::WorkerStatus& worker : status.workers())
    AddMeasures(WorkerMeasures(), kInStatus, {worker, before}, &object["workers"].emplace_back());
  object["shards"] = Json::array();
  for (int s = 0; s < status.servers_size(); ++s) object["shards"].push_back(ShardJson(status, s));
  object["events"] = std::vector<std::string>(status.events().begin(), status.events().end());
  object["warnings"] = WarningsJson(Advise(status));
  return object;
}

}  // namespace catchment
