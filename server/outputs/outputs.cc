#include "server/outputs/outputs.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/atomic_file.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/model_file.h"
#include "common/measures/measures.h"

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
// A line has at most this number of events, the first ones.
constexpr size_t kMostEvents = 10'000;

using Json = nlohmann::ordered_json;

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
  AddMeasures(JobMeasures(), kInLines, JobReading(status), &line);
  return line;
}

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
  if (!enabled()) return absl::OkStatus();
  const JobReading reading(status);
  Json line;
  AddMeasures(JobMeasures(), kInLines, reading, &line);
  // The loss alone does not suffice, because weights that hardly change may have the same loss.
  const Json score = {line["tested_at_samples"], line["test_loss"]};
  const bool scored = score[0].is_number() && score != last_score_;
  if (!scored && !MetricsAreDue(line["samples"], now)) return absl::OkStatus();
  last_metrics_ = now;
  if (scored) last_score_ = score;
  return WriteMetrics(status, reading, std::move(line));
}

absl::Status Outputs::WriteMetrics(const v1::JobStatus& status, const JobReading& reading, Json line) {
  int64_t statistics = 0;
  for (const v1::ShardReport& shard : status.shards()) statistics += shard.workers_size();
  pause_ =
      std::clamp(line["wall_seconds"].get<double>() * kPartOfTraining, kMetricsSeconds, kMostMetricsSeconds);
  pause_ = std::max(pause_, static_cast<double>(statistics) / kStatisticsPerSecond);
  last_samples_ = line["samples"];
  const bool detailed = lines_ < kDetailedLines || lines_ % kLinesPerDetail == 0;
  ++lines_;
  if (detailed) {
    line["per_worker"] = PushesPerWorker(status, /*shards=*/false);
    line["per_shard"] = PushesPerShard(status);
    line["worker_rates"] = RatesPerWorker(status, last_workers_);
    *last_workers_.mutable_workers() = status.workers();
  }
  const std::optional<double> gap = reading.pushes.gap.MeanSince(last_gap_);
  line["gap_mean"] = gap ? Json(*gap) : Json();
  last_gap_ = reading.pushes.gap;
  line["program"] = ProgramMeans(ProgramMetricsSince(last_program_metrics_, status.program_metrics()));
  last_program_metrics_ = status.program_metrics();
  line["events"] = std::exchange(events_, Json::array());
  // Events name files, whose names may have any bytes.
  const absl::Status written =
      metrics_->Append(line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n");
  if (detailed) line["staleness_counts"] = reading.pushes.staleness.counts();
  const absl::Status events = tensorboard_.Write(line, unix_time_());
  return written.ok() ? events : written;
}

void Outputs::NoteEvent(const std::string& text, const std::string& kind, std::optional<uint32_t> worker,
                        double wall_seconds) {
  if (!enabled() || events_.size() >= kMostEvents) return;
  Json event = {{"wall_seconds", wall_seconds}, {"event", text}};
  if (!kind.empty()) event["kind"] = kind;
  if (worker) event["worker"] = *worker;
  events_.push_back(std::move(event));
}

std::string SummaryJson(const v1::JobStatus& status, const RunFacts& facts) {
  Json summary;
  AddMeasures(JobMeasures(), kInSummary, JobReading(status, nullptr, facts), &summary);
  summary["per_worker"] = PushesPerWorker(status, /*shards=*/true);
  summary["per_shard"] = PushesPerShard(status);
  return summary.dump(2) + "\n";
}

absl::Status Outputs::WriteSummary(const v1::JobStatus& status, const RunFacts& facts) {
  if (!enabled()) return absl::OkStatus();
  // A job ends with its summary even if there is no space for its last events.
  if (!events_.empty()) WriteMetrics(status, JobReading(status), JobMetrics(status)).IgnoreError();
  return WriteAtomically(directory_ + "/summary.json", SummaryJson(status, facts));
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
