#include "cli/advise/recommendations.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/job/algorithm_facts.h"
#include "common/measures/noise_scale.h"

namespace catchment {
namespace {

constexpr int kMaxServers = 64;
// Twice as many servers are listed if workers compute for so much more of their time.
constexpr double kMoreEfficiency = 1.02;

absl::StatusOr<Scaling> Scale(const Evidence& evidence) {
  Scaling scaling;
  for (int servers = 1; servers <= kMaxServers; servers *= 2) {
    const absl::StatusOr<double> computing = ComputingShare(evidence, servers);
    // A small model cannot be split between many.
    if (absl::IsInvalidArgument(computing.status()) && servers > 1) break;
    RETURN_IF_ERROR(computing.status());
    if (!scaling.rows.empty() && *computing < kMoreEfficiency * scaling.rows.back().computing) break;
    scaling.rows.push_back({servers, *computing});
    if (*computing < kEfficiency) continue;
    scaling.servers = servers;
    break;
  }
  return scaling;
}

double SamplesPerUpdate(const v1::Job& job) {
  return ContributionsPerUpdate(job.algorithm().consistency(), job.workers()) * job.batch_size() *
         PushPeriod(job.algorithm().contribution());
}

// ----------------------------------------------------------------------------------------------- batch

// The factor that counts as far from the noise scale. Nearer than that, its error, and the training that it
// changes with, matter as much.
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
        "error feedback (TOP_K, INT8, E2M1, E3M0), such as ",
        kMeasure, ".");
  }
  if (evidence.noise->updates() < kMinNoiseUpdates) {
    return absl::StrFormat("which has been measured in only %d updates, but needs %d: train for longer.",
                           evidence.noise->updates(), kMinNoiseUpdates);
  }
  return absl::StrFormat(
      "which is too large to measure: over %d updates the gradient was smaller than its measurement "
      "error. So larger updates should pay.",
      evidence.noise->updates());
}

}  // namespace

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

absl::StatusOr<Recommendations> Recommend(const Evidence& evidence,
                                          const std::function<void(const std::string&)>& report) {
  if (!evidence.step) {
    return absl::InvalidArgumentError(
        "the time of a step, which decides the cost of waiting, is not known: give --step, such as "
        "--step=lognormal:120ms:0.3, or the --out of a run that has trained for a minute");
  }
  ASSIGN_OR_RETURN(Trials trials, RunTrials(evidence, report));
  ASSIGN_OR_RETURN(Scaling scaling, Scale(evidence));
  return Recommendations{std::move(trials), std::move(scaling), AdviseBatch(evidence)};
}

}  // namespace catchment
