#include "common/checkpoint/model_file.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
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

constexpr absl::string_view kMean = ".running_mean", kVariance = ".running_var";

bool IsStatistic(absl::string_view tensor) {
  return absl::EndsWith(tensor, kMean) || absl::EndsWith(tensor, kVariance);
}

using TensorsByName = std::map<absl::string_view, const TensorSpec*>;

// Returns the mistake in the statistic itself; empty if there is none.
std::string DescribeProblem(const v1::Statistic& statistic, const TensorsByName& tensors, bool external) {
  if (tensors.count(statistic.name()) > 0) {
    return "is a weight of the model; rename the parameter, because a statistic must not replace it";
  }
  if (!IsStatistic(statistic.name())) {
    return absl::StrCat("is not a statistic; names end with ", kMean, " or ", kVariance);
  }
  const std::string weight = absl::StrCat(statistic.name().substr(0, statistic.name().rfind('.')), ".weight");
  const auto found = tensors.find(weight);
  if (found == tensors.end()) {
    return external ? "" : absl::StrCat("belongs to no layer: the model has no tensor ", weight);
  }
  const std::vector<int64_t>& shape = found->second->shape;
  if (shape.size() == 1 && shape[0] == statistic.values_size()) return "";
  return absl::StrCat("has ", statistic.values_size(), " values, and ", weight, " is ",
                      absl::StrJoin(shape, "x"), "; they must be equal");
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

absl::StatusOr<std::unique_ptr<ModelWriter>> ModelWriter::Create(const std::string& path, const v1::Job& job,
                                                                 const ParameterLayout& layout,
                                                                 ModelFacts facts) {
  SafetensorsHeader header;
  for (const TensorSpec& tensor : layout.tensors()) header.tensors.push_back({tensor.name, tensor.shape});
  for (const v1::Statistic& statistic : facts.statistics)
    header.tensors.push_back({statistic.name(), {statistic.values_size()}});
  // "format" tells Hugging Face's loaders that the names and layouts are PyTorch's.
  header.metadata = {{"format", "pt"}, {"catchment.job", JobText(job)}};
  if (facts.score) AddScore(*facts.score, &header.metadata);
  ASSIGN_OR_RETURN(auto file, SafetensorsWriter::Create(path, std::move(header)));
  return std::unique_ptr<ModelWriter>(new ModelWriter(std::move(file), std::move(facts.statistics)));
}

absl::Status ModelWriter::Commit() {
  for (const v1::Statistic& statistic : statistics_) {
    RETURN_IF_ERROR(file_->Add(absl::MakeConstSpan(statistic.values())));
  }
  return file_->Commit();
}

absl::Status WriteModel(const std::string& path, const v1::Job& job, const ParameterLayout& layout,
                        absl::Span<const float> weights, const ModelFacts& facts) {
  ASSIGN_OR_RETURN(const auto file, ModelWriter::Create(path, job, layout, facts));
  RETURN_IF_ERROR(file->Add(weights));
  return file->Commit();
}

absl::StatusOr<v1::BestState> ReadModelScore(const std::string& path, const ParameterLayout& layout) {
  ASSIGN_OR_RETURN(const auto file, SafetensorsFile::Open(path));
  std::set<absl::string_view> weights;
  for (const TensorSpec& tensor : layout.tensors()) weights.insert(tensor.name);
  std::vector<TensorSpec> tensors;
  for (const TensorEntry& entry : file->tensors()) {
    // A parameter of a program may be named like a statistic.
    if (weights.count(entry.name) > 0 || !IsStatistic(entry.name))
      tensors.push_back({entry.name, entry.shape});
  }
  const std::string difference = DescribeDifference(layout.tensors(), tensors);
  if (!difference.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": belongs to a different model: ", difference));
  }
  return ScoreIn(path, file->metadata());
}

absl::Status CheckStatistics(const std::vector<TensorSpec>& tensors, bool external,
                             absl::Span<const v1::Statistic* const> statistics) {
  if (statistics.empty()) return absl::OkStatus();
  TensorsByName by_name;
  for (const TensorSpec& tensor : tensors) by_name.emplace(tensor.name, &tensor);
  std::set<absl::string_view> seen;
  for (const v1::Statistic* const statistic : statistics) {
    std::string problem = DescribeProblem(*statistic, by_name, external);
    if (problem.empty() && !seen.insert(statistic->name()).second) problem = "is reported twice";
    if (!problem.empty())
      return absl::InvalidArgumentError(absl::StrCat("statistic \"", statistic->name(), "\" ", problem));
  }
  return absl::OkStatus();
}

namespace {

std::string ShapeText(const std::vector<int64_t>& shape) {
  return shape.empty() ? "a scalar" : absl::StrJoin(shape, "x");
}

absl::Status CheckTensors(const SafetensorsFile& file, const ParameterLayout& layout) {
  for (const TensorSpec& tensor : layout.tensors()) {
    const TensorEntry* const entry = file.Find(tensor.name);
    if (entry == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat(file.path(), ": has no tensor \"", tensor.name,
                       "\", which the model has; tensors must have PyTorch's names"));
    }
    if (entry->shape != tensor.shape) {
      return absl::InvalidArgumentError(absl::StrCat(file.path(), ": tensor \"", tensor.name, "\" is ",
                                                     ShapeText(entry->shape), ", but the model's is ",
                                                     ShapeText(tensor.shape)));
    }
  }
  return absl::OkStatus();
}

absl::Status ReadPart(const SafetensorsFile& file, const TensorSpec& tensor, Range elements, float* out) {
  RETURN_IF_ERROR(file.Read(tensor.name, elements.begin, elements.size(), out));
  if (std::all_of(out, out + elements.size(), [](float value) { return std::isfinite(value); }))
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(file.path(), ": tensor \"", tensor.name, "\" has a NaN or an infinity"));
}

absl::Status Read(const std::string& path, const ParameterLayout& layout, Range range, float* out) {
  ASSIGN_OR_RETURN(const auto file, SafetensorsFile::Open(path));
  RETURN_IF_ERROR(CheckTensors(*file, layout));
  for (size_t i = 0; i < layout.tensors().size(); ++i) {
    const Range tensor = layout.tensor(static_cast<int>(i));
    const Range part = {std::max(range.begin, tensor.begin), std::min(range.end, tensor.end)};
    if (part.size() <= 0) continue;
    RETURN_IF_ERROR(ReadPart(*file, layout.tensors()[i], {part.begin - tensor.begin, part.end - tensor.begin},
                             out + (part.begin - range.begin)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadInitialWeights(const std::string& path, const ParameterLayout& layout, Range range,
                                float* out) {
  const absl::Status status = Read(path, layout, range, out);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("model.initial_weights: ", status.message()));
}

}  // namespace catchment
