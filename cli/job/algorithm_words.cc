#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/job/job_explanation.h"
#include "common/base/rounding.h"
#include "common/base/text.h"
#include "common/job/algorithm_facts.h"
#include "common/job/compensation_kinds.h"
#include "common/job/consistency_kinds.h"
#include "common/job/contribution_kinds.h"
#include "common/job/data_sources.h"
#include "common/job/learning_rate.h"
#include "optim/optimizer.h"

namespace catchment {
namespace {

std::string Share(double share) { return absl::StrCat(Short(100 * share, 4), " %"); }

std::string Formula(const v1::Optimizer& optimizer) {
  return FindOptimizerKind(optimizer.kind())->describe(optimizer);
}

std::string KeptForEachWorker(const JobFacts& facts) {
  return absl::StrCat(Bytes(facts.layout().size() * static_cast<int64_t>(sizeof(float))),
                      " for each worker, on the servers");
}

// Describes how the momentum follows the learning rate.
std::string DescribeCycle(const v1::Optimizer& optimizer) {
  if (!optimizer.schedule().has_min_momentum()) return "";
  const bool beta1 = optimizer.has_beta1();
  return absl::StrCat(beta1 ? " beta1" : " Momentum", " falls from ",
                      Short(beta1 ? optimizer.beta1() : optimizer.momentum()), " to ",
                      Short(optimizer.schedule().min_momentum()), " and rises again, against it.");
}

// Describes the learning rate after the warm-up.
std::string DescribeDecay(const v1::Optimizer& optimizer) {
  const v1::Schedule& schedule = optimizer.schedule();
  const std::string rate = Short(optimizer.learning_rate());
  const std::string to_end = absl::StrCat(" to ", Short(LearningRate(optimizer, 1)), " at the end.");
  const std::string rest = schedule.warmup() == 0 ? "of the budget" : "of the rest of the budget";
  switch (schedule.decay()) {
    case v1::Schedule::COSINE:
      return absl::StrCat("falls from ", rate, " along half a cosine", to_end);
    case v1::Schedule::STEP:
      return absl::StrCat("begins at ", rate, " and is multiplied by ", Short(schedule.factor()),
                          " each time ", Share(schedule.step_every()), " ", rest, " has been used.");
    case v1::Schedule::EXPONENTIAL:
      return absl::StrCat("falls from ", rate, " by the same factor in every step", to_end);
    case v1::Schedule::POLYNOMIAL:
      return absl::StrCat("falls from ", rate,
                          schedule.power() == 1
                              ? " in a straight line"
                              : " as what is left of the budget to the power of " + Short(schedule.power()),
                          to_end);
    case v1::Schedule::ONE_CYCLE:
      return absl::StrCat("rises from ", Short(optimizer.learning_rate() * schedule.initial_lr_fraction()),
                          " to ", rate, " over the first ", Share(schedule.pct_start()), " ", rest,
                          ", then falls, each along half a cosine,", to_end, DescribeCycle(optimizer));
    case v1::Schedule::PLATEAU:
      return absl::StrCat(
          "begins at ", rate, " and is multiplied by ", Short(schedule.factor()),
          " whenever the test loss has not fallen", schedule.threshold() > 0 ? " by " : "",
          schedule.threshold() > 0 ? Share(schedule.threshold()) : "", " for ",
          Plural(schedule.patience() + 1, "evaluation"), " in a row",
          schedule.final_fraction() > 0
              ? absl::StrCat(", down to ", Short(optimizer.learning_rate() * schedule.final_fraction()))
              : "",
          ".");
    default:
      return absl::StrCat("stays at ", rate, ".");
  }
}

// Describes the clipping before contributions are sent.
std::string DescribeClipNorm(const v1::Job& job) {
  if (!job.optimizer().has_clip_norm()) return "";
  return absl::StrCat(job.algorithm().contribution().has_pseudo_gradient() ? " D" : " A gradient",
                      " whose norm is above ", Short(job.optimizer().clip_norm()),
                      " is scaled down to it beforehand, so it cannot be sent before all of it is known.");
}

std::string When(double every_epochs) {
  if (every_epochs == 1) return "After every epoch";
  return absl::StrCat("Every ", Short(every_epochs, 4), " epochs");
}

std::string Targets(const v1::Evaluation& evaluation) {
  std::vector<std::string> targets;
  if (evaluation.has_target_accuracy()) {
    targets.push_back(
        absl::StrCat("the test accuracy is at least ", Short(100 * evaluation.target_accuracy(), 5), " %"));
  }
  if (evaluation.has_target_loss()) {
    targets.push_back(absl::StrCat("the test loss is at most ", Short(evaluation.target_loss())));
  }
  return absl::StrJoin(targets, " and ");
}

std::string Patience(const v1::Evaluation& evaluation) {
  if (evaluation.patience() == 0) return "";
  const bool by_accuracy = evaluation.best_by() == v1::Evaluation::ACCURACY;
  const std::string margin = evaluation.min_improvement() > 0
                                 ? absl::StrCat(" by more than ", Short(evaluation.min_improvement()))
                                 : "";
  return absl::StrCat("the test ", by_accuracy ? "accuracy has not risen" : "loss has not fallen", margin,
                      " for ", Plural(evaluation.patience(), "evaluation"), " in a row");
}

// Returns " (last_minibatch: MERGE; the last minibatch of an epoch has 65)"; "" if an epoch's steps are all
// of one size.
std::string MergedMinibatch(const JobFacts& facts) {
  const int64_t step = static_cast<int64_t>(SamplesPerStep(facts.job()));
  const int64_t rest = facts.train_samples() % step;
  if (facts.job().last_minibatch() != v1::Job::MERGE || facts.train_samples() < step || rest == 0) return "";
  const int64_t workers = facts.synchronous() ? facts.workers() : 1;
  return absl::StrCat(
      " (last_minibatch: MERGE; ",
      workers == 1 ? "the last minibatch of an epoch has " : "the last minibatches of an epoch have up to ",
      Count(CeilDivide(step + rest, workers)), ")");
}

// Returns "64 of the 65 samples (last_minibatch: DROP)".
std::string SamplesOfEpoch(const JobFacts& facts) {
  if (facts.samples_per_epoch() == facts.train_samples()) {
    return Plural(facts.train_samples(), "sample") + MergedMinibatch(facts);
  }
  return absl::StrCat(Count(facts.samples_per_epoch()), " of the ", Plural(facts.train_samples(), "sample"),
                      " (last_minibatch: DROP)");
}

}  // namespace

std::string DescribeConsistency(const JobFacts& facts) {
  return KindOf(facts.job().algorithm().consistency()).describe(facts.job());
}

std::string DescribeContribution(const JobFacts& facts) {
  const v1::Contribution& contribution = facts.job().algorithm().contribution();
  return KindOf(contribution).describe(facts.job()) + DescribeClipNorm(facts.job());
}

std::string DescribeCompensation(const JobFacts& facts) {
  return DescribeCompensation(facts.job(), KeptForEachWorker(facts));
}

std::string DescribeOptimizer(const JobFacts& facts) {
  const v1::Optimizer& optimizer = facts.job().optimizer();
  if (!facts.elastic()) {
    return absl::StrCat(Formula(optimizer), ". Applied by the servers, to the center.",
                        DescribePreparation(optimizer));
  }
  const std::string mu = Short(optimizer.momentum());
  return absl::StrCat(
      optimizer.momentum() == 0
          ? Formula(optimizer)
          : absl::StrCat("Nesterov's momentum: v = ", mu, " * v - lr * gradient(x + ", mu, " * v) ; x += v"),
      ". Applied by each worker, to its own weights; the center moves only by the elastic differences.");
}

std::string DescribeSchedule(const JobFacts& facts) {
  const v1::Optimizer& optimizer = facts.job().optimizer();
  const v1::Schedule& schedule = optimizer.schedule();
  if (schedule.warmup() == 0) return DescribeDecay(optimizer);
  const std::string samples =
      facts.knows_budget()
          ? absl::StrCat(" (", Count(std::llround(schedule.warmup() * facts.total_samples())), " samples)")
          : "";
  return absl::StrCat("rises from 0 to ", Short(LearningRate(optimizer, schedule.warmup())),
                      " over the first ", Share(schedule.warmup()), " of the budget", samples, ", then ",
                      DescribeDecay(optimizer));
}

std::string DescribeWorkerScaling(const JobFacts& facts) {
  const v1::Optimizer::WorkerScaling scaling = facts.job().optimizer().worker_scaling();
  if (scaling == v1::Optimizer::NO_SCALING) return "";
  return absl::StrCat(" Times ", scaling == v1::Optimizer::LINEAR ? "" : "the square root of ",
                      "the workers in training over ", facts.workers(), ".");
}

std::string DescribeBudget(const JobFacts& facts) {
  if (!facts.knows_budget()) {
    return absl::StrCat(Plural(facts.job().epochs(), "epoch"),
                        " of the table's rows, which a worker counts when it reads them, ",
                        Count(facts.job().batch_size()), " a step.");
  }
  const std::string epochs = facts.knows_samples() ? absl::StrCat(Short(facts.epochs(), 4),
                                                                  facts.epochs() == 1 ? " epoch" : " epochs",
                                                                  " of ", SamplesOfEpoch(facts), ", ")
                                                   : "";
  return absl::StrCat(
      epochs, Plural(facts.total_samples(), "sample"), " in all: ", Plural(facts.steps_per_worker(), "step"),
      " of ", Count(facts.job().batch_size()), " on ",
      facts.workers() == 1 ? "the one worker" : absl::StrCat("each of ", facts.workers(), " workers"),
      ", about ", Plural(facts.updates(), "update"), " of the center.");
}

std::string DescribeEvaluation(const v1::Job& job) {
  if (const std::string reason = WhyNoTestSamples(job.data()); !reason.empty()) {
    return absl::StrCat("None: ", reason, ".");
  }
  const v1::Evaluation& evaluation = job.evaluation();
  std::string text =
      absl::StrCat(When(evaluation.every_epochs()), ", and at the end, the evaluator scores the test set.");
  std::vector<std::string> ends;
  for (const std::string& end : {Targets(evaluation), Patience(evaluation)}) {
    if (!end.empty()) ends.push_back(end);
  }
  if (!ends.empty()) {
    absl::StrAppend(&text, " Training ends early, and the job is done, when ",
                    absl::StrJoin(ends, ", or when "), ".");
  }
  if (evaluation.keep_best()) {
    absl::StrAppend(
        &text, " The weights with the ",
        evaluation.best_by() == v1::Evaluation::ACCURACY ? "highest test accuracy" : "lowest test loss",
        " are kept in model-best.safetensors.");
  }
  return text;
}

}  // namespace catchment
