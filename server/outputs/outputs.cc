#include "server/outputs/outputs.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/atomic_file.h"
#include "common/base/noise_scale.h"
#include "common/base/quorum_total.h"
#include "common/base/random_id.h"
#include "common/base/staleness.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/model_file.h"
#include "server/outputs/push_report.h"

namespace catchment {
namespace {

// The time from one line to the next: a second in the first hour of training, and then this part of the time
// of training, up to a limit, so that the files of a month fit on a disk.
constexpr double kMetricsSeconds = 1, kMostMetricsSeconds = 10;
constexpr double kPartOfTraining = 1.0 / 3600;
// After this number of lines, only one in kLinesPerDetail has the values of each worker and server.
constexpr uint64_t kDetailedLines = 600, kLinesPerDetail = 10;
// Writing a line takes a few microseconds per worker and shard; with many of them lines are written less
// often.
constexpr double kStatisticsPerSecond = 10'000;

using Json = nlohmann::ordered_json;

// Returns null if nothing was measured, because JSON has no NaN.
Json TestValue(const v1::JobStatus& status, double value) {
  return status.test_samples() > 0 ? Json(value) : Json();
}

// Returns null for real-valued targets, which have no accuracy.
Json TestAccuracy(const v1::JobStatus& status) {
  return status.has_accuracy() ? TestValue(status, status.test_accuracy()) : Json();
}

Json PlateauFactor(const v1::JobStatus& status) {
  return status.has_plateau_factor() ? Json(status.plateau_factor()) : Json();
}

// Adds the best evaluation so far, and why training ended early.
void AddBest(const v1::JobStatus& status, Json* object) {
  const bool known = status.best_evaluation() > 0;
  const auto value = [known](auto number) { return known ? Json(number) : Json(); };
  (*object)["best_evaluation"] = value(status.best_evaluation());
  (*object)["best_test_loss"] = value(status.best_test_loss());
  (*object)["best_test_accuracy"] = status.has_accuracy() ? value(status.best_test_accuracy()) : Json();
  (*object)["best_at_samples"] = value(status.best_at_samples());
  (*object)["evaluations_since_best"] = status.evaluations_since_best();
  (*object)["ended_early"] = status.ended_early().empty() ? Json() : Json(status.ended_early());
}

// Adds the gradient noise scale and its numerator and denominator.
void AddNoise(const v1::JobStatus& status, Json* object) {
  const std::optional<v1::GradientNoise> noise = TotalNoise(status);
  const std::optional<double> scale = noise ? NoiseScale(*noise) : std::nullopt;
  (*object)["noise_scale"] = scale ? Json(*scale) : Json();
  (*object)["noise_updates"] = noise ? Json(noise->updates()) : Json();
  (*object)["noise_trace"] = noise ? Json(noise->trace()) : Json();
  (*object)["noise_squared_gradient"] = noise ? Json(noise->squared_gradient()) : Json();
}

Json ProgramMeans(const ProgramMetrics& metrics) {
  Json means = Json::object();
  for (const v1::ProgramMetric& metric : metrics) {
    means[metric.name()] = metric.sum() / static_cast<double>(metric.count());
  }
  return means;
}

}  // namespace

Json JobMetrics(const v1::JobStatus& status) {
  Json line;
  line["wall_seconds"] = status.wall_seconds();
  line["epochs"] = status.epochs();
  line["samples"] = status.samples();
  line["updates"] = status.updates();
  line["samples_per_second"] = status.samples_per_second();
  line["train_loss"] = status.train_loss();
  line["learning_rate"] = status.learning_rate();
  line["train_accuracy"] = status.has_accuracy() ? Json(status.train_accuracy()) : Json();
  line["test_loss"] = TestValue(status, status.test_loss());
  line["test_accuracy"] = TestAccuracy(status);
  line["tested_at_samples"] = TestValue(status, status.tested_at_samples());
  line["tested_at_seconds"] = TestValue(status, status.tested_at_seconds());
  AddBest(status, &line);
  line["staleness_mean"] = status.staleness_mean();
  line["staleness_p50"] = status.staleness_p50();
  line["staleness_p99"] = status.staleness_p99();
  line["plateau_factor"] = PlateauFactor(status);
  line["pushes_applied"] = status.pushes_applied();
  line["pushes_late"] = status.pushes_late();
  line["pushes_split"] = status.pushes_split();
  line["pushes_non_finite"] = status.pushes_non_finite();
  line["pushes_duplicate"] = status.pushes_duplicate();
  line["bytes_pushed"] = status.bytes_pushed();
  line["bytes_pulled"] = status.bytes_pulled();
  line["bytes_read"] = status.bytes_read();
  line["read_seconds"] = status.read_seconds();
  line["workers"] = status.workers_size();
  line["recoveries"] = status.recoveries();
  line["updates_computed_again"] = status.updates_computed_again();
  AddAsynchrony(status, &line);
  AddQuorum(status, &line);
  AddNoise(status, &line);
  return line;
}

namespace {

// Returns the staleness of each present and former worker over all shards.
Json StalenessPerWorker(const v1::JobStatus& status) {
  std::map<uint32_t, StalenessDistribution> distributions;
  for (const v1::ShardReport& shard : status.shards()) {
    for (const v1::WorkerStatistics& worker : shard.workers()) distributions[worker.worker()].Add(worker);
  }
  Json list = Json::array();
  for (const auto& [worker, distribution] : distributions) {
    list.push_back({{"worker", worker},
                    {"mean", distribution.mean()},
                    {"p50", distribution.quantile(0.5)},
                    {"p99", distribution.quantile(0.99)},
                    {"max", distribution.max()}});
  }
  return list;
}

Json ToJson(const std::map<uint64_t, uint64_t>& counts) {
  Json list = Json::array();
  for (const auto& [value, count] : counts) list.push_back({value, count});
  return list;
}

}  // namespace

double Outputs::SystemTime() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

absl::StatusOr<std::unique_ptr<Outputs>> Outputs::Open(const std::string& directory, UnixTime unix_time) {
  std::unique_ptr<Outputs> outputs(new Outputs(directory, std::move(unix_time)));
  if (directory.empty()) return outputs;
  RETURN_IF_ERROR(CreateDirectories(directory));
  RemoveTemporaries(directory);
  const std::string path = directory + "/metrics.jsonl";
  ASSIGN_OR_RETURN(outputs->metrics_, AppendedFile::OpenLines(path));
  return outputs;
}

bool Outputs::MetricsAreDue(uint64_t samples, double now) const {
  return enabled() && samples != last_samples_ && now - last_metrics_ >= pause_;
}

absl::Status Outputs::MaybeWriteMetrics(const v1::JobStatus& status, double now) {
  // The loss alone does not suffice, because weights that hardly change may have the same loss.
  const bool scored = status.test_samples() > 0 && (status.test_loss() != last_test_loss_ ||
                                                    status.tested_at_samples() != last_tested_at_);
  if (!enabled() || (!scored && !MetricsAreDue(status.samples(), now))) return absl::OkStatus();
  last_metrics_ = now;
  int64_t statistics = 0;
  for (const v1::ShardReport& shard : status.shards()) statistics += shard.workers_size();
  pause_ = std::clamp(status.wall_seconds() * kPartOfTraining, kMetricsSeconds, kMostMetricsSeconds);
  pause_ = std::max(pause_, static_cast<double>(statistics) / kStatisticsPerSecond);
  last_samples_ = status.samples();
  if (scored) {
    last_test_loss_ = status.test_loss();
    last_tested_at_ = status.tested_at_samples();
  }
  const bool detailed = lines_ < kDetailedLines || lines_ % kLinesPerDetail == 0;
  ++lines_;
  Json line = JobMetrics(status);
  if (detailed) {
    line["per_worker"] = PushesPerWorker(status, /*shards=*/false);
    line["per_shard"] = PushesPerShard(status);
  }
  const GapTotal gap = TotalGap(status);
  line["gap_mean"] = gap.count > last_gap_.count
                         ? Json((gap.sum - last_gap_.sum) / static_cast<double>(gap.count - last_gap_.count))
                         : Json();
  last_gap_ = gap;
  line["program"] = ProgramMeans(ProgramMetricsSince(last_program_metrics_, status.program_metrics()));
  last_program_metrics_ = status.program_metrics();
  if (detailed) line["worker_rates"] = worker_rates_.Update(status);
  const absl::Status written = metrics_->Append(line.dump() + "\n");
  const absl::Status events = tensorboard_.Write(
      line, detailed ? TotalStaleness(status).counts() : std::map<uint64_t, uint64_t>(), unix_time_());
  return written.ok() ? events : written;
}

std::string SummaryJson(const v1::Job& job, const v1::JobStatus& status, const Outputs::SummaryFacts& facts) {
  const double seconds = status.wall_seconds();
  Json summary;
  summary["job"] = job.name();
  summary["phase"] = v1::JobStatus::Phase_Name(status.phase());
  summary["reason"] = status.reason();
  summary["algorithm"] = job.algorithm().preset();
  summary["servers"] = facts.servers;
  summary["workers"] = job.workers();
  summary["device"] = absl::StrJoin(facts.devices, "; ");
  summary["train_samples"] = status.train_samples();
  summary["test_samples"] = status.test_samples();
  summary["data_checksum"] = status.data_checksum() > 0 ? Json(FormatId(status.data_checksum())) : Json();
  summary["epochs"] = status.epochs();
  summary["samples"] = status.samples();
  summary["repeated_samples"] = status.repeated_samples();
  summary["updates"] = status.updates();
  summary["recoveries"] = status.recoveries();
  summary["updates_computed_again"] = status.updates_computed_again();
  summary["wall_seconds"] = seconds;
  summary["samples_per_second"] = seconds > 0 ? status.samples() / seconds : 0.0;
  summary["test_accuracy"] = TestAccuracy(status);
  summary["test_loss"] = TestValue(status, status.test_loss());
  AddBest(status, &summary);
  summary["best_weights"] = facts.best_weights > 0 ? Json(facts.best_weights) : Json();
  summary["staleness_mean"] = status.staleness_mean();
  summary["staleness_p50"] = status.staleness_p50();
  summary["staleness_p99"] = status.staleness_p99();
  summary["staleness_max"] = status.staleness_max();
  summary["staleness_per_worker"] = StalenessPerWorker(status);
  summary["staleness_counts"] = ToJson(TotalStaleness(status).counts());
  summary["pushes_applied"] = status.pushes_applied();
  summary["pushes_late"] = status.pushes_late();
  summary["pushes_split"] = status.pushes_split();
  summary["pushes_non_finite"] = status.pushes_non_finite();
  summary["pushes_duplicate"] = status.pushes_duplicate();
  summary["bytes_pushed"] = status.bytes_pushed();
  summary["bytes_pulled"] = status.bytes_pulled();
  summary["computed_samples"] = facts.computed_samples;
  summary["compute_seconds"] = status.compute_seconds();
  summary["push_seconds"] = status.push_seconds();
  summary["pull_seconds"] = status.pull_seconds();
  summary["data_seconds"] = status.data_seconds();
  summary["bytes_read"] = status.bytes_read();
  summary["read_seconds"] = status.read_seconds();
  const bool measured = status.round_trip_p50_us() > 0;
  summary["round_trip_p50_us"] = measured ? Json(status.round_trip_p50_us()) : Json();
  summary["round_trip_p99_us"] = measured ? Json(status.round_trip_p99_us()) : Json();
  summary["last_checkpoint"] = status.last_checkpoint();
  summary["plateau_factor"] = PlateauFactor(status);
  if (status.has_processor_joules()) summary["processor_joules"] = status.processor_joules();
  if (status.has_gpu_joules()) summary["gpu_joules"] = status.gpu_joules();
  if (status.energy_hosts() > 0) summary["energy_hosts"] = status.energy_hosts();
  if (facts.goodput) summary["goodput"] = *facts.goodput;
  if (facts.uptime) summary["uptime"] = *facts.uptime;
  if (facts.busiest_second_bytes) summary["busiest_second_bytes"] = *facts.busiest_second_bytes;
  AddAsynchrony(status, &summary);
  AddQuorum(status, &summary);
  const std::optional<QuorumTotal> quorum = TotalQuorum(status);
  summary["merged_counts"] = quorum ? ToJson(quorum->merged) : Json();
  AddNoise(status, &summary);
  summary["per_worker"] = PushesPerWorker(status, /*shards=*/true);
  summary["per_shard"] = PushesPerShard(status);
  return summary.dump(2) + "\n";
}

absl::Status Outputs::WriteSummary(const v1::Job& job, const v1::JobStatus& status,
                                   const SummaryFacts& facts) {
  if (!enabled()) return absl::OkStatus();
  return WriteAtomically(directory_ + "/summary.json", SummaryJson(job, status, facts));
}

absl::Status Outputs::WriteModel(const v1::Job& job, const ParameterLayout& layout, const ModelFacts& facts,
                                 absl::FunctionRef<absl::Status(ModelWriter*)> add) {
  if (!enabled()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const auto model,
                   ModelWriter::Create(directory_ + "/model.safetensors", job, layout, facts));
  RETURN_IF_ERROR(add(model.get()));
  return model->Commit();
}

absl::Status Outputs::WriteBest(const v1::Job& job, const ParameterLayout& layout,
                                absl::Span<const float> weights, const ModelFacts& facts) const {
  return catchment::WriteModel(best_path(), job, layout, weights, facts);
}

absl::StatusOr<v1::BestState> Outputs::ReadBest(const ParameterLayout& layout) const {
  if (!enabled()) return absl::NotFoundError("there is no output directory");
  return ReadModelScore(best_path(), layout);
}

}  // namespace catchment
