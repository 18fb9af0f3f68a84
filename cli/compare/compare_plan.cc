#include "cli/compare/compare_plan.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "cli/job/job_facts.h"
#include "common/base/status_macros.h"
#include "common/job/text_format.h"
#include "common/job/validate.h"

namespace catchment {
namespace {

// The number of evaluations of a run if its job does not set it.
constexpr double kEvaluations = 15;
// A budget in samples that no run in seconds reaches, so that the learning rate is constant.
constexpr int64_t kEndlessSamples = 1'000'000'000'000;
// The cost of a search, in runs of the whole budget.
constexpr double kSearchCost = 1;

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
  RETURN_IF_ERROR(ApplyOverrides(of_algorithm, job));
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
    ASSIGN_OR_RETURN(const v1::Job endless, Complete(*job));
    return JobFacts::Create(endless, options.servers).status();
  }
  if (options.budget.samples > 0) job->set_samples(options.budget.samples);
  ASSIGN_OR_RETURN(const v1::Job complete, Complete(*job));
  ASSIGN_OR_RETURN(const JobFacts facts, JobFacts::Create(complete, options.servers));
  if (share < 1 && !facts.knows_budget()) {
    return absl::InvalidArgumentError(
        "epochs: a search uses a fraction of the budget, but the number of rows of data.table is unknown "
        "until a worker has read them; give the budget in samples, or add --search=none");
  }
  if (share < 1) job->set_samples(std::max<int64_t>(1, std::llround(facts.total_samples() * share)));
  // If the number of samples is unknown, so is that of epochs; the default interval is one epoch.
  if (!job->evaluation().has_every_epochs() && (facts.knows_samples() || !facts.knows_budget())) {
    const double epochs = facts.knows_samples() ? facts.epochs() : static_cast<double>(complete.epochs());
    job->mutable_evaluation()->set_every_epochs(
        std::max(kMinEvaluationEpochs, static_cast<float>(share * epochs / kEvaluations)));
  }
  return absl::OkStatus();
}

// `hyperparameters` may be null.
absl::StatusOr<v1::Job> MakeJob(const CompareOptions& options, const v1::Job& given,
                                const std::string& algorithm, int workers, uint64_t seed, double share,
                                const Hyperparameters* hyperparameters) {
  v1::Job job = given;
  RETURN_IF_ERROR(SetAlgorithm(options, algorithm, &job));
  job.set_workers(workers);
  job.set_seed(seed);
  // No run is resumed: an interrupted run is repeated from its start.
  job.mutable_checkpoint()->set_every_updates(0);
  job.mutable_checkpoint()->set_every_seconds(0);
  SetStragglers(options.stragglers, &job);
  RETURN_IF_ERROR(SetBudget(options, share, &job));
  absl::StatusOr<v1::Job> complete = Complete(job);
  if (complete.ok() && hyperparameters != nullptr) {
    SetHyperparameters(*hyperparameters, &*complete);
    complete = Complete(*complete);
  }
  if (complete.ok() && options.finish_job) options.finish_job(&*complete);
  return complete;
}

uint64_t FirstSeed(const v1::Job& given) { return given.has_seed() ? given.seed() : 1; }

// A search has another seed than the runs that it is for.
uint64_t SearchSeed(const CompareOptions& options, const v1::Job& given) {
  return FirstSeed(given) + options.seeds;
}

// Returns the values of --set alone.
v1::Job SetAlone(const CompareOptions& options) {
  v1::Job set;
  // They have been applied to the job before.
  ApplyOverrides(options.set, &set).IgnoreError();
  return set;
}

// Returns the points that the algorithm supports with so many workers. Some do not support every momentum.
std::vector<Hyperparameters> Supported(const CompareOptions& options, const v1::Job& given,
                                       const std::string& algorithm, int workers) {
  const auto job_of = [&](const Hyperparameters* hyperparameters) {
    return MakeJob(options, given, algorithm, workers, SearchSeed(options, given), 1, hyperparameters);
  };
  v1::Job own = given;
  const absl::StatusOr<v1::Job> complete = job_of(nullptr);
  if (!complete.ok() || !SetAlgorithm(options, algorithm, &own).ok()) return {};
  std::vector<Hyperparameters> supported;
  for (const Hyperparameters& point : SearchGrid(SpaceOf(own, *complete, SetAlone(options)))) {
    if (job_of(&point).ok()) supported.push_back(point);
  }
  return supported;
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
        const auto hyperparameters = found.find({algorithm, workers});
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

absl::StatusOr<std::vector<PlannedSearch>> PlanSearches(const CompareOptions& options, const v1::Job& given) {
  std::vector<PlannedSearch> searches;
  if (options.search == SearchKind::kNone || given.model().has_synthetic()) return searches;
  for (const int workers : options.workers) {
    for (const std::string& algorithm : options.algorithms) {
      PlannedSearch search{algorithm, workers, Supported(options, given, algorithm, workers), {}};
      if (search.trials.size() < 2) continue;
      search.rungs = PlanRungsThatCost(static_cast<int>(search.trials.size()), kSearchCost);
      RETURN_IF_ERROR(PlanTrial(options, given, search, 0, 0, search.rungs.front().share).status());
      searches.push_back(std::move(search));
    }
  }
  return searches;
}

absl::StatusOr<PlannedRun> PlanTrial(const CompareOptions& options, const v1::Job& given,
                                     const PlannedSearch& search, int trial, int rung, double share) {
  const Hyperparameters& tried = search.trials[trial];
  PlannedRun run{.directory = absl::StrCat("search/", search.algorithm, "-", search.workers,
                                           "-workers-trial-", trial + 1, "-rung-", rung + 1),
                 .algorithm = search.algorithm,
                 .workers = search.workers,
                 .seed = SearchSeed(options, given),
                 .seconds = options.budget.seconds * share,
                 .trial = ToString(tried)};
  ASSIGN_OR_RETURN(v1::Job job,
                   MakeJob(options, given, search.algorithm, search.workers, run.seed, share, &tried));
  KeepLearningRate(&job);
  ASSIGN_OR_RETURN(run.job, Complete(job));
  return run;
}

std::string UntunedRates(const CompareOptions& options, const v1::Job& given) {
  if (options.search == SearchKind::kNone) {
    return "Learning rates come from the job and the presets and were not tuned (--search=none), "
           "so they may explain a difference.";
  }
  if (given.model().has_synthetic())
    return "Learning rates come from the job and the presets and were not tuned, "
           "since model.synthetic does not learn.";
  for (const std::string& algorithm : options.algorithms) {
    v1::Job own = given;
    if (!SetAlgorithm(options, algorithm, &own).ok()) continue;
    own.set_workers(options.workers.back());
    const absl::StatusOr<v1::Job> complete = Complete(own);
    if (complete.ok() && SpaceOf(own, *complete, SetAlone(options)).learning_rate.has_value())
      return "The learning rate comes from --set and was not tuned, so it may explain a difference.";
  }
  return "";
}

}  // namespace catchment
