#include "server/outputs/push_report.h"

#include <algorithm>
#include <map>
#include <optional>

#include "common/base/latency_histogram.h"
#include "common/base/quorum_total.h"
#include "common/base/staleness.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;

// Accumulates the statistics of pushes of some workers to some shards.
class Tally {
 public:
  // All shards receive all pushes, so the fates of one shard suffice.
  void AddFates(const v1::WorkerStatistics& worker) {
    applied_ += worker.applied();
    waiting_ += worker.waiting();
    late_ += worker.late();
    split_ += worker.split();
    non_finite_ += worker.non_finite();
    duplicate_ += worker.duplicate();
  }

  void AddStaleness(const v1::WorkerStatistics& worker) {
    versions_.Add(worker);
    const int entries = std::min(worker.staleness_us_size(), worker.staleness_us_counts_size());
    for (int i = 0; i < entries; ++i) {
      microseconds_.Add(static_cast<double>(worker.staleness_us(i)), worker.staleness_us_counts(i));
    }
    max_seconds_ = std::max(max_seconds_, worker.staleness_seconds_max());
    gap_.count += worker.gap_count();
    gap_.sum += worker.gap_sum();
    max_gap_ = std::max(max_gap_, worker.gap_max());
    shares_ += worker.share_sum();
  }

  void WriteFates(Json* object) const {
    (*object)["pushes_applied"] = applied_;
    (*object)["pushes_waiting"] = waiting_;
    (*object)["pushes_late"] = late_;
    (*object)["pushes_split"] = split_;
    (*object)["pushes_non_finite"] = non_finite_;
    (*object)["pushes_duplicate"] = duplicate_;
  }

  void WriteVersions(Json* object) const {
    (*object)["staleness_mean"] = versions_.mean();
    (*object)["staleness_p50"] = versions_.quantile(0.5);
    (*object)["staleness_p90"] = versions_.quantile(0.9);
    (*object)["staleness_p99"] = versions_.quantile(0.99);
    (*object)["staleness_max"] = versions_.max();
  }

  // The middle of a bucket may exceed all values in it, so it is limited to the maximum.
  void WriteSecondsAndGap(Json* object) const {
    const bool timed = microseconds_.count() > 0;
    const auto quantile = [&](double share) {
      return std::min(microseconds_.Quantile(share) / 1e6, max_seconds_);
    };
    (*object)["staleness_seconds_p50"] = timed ? Json(quantile(0.5)) : Json();
    (*object)["staleness_seconds_p90"] = timed ? Json(quantile(0.9)) : Json();
    (*object)["staleness_seconds_max"] = timed ? Json(max_seconds_) : Json();
    (*object)["gap_mean"] = gap_.count > 0 ? Json(gap_.sum / static_cast<double>(gap_.count)) : Json();
    (*object)["gap_max"] = gap_.count > 0 ? Json(max_gap_) : Json();
  }

  Json ToJson(const char* of, uint32_t index) const {
    Json object = {{of, index}};
    WriteFates(&object);
    WriteVersions(&object);
    WriteSecondsAndGap(&object);
    return object;
  }

  uint64_t waiting() const { return waiting_; }
  const GapTotal& gap() const { return gap_; }
  double shares() const { return shares_; }

 private:
  uint64_t applied_ = 0, waiting_ = 0, late_ = 0, split_ = 0, non_finite_ = 0, duplicate_ = 0;
  StalenessDistribution versions_;
  LatencyHistogram microseconds_;
  double max_seconds_ = 0;
  GapTotal gap_;
  double max_gap_ = 0;
  double shares_ = 0;
};

Tally OfAll(const v1::JobStatus& status) {
  Tally tally;
  for (const v1::ShardReport& shard : status.shards()) {
    for (const v1::WorkerStatistics& worker : shard.workers()) {
      if (shard.shard() == 0) tally.AddFates(worker);
      tally.AddStaleness(worker);
    }
  }
  return tally;
}

// Returns the momentum that asynchrony adds. In the open loop this is the prediction of the model from the
// measured staleness; in the closed loop it is the measured total momentum minus the momentum that was set.
Json ImplicitMomentum(const v1::MomentumState& state) {
  if (state.has_total_momentum()) return state.total_momentum() - state.momentum();
  if (state.has_momentum() && !state.has_exact_momentum() && state.has_staleness_mean())
    return state.staleness_mean() / (1 + state.staleness_mean());
  return Json();
}

void AddMomentum(const v1::ShardReport& shard, Json* object) {
  const v1::MomentumState& state = shard.momentum();
  (*object)["momentum"] = state.has_momentum() ? Json(state.momentum()) : Json();
  (*object)["implicit_momentum"] = ImplicitMomentum(state);
}

}  // namespace

Json PushesPerWorker(const v1::JobStatus& status, bool shards) {
  std::map<uint32_t, Tally> tallies;
  std::map<uint32_t, Json> by_shard;
  for (const v1::ShardReport& shard : status.shards()) {
    for (const v1::WorkerStatistics& worker : shard.workers()) {
      Tally& tally = tallies[worker.worker()];
      if (shard.shard() == 0) tally.AddFates(worker);
      tally.AddStaleness(worker);
      if (!shards) continue;
      Tally here;
      here.AddFates(worker);
      here.AddStaleness(worker);
      by_shard[worker.worker()].push_back(here.ToJson("shard", shard.shard()));
    }
  }
  const std::optional<QuorumTotal> quorum = TotalQuorum(status);
  Json list = Json::array();
  for (const auto& [worker, tally] : tallies) {
    list.push_back(tally.ToJson("worker", worker));
    list.back()["share_mean"] =
        quorum ? Json(tally.shares() / static_cast<double>(quorum->updates())) : Json();
    if (shards) list.back()["shards"] = by_shard[worker];
  }
  return list;
}

Json PushesPerShard(const v1::JobStatus& status) {
  Json list = Json::array();
  for (const v1::ShardReport& shard : status.shards()) {
    Tally tally;
    for (const v1::WorkerStatistics& worker : shard.workers()) {
      tally.AddFates(worker);
      tally.AddStaleness(worker);
    }
    list.push_back(tally.ToJson("shard", shard.shard()));
    AddMomentum(shard, &list.back());
  }
  return list;
}

void AddAsynchrony(const v1::JobStatus& status, Json* object) {
  const Tally tally = OfAll(status);
  (*object)["pushes_waiting"] = tally.waiting();
  tally.WriteSecondsAndGap(object);
  AddMomentum(status.shards_size() > 0 ? status.shards(0) : v1::ShardReport(), object);
}

void AddQuorum(const v1::JobStatus& status, Json* object) {
  const std::optional<QuorumTotal> quorum = TotalQuorum(status);
  const auto value = [&quorum](auto number) { return quorum ? Json(number) : Json(); };
  const QuorumTotal total = quorum.value_or(QuorumTotal());
  (*object)["closed_by_all"] = value(total.by_all);
  (*object)["closed_by_grace"] = value(total.by_grace);
  (*object)["closed_by_loss"] = value(total.by_loss);
  (*object)["grace_seconds_mean"] = value(total.grace_seconds_mean());
  (*object)["merged_mean"] = value(total.merged_mean());
}

GapTotal TotalGap(const v1::JobStatus& status) { return OfAll(status).gap(); }

}  // namespace catchment
