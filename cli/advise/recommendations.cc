#include "cli/advise/recommendations.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/advice.h"
#include "common/job/algorithm_facts.h"
#include "common/job/presets.h"
#include "common/noise_scale.h"
#include "common/text.h"

namespace catchment {
namespace {

constexpr int kMostServers = 64;
// Twice as many servers are listed where they allow a tenth more workers, or, if not even one worker keeps kEfficiency,
// bring the job closer to it.
constexpr double kMoreWorkers = 1.1;
constexpr double kMoreEfficiency = 1.02;
constexpr double kLongestStep = 3600;
constexpr int kBisections = 60;
// From this number of workers on, momentum that is set once is too much or too little (docs/results/staleness.md).
constexpr int kManyAsynchronous = 5;
constexpr int kManyForMomentum = 8;
constexpr int kManyForOneBarrier = 32;

ThroughputModel ModelOf(const Evidence& evidence, const v1::Job& job, const Distribution& step) {
  return {LoadOf(job, evidence.parameters, evidence.exposed), step, evidence.slow, evidence.network};
}

// The samples of one contribution.
double SamplesOf(const v1::Job& job) {
  return 1.0 * job.batch_size() * PushPeriod(job.algorithm().contribution());
}

// Returns true if the servers of `row` carry more than half as many do.
bool IsBetter(const ServerRow& row, const ServerRow& half) {
  if (half.most_workers > 0) return row.most_workers > kMoreWorkers * half.most_workers;
  return row.most_workers > 0 || row.job.efficiency > kMoreEfficiency * half.job.efficiency;
}

Scaling Scale(const Evidence& evidence) {
  const ThroughputModel model = ModelOf(evidence, evidence.job, *evidence.step);
  const int workers = evidence.workers();
  Scaling scaling;
  scaling.job = model.Predict(workers, evidence.servers);
  scaling.samples_per_second = scaling.job.contributions_per_second * SamplesOf(evidence.job);
  for (int servers = 1; servers <= kMostServers && servers * 16 <= evidence.parameters; servers *= 2) {
    const int most = model.MostWorkers(servers, kEfficiency);
    const ServerRow row = {servers, most, model.Predict(workers, servers),
                           model.Predict(most + 1, servers).limit};
    if (!scaling.servers && row.job.efficiency >= kEfficiency) scaling.servers = servers;
    if (!scaling.rows.empty() && !IsBetter(row, scaling.rows.back())) break;
    scaling.rows.push_back(row);
  }
  return scaling;
}

std::optional<double> ShortestStep(const Evidence& evidence) {
  const auto keeps = [&](double seconds) {
    return ModelOf(evidence, evidence.job, {.mean = seconds})
               .Predict(evidence.workers(), evidence.servers)
               .efficiency >= kEfficiency;
  };
  if (!keeps(kLongestStep)) return std::nullopt;
  double low = 0, high = kLongestStep;
  for (int i = 0; i < kBisections; ++i) {
    const double middle = 0.5 * (low + high);
    (keeps(middle) ? high : low) = middle;
  }
  return high;
}

double SamplesPerUpdate(const v1::Job& job) {
  const v1::Consistency& consistency = job.algorithm().consistency();
  const int workers = std::max(1, static_cast<int>(job.workers()));
  double contributions = 1;
  if (const int groups = static_cast<int>(NumGroups(consistency)); groups > 0) {
    contributions = std::max(1, workers / groups - static_cast<int>(BackupWorkers(consistency)));
  } else if (consistency.has_n_softsync()) {
    contributions = std::max(1, workers / static_cast<int>(consistency.n_softsync().n()));
  }
  return contributions * SamplesOf(job);
}

// ----------------------------------------------------------------------------------------------- batch

// The factor that counts as far from the noise scale. Nearer than that, its error, and the training that it changes with,
// matter as much.
constexpr double kFar = 2;

BatchAdvice::Change ChangeBy(double factor, double samples, double scale) {
  const double sum = factor * samples + scale;
  return {sum / (factor * (samples + scale)), sum / (samples + scale)};
}

// Returns why the noise scale is not known.
std::string ReasonUnknown(const Evidence& evidence) {
  constexpr char kMeasure[] = "a run of it with the preset sync and two workers or more";
  if (!evidence.has_run) return absl::StrCat("which only a run measures: give the --out of ", kMeasure, ".");
  if (!evidence.noise) {
    return absl::StrCat(
        "which this run has not measured: it takes several gradients in an update, without clip_norm or "
        "TOP_K, such as ",
        kMeasure, ".");
  }
  if (evidence.noise->updates() < kFewestNoiseUpdates) {
    return absl::StrFormat(
        "which has been measured in only %d updates, and takes %d: let it train for longer.",
        evidence.noise->updates(), kFewestNoiseUpdates);
  }
  return absl::StrFormat(
      "which is too large to be measured: in %d updates the gradient was smaller than the error of its "
      "measurement. So larger updates should pay.",
      evidence.noise->updates());
}

// --------------------------------------------------------------------------------------------- presets

// A preset for the job's data and workers.
struct Candidate {
  const Preset* preset;
  v1::Job job;
  Prediction prediction;
  double samples_per_second = 0;
};

Candidate MakeCandidate(const Evidence& evidence, const Preset& preset) {
  Candidate candidate{.preset = &preset, .job = evidence.job};
  candidate.job.clear_algorithm();
  candidate.job.clear_optimizer();
  FillDefaults(preset, &candidate.job);
  candidate.prediction =
      ModelOf(evidence, candidate.job, *evidence.step).Predict(evidence.workers(), evidence.servers);
  candidate.samples_per_second = candidate.prediction.contributions_per_second * SamplesOf(candidate.job);
  return candidate;
}

struct Situation {
  int workers = 1;
  // downpour, which waits for nothing but its exchange, does not keep kEfficiency.
  bool exchange_is_slow = false;
};

// A preset that is proposed if the situation suits it and it is faster than sync.
struct PresetRule {
  const char* preset;
  std::function<bool(const Situation&)> suits;
  const char* reason;
};

const std::vector<PresetRule>& Rules() {
  static const auto* const rules = new std::vector<PresetRule>{
      {"sync_backup", [](const Situation&) { return true; }, "waits for all workers but the last"},
      {"hybrid", [](const Situation& s) { return s.workers >= kManyForOneBarrier; },
       "waits only within each of two groups"},
      {"downpour", [](const Situation& s) { return s.workers < kManyAsynchronous; },
       "no worker waits for another"},
      {"staleness_aware", [](const Situation& s) { return s.workers >= kManyAsynchronous; },
       "no worker waits for another, and momentum is lowered as staleness is measured"},
      {"dana", [](const Situation& s) { return s.workers >= kManyForMomentum; },
       "as staleness_aware, with full momentum"},
      {"local_sgd", [](const Situation& s) { return s.exchange_is_slow; },
       "exchanges weights only once in several steps"},
      {"easgd", [](const Situation& s) { return s.exchange_is_slow; },
       "exchanges weights only once in several steps, and no worker waits for another"}};
  return *rules;
}

PresetAdvice AdviceFor(const Candidate& candidate, std::string reason) {
  return {candidate.preset->name, std::move(reason), candidate.prediction.efficiency,
          candidate.samples_per_second, ExpectedStaleness(candidate.job)};
}

std::vector<PresetAdvice> AdvisePresets(const Evidence& evidence) {
  const Candidate sync = MakeCandidate(evidence, *FindPreset("sync"));
  const Candidate downpour = MakeCandidate(evidence, *FindPreset("downpour"));
  const Situation situation = {evidence.workers(), downpour.prediction.efficiency < kEfficiency};
  std::vector<PresetAdvice> presets = {AdviceFor(sync, "the reference, without staleness")};
  for (const PresetRule& rule : Rules()) {
    if (!rule.suits(situation)) continue;
    const Candidate candidate = MakeCandidate(evidence, *FindPreset(rule.preset));
    if (candidate.samples_per_second < kFaster * sync.samples_per_second) continue;
    presets.push_back(AdviceFor(candidate, rule.reason));
  }
  std::sort(presets.begin() + 1, presets.end(), [](const PresetAdvice& a, const PresetAdvice& b) {
    return a.samples_per_second > b.samples_per_second;
  });
  return presets;
}

// Returns true if the momentum is at most the preset's, and stale gradients do not raise it too far.
bool KeepsPresetMomentum(const v1::Job& job, double staleness) {
  const Preset* const preset = FindPreset(job.algorithm().preset());
  const double momentum = job.optimizer().momentum();
  return preset != nullptr && momentum <= preset->optimizer.momentum() &&
         (momentum == 0 || TotalMomentum(staleness, momentum) <= kMaxTotalMomentum);
}

}  // namespace

MomentumAdvice AdviseMomentum(const v1::Job& job, std::optional<double> staleness) {
  const v1::Algorithm& algorithm = job.algorithm();
  const double target = FindPreset("sync")->optimizer.momentum();
  MomentumAdvice advice;
  advice.measured = staleness.has_value();
  advice.staleness = staleness.value_or(ExpectedStaleness(job));
  advice.added = advice.staleness / (1 + advice.staleness);
  advice.job = job.optimizer().momentum();
  if (!algorithm.contribution().has_gradient()) {
    advice.rule =
        "What asynchrony adds is known only for gradients that are applied as they arrive: keep the "
        "preset's.";
    advice.added = 0;
  } else if (job.optimizer().kind() != v1::Optimizer::SGD) {
    advice.rule = "What asynchrony adds is known only for SGD: keep the optimizer's settings.";
    advice.added = 0;
  } else if (algorithm.compensation().has_open_loop_momentum() ||
             algorithm.compensation().has_closed_loop_momentum()) {
    advice.rule = absl::StrFormat(
        "The servers lower it as they measure: optimizer.momentum, %.2f, is that of training without "
        "staleness.",
        advice.job);
  } else if (advice.staleness <= 0) {
    advice.rule = "Nothing is stale, so asynchrony adds none: keep the job's.";
  } else if (KeepsPresetMomentum(job, advice.staleness)) {
    advice.rule = "The preset's: it was chosen for this staleness.";
  } else if (advice.added >= target) {
    advice.take = 0;
    advice.rule = absl::StrFormat(
        "Asynchrony alone adds more than %.2f, with which training without staleness does well: take fewer "
        "workers, a smaller learning rate, or the preset staleness_aware, dana or sync.",
        target);
  } else {
    advice.take = target - advice.added;
    advice.rule = absl::StrFormat(
        "%.2f, with which training without staleness does well, less what asynchrony adds.", target);
  }
  if (advice.take && *advice.take > 0 && *advice.take < advice.job) {
    advice.rate_factor = std::pow((1 - *advice.take) / (1 - advice.job), 0.7);
  }
  return advice;
}

BatchAdvice AdviseBatch(const Evidence& evidence) {
  BatchAdvice advice;
  advice.samples_per_update = SamplesPerUpdate(evidence.job);
  if (evidence.noise) advice.noise_scale = NoiseScale(*evidence.noise);
  if (!advice.noise_scale) {
    advice.reason = ReasonUnknown(evidence);
    return advice;
  }
  const double scale = *advice.noise_scale, samples = advice.samples_per_update;
  advice.place = kFar * samples < scale   ? BatchAdvice::kBelow
                 : samples > kFar * scale ? BatchAdvice::kAbove
                                          : BatchAdvice::kAbout;
  advice.twice = ChangeBy(2, samples, scale);
  advice.half = ChangeBy(0.5, samples, scale);
  return advice;
}

Recommendations Recommend(const Evidence& evidence) {
  Recommendations recommendations;
  if (evidence.step) {
    recommendations.scaling = Scale(evidence);
    if (evidence.workers() > 1) recommendations.presets = AdvisePresets(evidence);
  } else {
    recommendations.shortest_step = ShortestStep(evidence);
  }
  recommendations.batch = AdviseBatch(evidence);
  recommendations.momentum = AdviseMomentum(
      evidence.job, evidence.measured ? evidence.measured->staleness : std::optional<double>());
  return recommendations;
}

}  // namespace catchment
