#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/job_explanation.h"
#include "common/job/compensation_kinds.h"
#include "common/job/contribution_kinds.h"
#include "common/job/learning_rate.h"
#include "common/text.h"
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

// The course after the warm-up.
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
                          ", then falls, each along half a cosine,", to_end);
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

// What is scaled before it is sent.
std::string DescribeClipNorm(const v1::Job& job) {
  if (!job.optimizer().has_clip_norm()) return "";
  return absl::StrCat(job.algorithm().contribution().has_pseudo_gradient() ? " D" : " A gradient",
                      " whose norm is above ", Short(job.optimizer().clip_norm()),
                      " is scaled down to it beforehand, so it cannot be sent before all of it is known.");
}

std::string DescribeSynchronous(const JobFacts& facts) {
  const std::string who = facts.workers() == 1
                              ? "one worker makes it alone"
                              : absl::StrCat("it is made of the contributions of all ", facts.workers(),
                                             " workers, and each waits for the slowest");
  const std::string how = facts.elastic()
                              ? "; all of them exchange against the same center"
                              : "; gradients are averaged by their samples, in the workers' order";
  return absl::StrCat("Synchronous. Updates are in step: ", who, how, ".");
}

std::string DescribeGroups(const JobFacts& facts) {
  const v1::Consistency& consistency = facts.job().algorithm().consistency();
  const uint32_t spare = consistency.spare_workers();
  const std::string spared =
      spare == 0   ? "."
      : spare == 1 ? " but the last: later contributions are dropped, and their workers are notified."
                   : absl::StrCat(" but the last ", spare,
                                  ": later contributions are dropped, and their workers are notified.");
  if (consistency.groups() == 1) {
    return absl::StrCat("Synchronous with ", Plural(spare, "spare worker"),
                        ". An update is made of the contributions of all ", facts.workers(), " workers",
                        spared);
  }
  return absl::StrCat(
      "Hybrid. Workers are split into ", consistency.groups(),
      " groups that do not wait for each other; how many of the others' updates a group has not "
      "seen is measured as staleness. A group's update is made of the contributions of all its "
      "members",
      spared);
}

std::string DescribeSoftsync(const JobFacts& facts) {
  const uint32_t n = facts.job().algorithm().consistency().softsync();
  return absl::StrCat(
      n,
      "-softsync. No worker waits: it is answered when its contribution arrives. An update is made "
      "of every ",
      Plural(facts.contributions(), "contribution"),
      ", from any workers, fewer as workers leave; how many updates old each is then is measured as "
      "staleness.");
}

std::string DescribeAsynchronous(const JobFacts& facts) {
  const v1::Algorithm& algorithm = facts.job().algorithm();
  const std::string applied =
      "What a worker sends is applied when it arrives, to weights that others may have moved since it "
      "fetched "
      "its own. "
      "By how many updates is measured as staleness.";
  if (const uint32_t delay = algorithm.emulated_delay(); delay > 0) {
    return absl::StrCat(
        "Asynchronous, with a delay for experiments. No worker waits: what it sends is answered "
        "when it arrives, and applied when ",
        Plural(delay, "later contribution"), delay == 1 ? " has" : " have",
        " arrived, as if its worker had been that much slower.");
  }
  if (!algorithm.consistency().has_staleness_bound()) return "Asynchronous. No worker waits. " + applied;
  const uint32_t bound = algorithm.consistency().staleness_bound();
  return absl::StrCat(
      "Stale synchronous. ", applied, " A worker goes on only while it is ",
      bound == 0 ? "no push" : absl::StrCat("at most ", bound, bound == 1 ? " push" : " pushes"),
      " ahead of the slowest.");
}

}  // namespace

std::string DescribeConsistency(const JobFacts& facts) {
  const v1::Consistency& consistency = facts.job().algorithm().consistency();
  if (facts.synchronous()) return DescribeSynchronous(facts);
  if (consistency.groups() > 0) return DescribeGroups(facts);
  if (consistency.has_softsync()) return DescribeSoftsync(facts);
  return DescribeAsynchronous(facts);
}

std::string DescribeContribution(const JobFacts& facts) {
  const v1::Contribution& contribution = facts.job().algorithm().contribution();
  return KindOf(contribution).describe(facts.job()) + DescribeClipNorm(facts.job());
}

std::string DescribeCompensation(const JobFacts& facts) {
  const CompensationKind& kind = KindOf(facts.job().algorithm().compensation());
  return kind.describe(facts.job(), KeptForEachWorker(facts));
}

std::string DescribeOptimizer(const JobFacts& facts) {
  const v1::Optimizer& optimizer = facts.job().optimizer();
  if (!facts.elastic()) {
    return absl::StrCat(Formula(optimizer), ". On the servers, on the center.",
                        DescribePreparation(optimizer));
  }
  const std::string mu = Short(optimizer.momentum());
  return absl::StrCat(
      optimizer.momentum() == 0
          ? Formula(optimizer)
          : absl::StrCat("Nesterov's momentum: v = ", mu, " * v - lr * gradient(x + ", mu, " * v) ; x += v"),
      ". On each worker, on its own weights; the center moves by the differences alone.");
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
                        " of the table's rows, which are counted when a worker has read them, ",
                        Count(facts.job().batch_size()), " a step.");
  }
  const std::string epochs =
      facts.knows_samples()
          ? absl::StrCat(Short(facts.epochs(), 4), facts.epochs() == 1 ? " epoch" : " epochs", " of ",
                         Count(facts.train_samples()), " samples, ")
          : "";
  return absl::StrCat(
      epochs, Plural(facts.total_samples(), "sample"), " in all: ", Plural(facts.steps_per_worker(), "step"),
      " of ", Count(facts.job().batch_size()), " on ",
      facts.workers() == 1 ? "the one worker" : absl::StrCat("each of ", facts.workers(), " workers"),
      ", about ", Plural(facts.updates(), "update"), " of the center.");
}

}  // namespace catchment
