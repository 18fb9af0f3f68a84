// The measures of workers, servers and pushes.
#include <functional>
#include <map>

#include "common/measures/measure_readers.h"
#include "common/measures/measures.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;
using Status = v1::JobStatus;
using v1::Progress;
using v1::ShardReport;
using v1::WorkerStatus;

constexpr unsigned kInFiles = kInLines | kInSummary;

// ---------------------------------------------------------------------------------------------- a worker

template <auto get>
Json OfWorker(const WorkerReading& reading) {
  return std::invoke(get, reading.worker);
}
template <auto get>
Json OfProgress(const WorkerReading& reading) {
  return std::invoke(get, reading.worker.progress());
}
template <auto get>
Json IfStepped(const WorkerReading& reading) {
  return reading.worker.progress().steps() > 0 ? OfWorker<get>(reading) : Json();
}
template <auto get>
Json Rate(const WorkerReading& reading) {
  return Known(std::invoke(get, reading.work));
}

constexpr unsigned kInRates = kInLines | kInStatus;

constexpr Measure<WorkerReading> kOfWorker[] = {
    {"worker", kInRates, "", "its index", OfWorker<&WorkerStatus::worker>},
    {"host", kInStatus, "", "the name of its host", OfWorker<&WorkerStatus::host>},
    {"pid", kInStatus, "", "its process", OfWorker<&WorkerStatus::pid>},
    {"device", kInStatus, "", "its device", OfWorker<&WorkerStatus::device>},
    {"shared_memory_servers", kInStatus, "",
     "servers with which it exchanges payloads in [shared memory](wire_protocol.md#shared-memory)",
     OfProgress<&Progress::shared_memory_servers>},
    {"steps", kInStatus, "steps", "since it registered", OfProgress<&Progress::steps>,
     "catchment_worker_steps_total"},
    {"samples", kInStatus, "samples", "since it registered", OfProgress<&Progress::samples>,
     "catchment_worker_samples_total"},
    {"samples", 0, "samples", "since it registered, at the master", OfProgress<&Progress::samples>,
     "catchment_member_samples_total"},
    {"samples_per_second", kInRates, "samples/s", "in the time of its training thread",
     Rate<&Work::samples_per_second>},
    {"compute_seconds_per_step", kInStatus, "s", "that it computes", Rate<&Work::compute_per_step>},
    {"compute_share", kInRates, "ratio", "of the time of its training thread: computing",
     Share<&Work::compute>},
    {"push_share", kInRates, "ratio", "pushing", Share<&Work::push>},
    {"pull_share", kInRates, "ratio", "pulling", Share<&Work::pull>},
    {"data_share", kInRates, "ratio", "waiting for a minibatch", Share<&Work::data>},
    {"compute_seconds", 0, "s", "time of its training thread since it registered, by what it does",
     OfProgress<&Progress::compute_seconds>, "catchment_worker_phase_seconds_total{phase=compute}"},
    {"push_seconds", 0, "s", "pushing", OfProgress<&Progress::push_seconds>,
     "catchment_worker_phase_seconds_total{phase=push}"},
    {"pull_seconds", 0, "s", "pulling", OfProgress<&Progress::pull_seconds>,
     "catchment_worker_phase_seconds_total{phase=pull}"},
    {"data_seconds", 0, "s", "waiting for a minibatch", OfProgress<&Progress::data_seconds>,
     "catchment_worker_phase_seconds_total{phase=data}"},
    {"bytes_pushed", 0, "bytes", "payload of contributions", OfProgress<&Progress::bytes_pushed>,
     "catchment_worker_pushed_bytes_total"},
    {"bytes_pulled", 0, "bytes", "payload of weights", OfProgress<&Progress::bytes_pulled>,
     "catchment_worker_pulled_bytes_total"},
    {"bytes_per_second", kInLines, "bytes/s", "payload, both ways", Rate<&Work::bytes_per_second>},
    {"bytes_per_step", kInLines, "bytes", "payload, both ways", Rate<&Work::bytes_per_step>},
    {"exchanges_per_step", kInLines, "",
     "pushes that return weights, and exchanges; with `fragments`, of one fragment each",
     Rate<&Work::exchanges_per_step>},
    {"bytes_read", kInStatus, "bytes", "of samples, from files", OfProgress<&Progress::bytes_read>,
     "catchment_worker_read_bytes_total"},
    {"read_seconds", kInStatus, "s",
     "in which its loader's threads read, decoded and augmented samples, summed over the threads",
     OfProgress<&Progress::read_seconds>, "catchment_worker_read_seconds_total"},
    {"bytes_read_per_second", kInLines, "bytes/s", "of samples, from files",
     Rate<&Work::bytes_read_per_second>},
    {"read_threads", kInLines, "", "how many of its loader's threads were busy", Share<&Work::read>},
    {"staleness_mean", kInStatus, "updates", "of its contributions",
     IfStepped<&WorkerStatus::staleness_mean>},
    {"staleness_p50", kInStatus, "updates", "its median", IfStepped<&WorkerStatus::staleness_p50>},
    {"staleness_p99", kInStatus, "updates", "its 99th percentile", IfStepped<&WorkerStatus::staleness_p99>},
    {"staleness_max", kInStatus, "updates", "its maximum", IfStepped<&WorkerStatus::staleness_max>},
    {"seconds_since_heartbeat", kInStatus, "s", "since its last heartbeat",
     OfWorker<&WorkerStatus::seconds_since_heartbeat>, "catchment_member_heartbeat_age_seconds"},
};

// ----------------------------------------------------------------------------------------------- a server

template <auto get>
Json OfReport(const ShardReading& reading) {
  return reading.report != nullptr ? Json(std::invoke(get, *reading.report)) : Json();
}
template <auto get>
Json OfServer(const ShardReading& reading) {
  return reading.server != nullptr ? Json(std::invoke(get, *reading.server)) : Json();
}
// Returns null for an empty text.
template <Json (*read)(const ShardReading&)>
Json IfSaid(const ShardReading& reading) {
  Json text = read(reading);
  return text == "" ? Json() : text;
}

constexpr Measure<ShardReading> kOfShard[] = {
    {"shard", kInAll, "", "its index", [](const ShardReading& reading) -> Json { return reading.shard; }},
    {"address", kInStatus, "", "HOST:PORT; null until it has registered",
     IfSaid<OfServer<&v1::ServerStatus::address>>},
    {"parameters", kInStatus, "", "of its shard", OfServer<&v1::ServerStatus::parameters>},
    {"version", kInStatus, "updates", "the lowest version of its blocks", OfReport<&ShardReport::version>,
     "catchment_shard_version"},
    {"samples", 0, "samples", "in its updates", OfReport<&ShardReport::samples>,
     "catchment_shard_samples_total"},
    {"bytes_pushed", kInStatus, "bytes", "payload of contributions since its start",
     OfReport<&ShardReport::bytes_pushed>, "catchment_shard_pushed_bytes_total"},
    {"bytes_pulled", kInStatus, "bytes", "payload of weights since its start",
     OfReport<&ShardReport::bytes_pulled>, "catchment_shard_pulled_bytes_total"},
    {"save_error", kInStatus, "", "why it could not save its part of a checkpoint",
     IfSaid<OfReport<&ShardReport::save_error>>},
    {"momentum", kInFiles, "", "as that of the job", OfReport<Momentum>},
    {"implicit_momentum", kInFiles, "", "as that of the job", OfReport<ImplicitMomentum>},
};

// ------------------------------------------------------------------------------------------------- pushes

constexpr Measure<PushReading> kOfPushes[] = {
    {"pushes_applied", kInAll, "pushes", "these and the next ones as those of the job",
     OfPushes<&PushTotals::applied>},
    {"pushes_waiting", kInAll, "pushes", "", OfPushes<&PushTotals::waiting>},
    {"pushes_late", kInAll, "pushes", "", OfPushes<&PushTotals::late>},
    {"pushes_split", kInAll, "pushes", "", OfPushes<&PushTotals::split>},
    {"pushes_non_finite", kInAll, "pushes", "", OfPushes<&PushTotals::non_finite>},
    {"pushes_duplicate", kInAll, "pushes", "", OfPushes<&PushTotals::duplicate>},
    {"staleness_mean", kInFiles, "updates", "",
     [](const PushReading& reading) -> Json { return reading.pushes.staleness.mean(); }},
    {"staleness_p50", kInFiles, "updates", "", Staleness<50>},
    {"staleness_p90", kInFiles, "updates", "", Staleness<90>},
    {"staleness_p99", kInFiles, "updates", "", Staleness<99>},
    {"staleness_max", kInFiles, "updates", "", Staleness<100>},
    {"staleness_seconds_p50", kInFiles, "s", "", StalenessSeconds<50>},
    {"staleness_seconds_p90", kInFiles, "s", "", StalenessSeconds<90>},
    {"staleness_seconds_max", kInFiles, "s", "", OfPushes<&PushTotals::SecondsMax>},
    {"gap_mean", kInFiles, "", "", OfPushes<&PushTotals::GapMean>},
    {"gap_max", kInFiles, "", "", OfPushes<&PushTotals::GapMax>},
    {"share_mean", kOfWorkersOnly, "ratio",
     "with `consistency.quorum`: the worker's mean share of the samples in an update of a block, which is "
     "its "
     "weight in the average",
     [](const PushReading& reading) {
       return reading.quorum_updates > 0
                  ? Json(reading.pushes.share_sum / static_cast<double>(reading.quorum_updates))
                  : Json();
     }},
};

Json PushesOf(const char* of, uint32_t index, unsigned in, const PushReading& reading) {
  Json object = {{of, index}};
  AddMeasures(PushMeasures(), in, reading, &object);
  return object;
}

}  // namespace

Json Momentum(const ShardReport& shard) {
  return shard.momentum().has_momentum() ? Json(shard.momentum().momentum()) : Json();
}

Json ImplicitMomentum(const ShardReport& shard) {
  const v1::MomentumState& state = shard.momentum();
  if (state.has_total_momentum()) return state.total_momentum() - state.momentum();
  if (state.has_momentum() && !state.has_exact_momentum() && state.has_staleness_mean())
    return state.staleness_mean() / (1 + state.staleness_mean());
  return Json();
}

absl::Span<const Measure<WorkerReading>> WorkerMeasures() { return kOfWorker; }
absl::Span<const Measure<ShardReading>> ShardMeasures() { return kOfShard; }
absl::Span<const Measure<PushReading>> PushMeasures() { return kOfPushes; }

Json PushesPerWorker(const Status& status, bool shards) {
  const uint64_t quorum_updates = TotalQuorum(status).value_or(QuorumTotal()).updates();
  std::map<uint32_t, PushReading> workers;
  std::map<uint32_t, Json> by_shard;
  for (const ShardReport& shard : status.shards()) {
    for (const v1::WorkerStatistics& worker : shard.workers()) {
      workers[worker.worker()].pushes.Add(worker, shard.shard() == 0);
      if (!shards) continue;
      PushReading here;
      here.pushes.Add(worker);
      by_shard[worker.worker()].push_back(PushesOf("shard", shard.shard(), kInFiles, here));
    }
  }
  Json list = Json::array();
  for (auto& [worker, reading] : workers) {
    reading.quorum_updates = quorum_updates;
    list.push_back(PushesOf("worker", worker, kInFiles | kOfWorkersOnly, reading));
    if (shards) list.back()["shards"] = by_shard[worker];
  }
  return list;
}

Json PushesPerShard(const Status& status) {
  Json list = Json::array();
  for (const ShardReport& shard : status.shards()) {
    list.push_back(PushesOf("shard", shard.shard(), kInFiles, {TotalPushes(shard)}));
    AddMeasures(ShardMeasures(), kInFiles, {shard.shard(), &shard, nullptr}, &list.back());
  }
  return list;
}

Json RatesPerWorker(const Status& status, const Status& before) {
  Json list = Json::array();
  for (const WorkerStatus& worker : status.workers())
    AddMeasures(WorkerMeasures(), kInLines, {worker, &before}, &list.emplace_back());
  return list;
}

}  // namespace catchment
