#include "cli/report/run_result.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/base/text.h"
#include "common/job/algorithm_facts.h"

namespace catchment {
namespace {

using Json = nlohmann::json;

std::optional<double> Number(const Json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

double NumberOr0(const Json& object, const char* key) { return Number(object, key).value_or(0); }

// There are more lines of metrics than scores; they repeat the last one.
void AddScore(const TestScore& score, std::vector<TestScore>* scores) {
  if (scores->empty() || scores->back().samples < score.samples) scores->push_back(score);
}

std::vector<TestScore> ReadScores(const std::string& metrics) {
  std::vector<TestScore> scores;
  for (const std::string& text : std::vector<std::string>(absl::StrSplit(metrics, '\n'))) {
    const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object() || !Number(line, "test_accuracy").has_value()) continue;
    AddScore({NumberOr0(line, "tested_at_seconds"), NumberOr0(line, "tested_at_samples"),
              NumberOr0(line, "test_accuracy"), NumberOr0(line, "test_loss")},
             &scores);
  }
  return scores;
}

void ReadStaleness(const Json& summary, RunResult* result) {
  result->staleness_mean = NumberOr0(summary, "staleness_mean");
  result->staleness_p50 = NumberOr0(summary, "staleness_p50");
  result->staleness_p99 = NumberOr0(summary, "staleness_p99");
  result->staleness_max = NumberOr0(summary, "staleness_max");
  const auto counts = summary.find("staleness_counts");
  if (counts == summary.end()) return;
  for (const Json& pair : *counts) {
    const bool readable =
        pair.is_array() && pair.size() == 2 && pair[0].is_number_unsigned() && pair[1].is_number_unsigned();
    if (readable) result->staleness[pair[0].get<uint64_t>()] = pair[1].get<uint64_t>();
  }
}

}  // namespace

std::string TextOrEmpty(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? OneLine(found->get<std::string>()) : "";
}

bool HasDiverged(const Json& summary) {
  return TextOrEmpty(summary, "phase") == "FAILED" &&
         absl::StrContains(TextOrEmpty(summary, "reason"), kTrainingHasDiverged);
}

void ReadResult(const Json& summary, const std::string& metrics, RunResult* result) {
  result->seconds = NumberOr0(summary, "wall_seconds");
  result->samples = NumberOr0(summary, "samples");
  result->updates = NumberOr0(summary, "updates");
  result->samples_per_second = NumberOr0(summary, "samples_per_second");
  result->accuracy = Number(summary, "test_accuracy");
  result->loss = Number(summary, "test_loss");
  result->compute_seconds = NumberOr0(summary, "compute_seconds");
  result->push_seconds = NumberOr0(summary, "push_seconds");
  result->pull_seconds = NumberOr0(summary, "pull_seconds");
  result->data_seconds = NumberOr0(summary, "data_seconds");
  result->goodput = Number(summary, "goodput");
  result->uptime = Number(summary, "uptime");
  result->bytes_pushed = NumberOr0(summary, "bytes_pushed");
  result->bytes_pulled = NumberOr0(summary, "bytes_pulled");
  result->device = TextOrEmpty(summary, "device");
  result->reason = TextOrEmpty(summary, "reason");
  ReadStaleness(summary, result);
  result->scores = ReadScores(metrics);
}

std::optional<Crossing> FirstReached(const std::vector<TestScore>& scores, double accuracy) {
  for (size_t i = 0; i < scores.size(); ++i) {
    const TestScore& now = scores[i];
    if (now.accuracy < accuracy) continue;
    if (i == 0) return Crossing{now.seconds, now.samples};
    const TestScore& before = scores[i - 1];
    const double share = (accuracy - before.accuracy) / (now.accuracy - before.accuracy);
    return Crossing{before.seconds + share * (now.seconds - before.seconds),
                    before.samples + share * (now.samples - before.samples)};
  }
  return std::nullopt;
}

double BestAccuracy(const RunResult& run) {
  double best = run.accuracy.value_or(0);
  for (const TestScore& score : run.scores) best = std::max(best, score.accuracy);
  return best;
}

}  // namespace catchment
