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

std::string DescribeSynchronous(const JobFacts& facts) {
  const std::string workers =
      facts.workers() == 1 ? "the one worker" : absl::StrCat("each of the ", facts.workers(), " workers");
  const std::string wait = facts.workers() == 1 ? "" : ", so all wait for the slowest";
  const std::string how = facts.elastic()
                              ? "All exchange with the same center."
                              : "Gradients are weighted by their samples and added in the workers' order.";
  return absl::StrCat("Synchronous. Each update uses one contribution from ", workers, wait, ". ", how);
}

std::string DescribeGroups(const JobFacts& facts) {
  const v1::Consistency& consistency = facts.job().algorithm().consistency();
  const uint32_t backups = BackupWorkers(consistency);
  const std::string dropped =
      backups == 0   ? "."
      : backups == 1 ? " but the last: later contributions are dropped, and their workers are notified."
                     : absl::StrCat(" but the last ", backups,
                                    ": later contributions are dropped, and their workers are notified.");
  if (consistency.has_synchronous()) {
    return absl::StrCat("Synchronous with ", Plural(backups, "backup worker"),
                        ". Each update uses the contributions of all ", facts.workers(), " workers", dropped);
  }
  return absl::StrCat(
      "Hybrid. Workers are split into ", consistency.grouped().groups(),
      " groups that do not wait for each other; staleness counts the updates of other groups that a "
      "group has not seen. Each update uses the contributions of all members of one group",
      dropped);
}

std::string DescribeGrace(const v1::Algorithm& algorithm) {
  const v1::Quorum& quorum = algorithm.consistency().quorum();
  if (quorum.grace() == 0) return "";
  return absl::StrCat(" and a grace has passed: ", Short(quorum.grace()), " of the time that ",
                      Plural(algorithm.contribution().pseudo_gradient().overlap_steps(), "step"),
                      " of the fastest worker leave, at most ", Short(quorum.longest_grace_seconds()), " s");
}

std::string DescribeQuorum(const JobFacts& facts) {
  const v1::Algorithm& algorithm = facts.job().algorithm();
  const uint32_t minimum = algorithm.consistency().quorum().minimum();
  const std::string all = absl::StrCat("the contributions of all ", facts.workers(), " workers");
  if (minimum >= facts.workers()) return absl::StrCat("Quorum of all. Each update uses ", all, ".");
  return absl::StrCat("Quorum. The worker that first has ", Plural(facts.period(), "step"),
                      " sends its contribution, and the servers call the others, which send theirs when "
                      "their step ends. Each "
                      "update uses ",
                      all, ", or those that are in when at least ", minimum, minimum == 1 ? " is" : " are",
                      DescribeGrace(algorithm),
                      ". Later contributions are dropped, and their workers are notified.");
}

std::string DescribeSoftsync(const JobFacts& facts) {
  const v1::NSoftsync& softsync = facts.job().algorithm().consistency().n_softsync();
  return absl::StrCat(
      softsync.amount_case() == v1::NSoftsync::kSize ? "Buffered" : absl::StrCat(softsync.n(), "-softsync"),
      ". No worker waits: each is answered when its contribution arrives. An update is made from every ",
      Plural(facts.contributions(), "contribution"),
      ", from any workers, or fewer as workers leave; staleness is the age of each in updates.");
}

std::string DescribeAsynchronous(const JobFacts& facts) {
  const v1::Consistency& consistency = facts.job().algorithm().consistency();
  const std::string applied =
      "A contribution is applied when it arrives; staleness counts the updates that other workers have "
      "made since its worker fetched the weights.";
  if (const uint32_t delay = consistency.asynchronous().emulated_delay(); delay > 0) {
    return absl::StrCat(
        "Asynchronous, with a delay for experiments. No worker waits: a contribution is answered "
        "when it arrives, and applied when ",
        Plural(delay, "later contribution"), delay == 1 ? " has" : " have",
        " arrived, as if its worker were that much slower.");
  }
  if (!consistency.has_bounded_staleness()) return "Asynchronous. No worker waits. " + applied;
  const uint32_t bound = consistency.bounded_staleness().bound();
  return absl::StrCat(
      "Stale synchronous. ", applied, " A worker continues only while it is ",
      bound == 0 ? "no push" : absl::StrCat("at most ", bound, bound == 1 ? " push" : " pushes"),
      " ahead of the slowest.");
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

// " (last_minibatch: MERGE; the last minibatch of an epoch has 65)"; "" if an epoch's steps are all of one
// size.
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

// "64 of the 65 samples (last_minibatch: DROP)"
std::string SamplesOfEpoch(const JobFacts& facts) {
  if (facts.samples_per_epoch() == facts.train_samples()) {
    return Plural(facts.train_samples(), "sample") + MergedMinibatch(facts);
  }
  return absl::StrCat(Count(facts.samples_per_epoch()), " of the ", Plural(facts.train_samples(), "sample"),
                      " (last_minibatch: DROP)");
}

}  // namespace

std::string DescribeConsistency(const JobFacts& facts) {
  const v1::Consistency& consistency = facts.job().algorithm().consistency();
  if (facts.synchronous()) return DescribeSynchronous(facts);
  if (consistency.has_quorum()) return DescribeQuorum(facts);
  if (NumGroups(consistency) > 0) return DescribeGroups(facts);
  if (consistency.has_n_softsync()) return DescribeSoftsync(facts);
  return DescribeAsynchronous(facts);
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
