// Warnings that follow from a job alone, before it trains.
#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/live/advice.h"
#include "common/base/text.h"
#include "common/job/algorithm_facts.h"
#include "common/job/data_sources.h"
#include "common/job/presets.h"

namespace catchment {
namespace {

// A learning rate that is so many times that of the preset at the same staleness is far above it.
constexpr double kFarAbove = 2;
// A job of fewer exchanges ends before they have had their effect.
constexpr double kFewRounds = 10;

// Returns the learning rate above which no optimizer of the kind is known to train.
double HighestRate(v1::Optimizer::Kind kind) {
  switch (kind) {
    case v1::Optimizer::SGD:
      return 10;
    case v1::Optimizer::LARC:
    case v1::Optimizer::LARS:  // multiplies it by the trust coefficient
      return 100;
    default:
      return 1;
  }
}

// Returns true unless the learning rate is known to train with the job's momentum at the expected staleness.
bool IsFarAbove(const v1::Job& job) {
  const std::optional<double> rate = RateAtExpectedStaleness(job);
  return !rate || job.optimizer().learning_rate() > *rate * kFarAbove;
}

void FindHighMomentum(const v1::Job& job, std::vector<Warning>* warnings) {
  const double tau = ExpectedStaleness(job), momentum = job.optimizer().momentum();
  const bool applies = job.algorithm().contribution().has_gradient() &&
                       job.algorithm().compensation().has_none() &&
                       job.optimizer().kind() == v1::Optimizer::SGD;
  if (!applies || tau <= 0 || momentum <= 0) return;
  const double total = TotalMomentum(tau, momentum);
  if (total <= kMaxTotalMomentum || !IsFarAbove(job)) return;
  const double most = 1 - (1 - kMaxTotalMomentum) * (1 + tau);
  std::string lower = most > 0 ? absl::StrFormat("Lower optimizer.momentum to %.2f", most)
                               : std::string("Set optimizer.momentum to 0 and lower the learning rate");
  warnings->push_back(
      {.code = "momentum_high",
       .measured = total,
       .bound = kMaxTotalMomentum,
       .found = absl::StrFormat(
           "optimizer.momentum %.2f and an expected staleness of %s act like a momentum of %.3f", momentum,
           Short(tau, 3), total),
       .why = "Gradients from old weights add momentum, so training becomes inaccurate or diverges.",
       .advice =
           absl::StrCat(lower, ", use fewer workers, or use the preset staleness_aware, dana or sync.")});
}

// Returns true if consistency and contribution are of the same kinds.
bool SameAxes(const v1::Algorithm& a, const v1::Algorithm& b) {
  return a.consistency().kind_case() == b.consistency().kind_case() &&
         a.contribution().kind_case() == b.contribution().kind_case();
}

// Returns the size of a step in units of the gradient, once momentum has built up, at the staleness tau.
double StepAt(double tau, const v1::Job& job) {
  const v1::Compensation& compensation = job.algorithm().compensation();
  const double momentum = job.optimizer().momentum();
  double factor = 1, mu = momentum, lowered = 0;
  if (compensation.has_open_loop_momentum()) {
    const v1::OpenLoopMomentum& open = compensation.open_loop_momentum();
    mu = std::clamp<double>(momentum - tau / (1 + tau), open.min_momentum(), momentum);
    factor = std::pow((1 - mu) / (1 - momentum), open.rate_correction());
    lowered = momentum;
  } else if (compensation.has_closed_loop_momentum()) {
    mu = std::max(0.0, momentum - tau / (1 + tau));
    lowered = momentum;
  }
  if (compensation.has_step_bound())
    factor = std::min(factor, compensation.step_bound() / ((1 - lowered) * (1 + tau)));
  return job.optimizer().learning_rate() * factor / (1 - mu);
}

void FindRateBeyondStaleness(const v1::Job& job, std::vector<Warning>* warnings) {
  const std::optional<double> rate = RateAtExpectedStaleness(job);
  if (!rate || !IsFarAbove(job) || !warnings->empty()) return;
  warnings->push_back(
      {.code = "learning_rate_for_workers",
       .measured = job.optimizer().learning_rate(),
       .bound = *rate,
       .found = absl::StrFormat(
           "optimizer.learning_rate is %s with %s; at a staleness of about %s, %s is known to train",
           Short(job.optimizer().learning_rate(), 3), Plural(job.workers(), "worker"),
           Short(ExpectedStaleness(job), 3), Short(*rate, 3)),
       .why = "The delay limits the step: with a rate far above that, training diverges.",
       .advice =
           absl::StrCat("Leave optimizer.learning_rate out, or lower it to about ", Short(*rate, 3), ".")});
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

// Returns the samples that a job trains with; 0 if they depend on data that the workers count.
double SamplesOf(const v1::Job& job) {
  if (job.budget_case() == v1::Job::kSamples) return static_cast<double>(job.samples());
  const Pace pace = PaceOf(job);
  if (job.budget_case() == v1::Job::kUpdates) {
    const double contributions = pace.synchronous ? pace.workers : 1.0 * pace.contributions / pace.updates;
    return job.updates() * contributions * pace.steps_per_version * pace.batch_size;
  }
  const DataShape data = ShapeOf(job.data());
  if (data.counted) return 0;
  return 1.0 * job.epochs() * SamplesPerEpoch(job, static_cast<uint64_t>(data.train_samples));
}

// Returns the field with the number of steps between two contributions.
std::string PeriodField(const v1::Contribution& contribution) {
  const std::string path = "algorithm.contribution.";
  if (contribution.has_elastic()) return path + "elastic.communication_period";
  return path + (contribution.has_gradient() ? "gradient.push_period" : "pseudo_gradient.local_steps");
}

void FindFewRounds(const v1::Job& job, std::vector<Warning>* warnings) {
  const double period = PushPeriod(job.algorithm().contribution()), samples = SamplesOf(job);
  const double steps = std::ceil(samples / job.batch_size() / std::max(1u, job.workers()));
  const double rounds = steps / period;
  if (period <= 1 || samples == 0 || rounds >= kFewRounds) return;
  warnings->push_back(
      {.code = "few_rounds",
       .measured = rounds,
       .bound = kFewRounds,
       .found =
           absl::StrCat("each worker makes ", Plural(std::llround(steps), "step"), " in all, and exchanges ",
                        EverySteps(std::llround(period)), " (", PeriodField(job.algorithm().contribution()),
                        "): ", Short(rounds, 2), rounds == 1 ? " round" : " rounds"),
       .why = "Workers learn from each other, and momentum builds up on the servers, over about ten rounds.",
       .advice = absl::StrCat("Lower ", PeriodField(job.algorithm().contribution()), " to at most ",
                              Short(std::max(1.0, std::floor(steps / kFewRounds))), ", or train longer.")});
}

}  // namespace

double TotalMomentum(double staleness, double momentum) { return 1 - (1 - momentum) / (1 + staleness); }

std::optional<double> RateAtExpectedStaleness(const v1::Job& job) {
  const double tau = ExpectedStaleness(job);
  const Preset* const preset = FindPreset(job.algorithm().preset());
  if (tau < 1 || preset == nullptr || job.algorithm().contribution().has_elastic()) return std::nullopt;
  v1::Job usual;
  usual.set_workers(1 + static_cast<uint32_t>(std::ceil(tau)));
  usual.mutable_algorithm()->set_preset(preset->name);
  FillDefaults(*preset, &usual);
  if (usual.optimizer().kind() != job.optimizer().kind() || !SameAxes(usual.algorithm(), job.algorithm()))
    return std::nullopt;
  return job.optimizer().learning_rate() * StepAt(tau, usual) / StepAt(tau, job);
}

std::vector<Warning> AdviseJob(const v1::Job& job) {
  std::vector<Warning> warnings;
  FindHighRate(job, &warnings);
  FindHighMomentum(job, &warnings);
  FindRateBeyondStaleness(job, &warnings);
  FindFewRounds(job, &warnings);
  return warnings;
}

}  // namespace catchment
