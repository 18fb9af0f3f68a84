#include "cli/compare/compare_plan.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/job_facts.h"
#include "common/job/text_format.h"
#include "common/job/validate.h"

namespace catchment {
namespace {

// The number of evaluations of a run if its job does not set it.
constexpr double kEvaluations = 15;
// A budget in samples that no run in seconds reaches, so that the learning rate is constant.
constexpr int64_t kEndlessSamples = 1'000'000'000'000;
constexpr double kSearchShare = 0.25;

std::string PresetOf(const v1::Job& job) {
  return job.algorithm().preset().empty() ? "sync" : job.algorithm().preset();
}

// The file's settings are those of its own preset, but --set changes every algorithm.
absl::Status SetAlgorithm(const CompareOptions& options, const std::string& algorithm, v1::Job* job) {
  if (PresetOf(*job) == algorithm) return absl::OkStatus();
  std::vector<std::string> of_algorithm;
  for (const std::string& set : options.set) {
    if (absl::StartsWith(set, "algorithm.") || absl::StartsWith(set, "algorithm="))
      of_algorithm.push_back(set);
  }
  job->clear_algorithm();
  if (absl::Status status = ApplyOverrides(of_algorithm, job); !status.ok()) return status;
  job->mutable_algorithm()->set_preset(algorithm);
  return absl::OkStatus();
}

void SetStragglers(const std::vector<v1::Straggler>& stragglers, v1::Job* job) {
  for (const v1::Straggler& straggler : stragglers) {
    if (straggler.worker() < job->workers()) *job->mutable_faults()->add_stragglers() = straggler;
  }
}

absl::StatusOr<v1::Job> Complete(const v1::Job& job) { return FillDefaultsAndValidate(job); }

// Sets a share of the budget, and the interval of evaluations.
absl::Status SetBudget(const CompareOptions& options, double share, v1::Job* job) {
  if (options.budget.seconds > 0) {
    job->set_samples(kEndlessSamples);
    job->mutable_optimizer()->mutable_schedule()->Clear();
    job->mutable_optimizer()->mutable_schedule()->set_decay(v1::Schedule::CONSTANT);
    return absl::OkStatus();
  }
  if (options.budget.samples > 0) job->set_samples(options.budget.samples);
  const absl::StatusOr<v1::Job> complete = Complete(*job);
  if (!complete.ok()) return complete.status();
  const absl::StatusOr<JobFacts> facts = JobFacts::Create(*complete, options.servers);
  if (!facts.ok()) return facts.status();
  if (share < 1 && !facts->knows_budget()) {
    return absl::InvalidArgumentError(
        "epochs: a search uses a part of the budget, but the number of samples of data.table is known only "
        "after a worker has read them; give the budget in samples");
  }
  if (share < 1) job->set_samples(std::max<int64_t>(1, std::llround(facts->total_samples() * share)));
  // If the number of samples is unknown, so is that of epochs; the default interval is one epoch.
  if (!job->evaluation().has_every_epochs() && (facts->knows_samples() || !facts->knows_budget())) {
    const double epochs = facts->knows_samples() ? facts->epochs() : static_cast<double>(complete->epochs());
    job->mutable_evaluation()->set_every_epochs(static_cast<float>(share * epochs / kEvaluations));
  }
  return absl::OkStatus();
}

// `hyperparameters` may be null.
absl::StatusOr<v1::Job> MakeJob(const CompareOptions& options, const v1::Job& given,
                                const std::string& algorithm, int workers, uint64_t seed, double share,
                                const Hyperparameters* hyperparameters) {
  v1::Job job = given;
  if (absl::Status status = SetAlgorithm(options, algorithm, &job); !status.ok()) return status;
  job.set_workers(workers);
  job.set_seed(seed);
  // No run is resumed: an interrupted run is repeated from its start.
  job.mutable_checkpoint()->set_every_updates(0);
  job.mutable_checkpoint()->set_every_seconds(0);
  SetStragglers(options.stragglers, &job);
  if (absl::Status status = SetBudget(options, share, &job); !status.ok()) return status;
  absl::StatusOr<v1::Job> complete = Complete(job);
  if (!complete.ok() || hyperparameters == nullptr) return complete;
  SetHyperparameters(*hyperparameters, &*complete);
  return Complete(*complete);
}

uint64_t FirstSeed(const v1::Job& given) { return given.has_seed() ? given.seed() : 1; }

// Returns the runs of a search around the hyperparameters of `start`.
std::vector<PlannedRun> Probes(const CompareOptions& options, const v1::Job& given,
                               const std::string& algorithm, const v1::Job& start) {
  std::vector<PlannedRun> probes;
  const int workers = static_cast<int>(start.workers());
  for (const Hyperparameters& hyperparameters : SearchGrid(HyperparametersOf(start))) {
    absl::StatusOr<v1::Job> job =
        MakeJob(options, given, algorithm, workers, start.seed(), kSearchShare, &hyperparameters);
    // Some algorithms do not support some values of momentum.
    if (!job.ok()) continue;
    const std::string name = absl::StrReplaceAll(ToString(hyperparameters), {{", ", "-"}, {" ", "-"}});
    probes.push_back({absl::StrCat("search/", algorithm, "-", name), algorithm, workers, start.seed(),
                      options.budget.seconds * kSearchShare, *std::move(job)});
  }
  return probes;
}

absl::Status RefuseAll(const std::string& algorithm, const std::vector<LeftOut>& left_out) {
  return absl::InvalidArgumentError(
      absl::StrCat(algorithm, " supports none of --workers:\n", left_out.back().reason));
}

}  // namespace

absl::StatusOr<ComparePlan> MakePlan(const CompareOptions& options, const v1::Job& given,
                                     const FoundHyperparameters& found) {
  ComparePlan plan;
  const uint64_t first = FirstSeed(given);
  for (uint64_t seed = first; seed < first + options.seeds; ++seed) {
    for (int workers : options.workers) {
      for (const std::string& algorithm : options.algorithms) {
        const auto hyperparameters = found.find(algorithm);
        absl::StatusOr<v1::Job> job =
            MakeJob(options, given, algorithm, workers, seed, 1,
                    hyperparameters == found.end() ? nullptr : &hyperparameters->second);
        if (job.ok()) {
          plan.runs.push_back({absl::StrCat("runs/", algorithm, "-", workers, "-workers-seed-", seed),
                               algorithm, workers, seed, options.budget.seconds, *std::move(job)});
        } else if (seed == first) {
          plan.left_out.push_back({algorithm, workers, std::string(job.status().message())});
        }
      }
    }
  }
  for (const std::string& algorithm : options.algorithms) {
    const bool runs = std::any_of(plan.runs.begin(), plan.runs.end(),
                                  [&](const PlannedRun& run) { return run.algorithm == algorithm; });
    if (!runs) return RefuseAll(algorithm, plan.left_out);
  }
  return plan;
}

absl::StatusOr<v1::Job> JobWithShare(const CompareOptions& options, const v1::Job& given, int workers,
                                     uint64_t seed, double share) {
  return MakeJob(options, given, PresetOf(given), workers, seed, share, nullptr);
}

absl::StatusOr<std::vector<PlannedRun>> PlanSearch(const CompareOptions& options, const v1::Job& given,
                                                   const std::string& algorithm) {
  const uint64_t seed = FirstSeed(given);
  absl::Status refused;
  for (auto workers = options.workers.rbegin(); workers != options.workers.rend(); ++workers) {
    const auto start = MakeJob(options, given, algorithm, *workers, seed, kSearchShare, nullptr);
    if (start.ok()) return Probes(options, given, algorithm, *start);
    refused = start.status();
  }
  return refused;
}

}  // namespace catchment
