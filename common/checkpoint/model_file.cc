#include "common/checkpoint/model_file.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/checkpoint/safetensors.h"
#include "common/job/job_text.h"

namespace catchment {
namespace {

constexpr char kEvaluation[] = "catchment.evaluation";
constexpr char kSamples[] = "catchment.samples";
constexpr char kLoss[] = "catchment.test_loss";
constexpr char kAccuracy[] = "catchment.test_accuracy";

using Metadata = std::map<std::string, std::string>;

// Returns a text that is parsed as the same number.
std::string Exact(double value) { return absl::StrFormat("%.17g", value); }

void AddScore(const v1::BestState& score, Metadata* metadata) {
  (*metadata)[kEvaluation] = absl::StrCat(score.evaluation());
  (*metadata)[kSamples] = absl::StrCat(score.samples());
  (*metadata)[kLoss] = Exact(score.loss());
  (*metadata)[kAccuracy] = Exact(score.accuracy());
}

bool IsStatistic(const std::string& tensor) {
  return absl::EndsWith(tensor, ".running_mean") || absl::EndsWith(tensor, ".running_var");
}

absl::StatusOr<v1::BestState> ScoreIn(const std::string& path, const Metadata& metadata) {
  const auto text = [&metadata](const char* key) {
    const auto found = metadata.find(key);
    return found == metadata.end() ? std::string() : found->second;
  };
  if (text(kEvaluation).empty()) {
    return absl::NotFoundError(absl::StrCat(path, ": has no score of an evaluation"));
  }
  uint64_t evaluation, samples;
  double loss, accuracy;
  if (!absl::SimpleAtoi(text(kEvaluation), &evaluation) || !absl::SimpleAtoi(text(kSamples), &samples) ||
      !absl::SimpleAtod(text(kLoss), &loss) || !absl::SimpleAtod(text(kAccuracy), &accuracy)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": its evaluation's score is damaged"));
  }
  v1::BestState score;
  score.set_evaluation(evaluation);
  score.set_samples(samples);
  score.set_loss(loss);
  score.set_accuracy(accuracy);
  return score;
}

}  // namespace

absl::Status WriteModel(const std::string& path, const v1::Job& job, const ParameterLayout& layout,
                        absl::Span<const float> weights, const ModelFacts& facts) {
  std::vector<TensorView> views;
  for (size_t i = 0; i < layout.tensors().size(); ++i) {
    const TensorSpec& tensor = layout.tensors()[i];
    const Range range = layout.tensor(static_cast<int>(i));
    views.push_back({tensor.name, tensor.shape, weights.subspan(range.begin, range.size())});
  }
  for (const v1::Statistic& statistic : facts.statistics) {
    views.push_back({statistic.name(), {statistic.values_size()}, absl::MakeConstSpan(statistic.values())});
  }
  // "format" tells Hugging Face's loaders that the names and layouts are PyTorch's.
  Metadata metadata = {{"format", "pt"}, {"catchment.job", JobText(job)}};
  if (facts.score) AddScore(*facts.score, &metadata);
  return WriteSafetensors(path, views, metadata);
}

absl::StatusOr<v1::BestState> ReadModelScore(const std::string& path, const ParameterLayout& layout) {
  const auto file = SafetensorsFile::Open(path);
  if (!file.ok()) return file.status();
  std::vector<TensorSpec> tensors;
  for (const TensorEntry& entry : (*file)->tensors()) {
    if (!IsStatistic(entry.name)) tensors.push_back({entry.name, entry.shape});
  }
  const std::string difference = DescribeDifference(layout.tensors(), tensors);
  if (!difference.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": belongs to a different model: ", difference));
  }
  return ScoreIn(path, (*file)->metadata());
}

}  // namespace catchment
