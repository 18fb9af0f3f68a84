#include <cmath>
#include <optional>
#include <string>

#include "cli/live/advice.h"
#include "cli/live/status_text.h"
#include "common/base/noise_scale.h"
#include "common/base/quorum_total.h"
#include "common/base/work_rates.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;

template <typename T>
Json Known(bool known, const T& value) {
  return known ? Json(value) : Json();
}

// Returns null for a NaN or an infinity, which JSON does not have.
Json Finite(bool known, double value) { return Known(known && std::isfinite(value), value); }

template <typename T>
Json Optional(const std::optional<T>& value) {
  return value.has_value() ? Json(*value) : Json();
}

void AddTimes(const Work& work, Json* object) {
  (*object)["compute_share"] = Optional(work.share(work.compute));
  (*object)["push_share"] = Optional(work.share(work.push));
  (*object)["pull_share"] = Optional(work.share(work.pull));
  (*object)["data_share"] = Optional(work.share(work.data));
}

template <typename Message>  // JobStatus or WorkerStatus
void AddStaleness(const Message& message, bool known, Json* object) {
  (*object)["staleness_mean"] = Known(known, message.staleness_mean());
  (*object)["staleness_p50"] = Known(known, message.staleness_p50());
  (*object)["staleness_p99"] = Known(known, message.staleness_p99());
  (*object)["staleness_max"] = Known(known, message.staleness_max());
}

void AddNoise(const v1::JobStatus& status, Json* object) {
  const std::optional<v1::GradientNoise> noise = TotalNoise(status);
  (*object)["noise_scale"] = Optional(noise ? NoiseScale(*noise) : std::nullopt);
  (*object)["noise_updates"] = noise ? Json(noise->updates()) : Json();
}

void AddQuorum(const v1::JobStatus& status, Json* object) {
  const std::optional<QuorumTotal> quorum = TotalQuorum(status);
  const QuorumTotal total = quorum.value_or(QuorumTotal());
  const bool known = quorum.has_value();
  (*object)["closed_by_all"] = Known(known, total.by_all);
  (*object)["closed_by_grace"] = Known(known, total.by_grace);
  (*object)["closed_by_loss"] = Known(known, total.by_loss);
  (*object)["grace_seconds_mean"] = Known(known, total.grace_seconds_mean());
  (*object)["merged_mean"] = Known(known, total.merged_mean());
}

void AddProgress(const v1::JobStatus& status, const v1::JobStatus* before, Json* object) {
  const double total = static_cast<double>(status.total_samples());
  const bool trained = status.samples() > 0;
  const bool has_rate = status.phase() == v1::JobStatus::TRAINING && status.samples_per_second() > 0;
  (*object)["samples"] = status.samples();
  (*object)["total_samples"] = Known(total > 0, status.total_samples());
  (*object)["percent"] = Known(total > 0, 100 * static_cast<double>(status.samples()) / total);
  (*object)["epochs"] = status.epochs();
  (*object)["total_epochs"] =
      Known(total > 0 && trained, status.epochs() * total / static_cast<double>(status.samples()));
  (*object)["updates"] = status.updates();
  (*object)["wall_seconds"] = status.wall_seconds();
  (*object)["seconds_left"] = Known(has_rate, status.seconds_left());
  (*object)["samples_per_second"] = Optional(SamplesPerSecond(status, before));
  (*object)["train_loss"] = Finite(trained, status.train_loss());
  (*object)["train_accuracy"] = Finite(trained && status.has_accuracy(), status.train_accuracy());
  const bool tested = status.test_samples() > 0;
  (*object)["test_loss"] = Finite(tested, status.test_loss());
  (*object)["test_accuracy"] = Finite(tested && status.has_accuracy(), status.test_accuracy());
  (*object)["test_samples"] = status.test_samples();
  (*object)["tested_at_samples"] = Known(tested, status.tested_at_samples());
  (*object)["tested_at_seconds"] = Known(tested, status.tested_at_seconds());
}

Json WorkerJson(const v1::WorkerStatus& worker, const v1::JobStatus* before) {
  const Work work = WorkOf(worker, before);
  Json object = {{"worker", worker.worker()},
                 {"host", worker.host()},
                 {"pid", worker.pid()},
                 {"device", worker.device()},
                 {"shared_memory_servers", worker.progress().shared_memory_servers()},
                 {"steps", worker.progress().steps()},
                 {"samples", worker.progress().samples()},
                 {"samples_per_second", Optional(work.samples_per_second())},
                 {"compute_seconds_per_step", Optional(work.compute_per_step())},
                 {"bytes_read", worker.progress().bytes_read()},
                 {"read_seconds", worker.progress().read_seconds()}};
  AddTimes(work, &object);
  AddStaleness(worker, worker.progress().steps() > 0, &object);
  object["seconds_since_heartbeat"] = worker.seconds_since_heartbeat();
  return object;
}

const v1::ShardReport* ReportOf(const v1::JobStatus& status, int shard) {
  for (const v1::ShardReport& report : status.shards()) {
    if (static_cast<int>(report.shard()) == shard) return &report;
  }
  return nullptr;
}

Json ShardJson(const v1::JobStatus& status, int shard) {
  const v1::ServerStatus& server = status.servers(shard);
  const v1::ShardReport* const report = ReportOf(status, shard);
  Json object = {{"shard", shard},
                 {"address", Known(!server.address().empty(), server.address())},
                 {"parameters", server.parameters()}};
  const PushCounts pushes = report != nullptr ? CountPushes(*report) : PushCounts();
  const bool known = report != nullptr;
  object["version"] = Known(known, known ? report->version() : 0);
  object["bytes_pushed"] = Known(known, known ? report->bytes_pushed() : 0);
  object["bytes_pulled"] = Known(known, known ? report->bytes_pulled() : 0);
  object["pushes_applied"] = Known(known, pushes.applied);
  object["pushes_waiting"] = Known(known, pushes.waiting);
  object["pushes_late"] = Known(known, pushes.late);
  object["pushes_split"] = Known(known, pushes.split);
  object["pushes_non_finite"] = Known(known, pushes.non_finite);
  object["pushes_duplicate"] = Known(known, pushes.duplicate);
  object["save_error"] = Known(known && !report->save_error().empty(), known ? report->save_error() : "");
  return object;
}

Json WarningJson(const Warning& warning) {
  return {{"code", warning.code},
          {"worker", Optional(warning.worker)},
          {"shard", Optional(warning.shard)},
          {"measured", warning.measured},
          {"bound", warning.bound},
          {"found", warning.found},
          {"why", warning.why},
          {"advice", warning.advice}};
}

}  // namespace

Json WarningsJson(const std::vector<Warning>& warnings) {
  Json list = Json::array();
  for (const Warning& warning : warnings) list.push_back(WarningJson(warning));
  return list;
}

Json StatusJson(const v1::JobStatus& status, const v1::JobStatus* before) {
  Json object = {{"job", status.job()},
                 {"preset", status.settings().algorithm().preset()},
                 {"phase", v1::JobStatus::Phase_Name(status.phase())},
                 {"reason", status.reason()}};
  AddProgress(status, before, &object);
  AddTimes(WorkOf(status, before), &object);
  AddStaleness(status, status.pushes_applied() > 0, &object);
  object["pushes_applied"] = status.pushes_applied();
  object["pushes_late"] = status.pushes_late();
  object["pushes_split"] = status.pushes_split();
  object["pushes_non_finite"] = status.pushes_non_finite();
  object["pushes_duplicate"] = status.pushes_duplicate();
  object["bytes_pushed"] = status.bytes_pushed();
  object["bytes_pulled"] = status.bytes_pulled();
  object["round_trip_p50_us"] = Known(status.round_trip_p50_us() > 0, status.round_trip_p50_us());
  object["round_trip_p99_us"] = Known(status.round_trip_p99_us() > 0, status.round_trip_p99_us());
  object["plateau_factor"] = Known(status.has_plateau_factor(), status.plateau_factor());
  AddNoise(status, &object);
  AddQuorum(status, &object);
  object["recoveries"] = status.recoveries();
  object["updates_computed_again"] = status.updates_computed_again();
  object["last_checkpoint"] = Known(status.last_checkpoint() > 0, status.last_checkpoint());
  object["planned_workers"] = status.settings().workers();
  object["evaluators"] = status.evaluators();
  object["insecure"] = status.insecure();
  object["workers"] = Json::array();
  for (const v1::WorkerStatus& worker : status.workers())
    object["workers"].push_back(WorkerJson(worker, before));
  object["shards"] = Json::array();
  for (int s = 0; s < status.servers_size(); ++s) object["shards"].push_back(ShardJson(status, s));
  object["events"] = Json(std::vector<std::string>(status.events().begin(), status.events().end()));
  object["warnings"] = WarningsJson(Advise(status));
  return object;
}

}  // namespace catchment
