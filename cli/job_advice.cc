// Warnings that follow from a job alone, before it trains.
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/advice.h"
#include "common/job/algorithm_facts.h"
#include "common/job/presets.h"
#include "common/text.h"

namespace catchment {
namespace {

// The learning rates of asynchronous presets were chosen with up to this number of workers.
constexpr int kPresetWorkers = 8;

// Returns the learning rate above which no optimizer of the kind is known to train.
double HighestRate(v1::Optimizer::Kind kind) {
  switch (kind) {
    case v1::Optimizer::SGD:
      return 10;
    case v1::Optimizer::LARS:  // multiplies it by the trust coefficient
      return 100;
    default:
      return 1;
  }
}

void FindHighMomentum(const v1::Job& job, std::vector<Warning>* warnings) {
  const double tau = ExpectedStaleness(job), momentum = job.optimizer().momentum();
  const bool applies = job.algorithm().contribution().has_gradient() &&
                       job.algorithm().compensation().has_none() &&
                       job.optimizer().kind() == v1::Optimizer::SGD;
  if (!applies || tau <= 0 || momentum <= 0) return;
  const double total = TotalMomentum(tau, momentum);
  if (total <= kMaxTotalMomentum) return;
  const double most = 1 - (1 - kMaxTotalMomentum) * (1 + tau);
  std::string lower = most > 0 ? absl::StrFormat("Lower optimizer.momentum to %.2f", most)
                               : std::string("Set optimizer.momentum to 0 and lower the learning rate");
  const std::string preset =
      job.workers() <= kPresetWorkers ? "staleness_aware, dana or sync" : "hybrid or sync";
  warnings->push_back(
      {.code = "momentum_high",
       .measured = total,
       .bound = kMaxTotalMomentum,
       .found = absl::StrFormat(
           "optimizer.momentum %.2f and an expected staleness of %s act like a momentum of %.3f", momentum,
           Short(tau, 3), total),
       .why = "Gradients from old weights add momentum. Training becomes inaccurate, or diverges.",
       .advice = absl::StrCat(lower, ", use fewer workers, or take the preset ", preset, ".")});
}

void FindRateForFewerWorkers(const v1::Job& job, std::vector<Warning>* warnings) {
  const std::optional<double> rate = RateForManyWorkers(job);
  if (!rate || job.optimizer().learning_rate() <= *rate * (1 + 1e-6)) return;
  warnings->push_back(
      {.code = "learning_rate_for_workers",
       .measured = job.optimizer().learning_rate(),
       .bound = *rate,
       .found = absl::StrFormat("optimizer.learning_rate is %s with %d asynchronous workers",
                                Short(job.optimizer().learning_rate(), 3), job.workers()),
       .why = absl::StrFormat(
           "The presets are made for up to %d. With 15 workers and more, staleness_aware and dana "
           "diverged at their usual rates.",
           kPresetWorkers),
       .advice =
           absl::StrFormat("Try a learning rate of %s, %d / workers of the preset's, or the preset hybrid or "
                           "sync.",
                           Short(*rate, 3), kPresetWorkers)});
}

void FindHighRate(const v1::Job& job, std::vector<Warning>* warnings) {
  const double rate = job.optimizer().learning_rate(), highest = HighestRate(job.optimizer().kind());
  if (rate <= highest) return;
  warnings->push_back({.code = "learning_rate_high",
                       .measured = rate,
                       .bound = highest,
                       .found = absl::StrCat("optimizer.learning_rate is ", Short(rate), "; with ",
                                             v1::Optimizer::Kind_Name(job.optimizer().kind()), " ",
                                             Short(highest), " is already high"),
                       .why = "Training is likely to diverge.",
                       .advice = "Lower optimizer.learning_rate; each preset has a default."});
}

}  // namespace

double TotalMomentum(double staleness, double momentum) { return 1 - (1 - momentum) / (1 + staleness); }

std::optional<double> RateForManyWorkers(const v1::Job& job) {
  const v1::Contribution& contribution = job.algorithm().contribution();
  if (!contribution.has_gradient() && !contribution.has_look_ahead()) return std::nullopt;
  if (job.workers() <= kPresetWorkers || ExpectedStaleness(job) < kPresetWorkers) return std::nullopt;
  const Preset* const preset = FindPreset(job.algorithm().preset());
  if (preset == nullptr || preset->optimizer.kind() != job.optimizer().kind()) return std::nullopt;
  return preset->optimizer.learning_rate() * kPresetWorkers / job.workers();
}

std::vector<Warning> AdviseJob(const v1::Job& job) {
  std::vector<Warning> warnings;
  FindHighRate(job, &warnings);
  FindHighMomentum(job, &warnings);
  FindRateForFewerWorkers(job, &warnings);
  return warnings;
}

}  // namespace catchment
