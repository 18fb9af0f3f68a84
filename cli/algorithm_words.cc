#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/job_explanation.h"
#include "cli/text.h"
#include "common/job/learning_rate.h"
#include "optim/optimizer.h"

namespace catchment {
namespace {

std::string Share(double share) { return absl::StrCat(Short(100 * share, 4), " %"); }

std::string DescribeGradient(const JobFacts& facts) {
  const v1::AccruedGradient& gradient = facts.job().algorithm().contribution().gradient();
  const bool accrues = gradient.push_period() > 1;
  std::string text = absl::StrCat(!accrues          ? "The gradient is pushed "
                                  : gradient.mean() ? "Gradients are averaged, and the mean is pushed "
                                                    : "Gradients are summed up, and the sum is pushed ",
                                  EverySteps(gradient.push_period()), "; fresh weights are fetched ",
                                  EverySteps(gradient.fetch_period()), ".");
  if (gradient.fetch_period() > 1) {
    absl::StrAppend(
        &text, gradient.local_learning_rate() > 0
                   ? absl::StrCat(" Between fetches each worker moves its own weights by SGD with learning "
                                  "rate ",
                                  Short(gradient.local_learning_rate()), ".")
                   : " Between fetches a worker's weights stay as they are.");
  }
  return text;
}

std::string DescribeElastic(const JobFacts& facts) {
  const v1::ElasticDifference& elastic = facts.job().algorithm().contribution().elastic();
  return absl::StrCat("Each worker trains its own weights x and sends them ",
                      EverySteps(elastic.communication_period()), "; d = ", Short(elastic.moving_rate(), 4),
                      " * (x - center) is then added to the center and taken from x.");
}

std::string Formula(const v1::Optimizer& optimizer) {
  return FindOptimizerKind(optimizer.kind())->describe(optimizer);
}

std::string KeptForEachWorker(const JobFacts& facts) {
  return absl::StrCat(Bytes(facts.layout().size() * static_cast<int64_t>(sizeof(float))),
                      " for each worker, on the servers");
}

// What is done to g beforehand.
std::string Preparation(const v1::Optimizer& optimizer) {
  std::string words;
  if (optimizer.has_clip_value()) {
    absl::StrAppend(&words, " Before, g is clipped to +-", Short(optimizer.clip_value()), ".");
  }
  if (optimizer.weight_decay() != 0 && !FindOptimizerKind(optimizer.kind())->decays_weights) {
    absl::StrAppend(&words, " Weight decay: ", Short(optimizer.weight_decay()), " * w is added to g.");
  }
  return words;
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

std::string DescribePseudoGradient(const JobFacts& facts) {
  const v1::PseudoGradient& config = facts.job().algorithm().contribution().pseudo_gradient();
  const v1::Optimizer& local = config.local_optimizer();
  std::string text = absl::StrCat(
      "Each worker trains its own weights x by ", Formula(local), "; lr ", Short(local.learning_rate()), ", ",
      v1::Schedule::Decay_Name(local.schedule().decay()), ".", Preparation(local));
  if (local.has_clip_norm()) {
    absl::StrAppend(&text, " Its gradients are scaled to a norm of at most ", Short(local.clip_norm()), ".");
  }
  return absl::StrCat(text, " It sends its move, D = x as pulled - x, ", EverySteps(config.local_steps()),
                      ", which the servers take for a gradient, and goes on from fresh weights.");
}

std::string DescribeEnergyMatching(const JobFacts& facts) {
  const v1::EnergyMatching& config = facts.job().algorithm().contribution().energy_matching();
  return absl::StrCat(
      "Every step a worker sends a move of the center, -lr * g with lr = ", Short(config.learning_rate()),
      ", times a factor from 0 to 5 for each weight, so that all "
      "workers together move it ",
      config.energy() == 1 ? "" : Short(config.energy()) + " times ", "as far as one with momentum ",
      Short(config.momentum()), " would; fresh weights come with the answer.");
}

std::string DescribeLookAhead(const JobFacts& facts) {
  const std::string mu = Short(facts.job().algorithm().contribution().look_ahead().momentum());
  return absl::StrCat("Each worker keeps its own momentum, v = ", mu, " * v + g, and sends g + ", mu,
                      " * v every step; fresh weights come with the answer.");
}

// What is scaled before it is sent.
std::string DescribeClipNorm(const v1::Job& job) {
  if (!job.optimizer().has_clip_norm()) return "";
  return absl::StrCat(job.algorithm().contribution().has_pseudo_gradient() ? " D" : " A gradient",
                      " whose norm is above ", Short(job.optimizer().clip_norm()),
                      " is scaled down to it beforehand, so it cannot be sent before all of it is known.");
}

std::string DescribeKind(const JobFacts& facts) {
  switch (facts.job().algorithm().contribution().kind_case()) {
    case v1::Contribution::kElastic:
      return DescribeElastic(facts);
    case v1::Contribution::kPseudoGradient:
      return DescribePseudoGradient(facts);
    case v1::Contribution::kEnergyMatching:
      return DescribeEnergyMatching(facts);
    case v1::Contribution::kLookAhead:
      return DescribeLookAhead(facts);
    default:
      return DescribeGradient(facts);
  }
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

std::string EverySteps(int64_t steps) {
  return steps == 1 ? "every step" : absl::StrCat("every ", Count(steps), " steps");
}

std::string DescribeConsistency(const JobFacts& facts) {
  const v1::Consistency& consistency = facts.job().algorithm().consistency();
  if (facts.synchronous()) return DescribeSynchronous(facts);
  if (consistency.groups() > 0) return DescribeGroups(facts);
  if (consistency.has_softsync()) return DescribeSoftsync(facts);
  return DescribeAsynchronous(facts);
}

std::string DescribeContribution(const JobFacts& facts) {
  return DescribeKind(facts) + DescribeClipNorm(facts.job());
}

std::string DescribeCompensation(const JobFacts& facts) {
  const v1::Compensation& compensation = facts.job().algorithm().compensation();
  const float momentum = facts.job().optimizer().momentum();
  switch (compensation.kind_case()) {
    case v1::Compensation::kInverse:
      return "A contribution that is tau updates stale counts 1 / max(1, tau).";
    case v1::Compensation::kPower:
      return absl::StrCat("A contribution that is tau updates stale counts 1 / (1 + tau)^",
                          Short(compensation.power().exponent()), ".");
    case v1::Compensation::kExponential:
      return absl::StrCat("A contribution that is tau updates stale counts exp(-",
                          Short(compensation.exponential().rate()), " * tau).");
    case v1::Compensation::kDelayCompensated:
      return absl::StrCat(
          "Each gradient g becomes g + lambda * g*g * (w - w_sent), lambda ",
          Short(compensation.delay_compensated().lambda()),
          compensation.delay_compensated().adaptive() ? " over the gradients' usual size" : "",
          "; w_sent, what its worker was sent, takes ", KeptForEachWorker(facts), ".");
    case v1::Compensation::kGapAware:
      return absl::StrCat(
          "Each gradient is divided by 1 + |w - w_sent| in usual steps; w_sent, what its worker "
          "was sent, takes ",
          KeptForEachWorker(facts), ".");
    case v1::Compensation::kOpenLoopMomentum:
      return absl::StrCat("Momentum is lowered by what the measured staleness adds, tau / (1 + tau), from ",
                          Short(momentum), " down to ",
                          Short(compensation.open_loop_momentum().min_momentum()),
                          " at most; the learning rate rises for it.");
    case v1::Compensation::kClosedLoopMomentum:
      return absl::StrCat("Momentum is set so that the total that is measured comes to ", Short(momentum),
                          ".");
    default:
      return facts.synchronous() ? "Nothing: there is none."
                                 : "Nothing: a stale contribution counts like a fresh one.";
  }
}

std::string DescribeOptimizer(const JobFacts& facts) {
  const v1::Optimizer& optimizer = facts.job().optimizer();
  if (!facts.elastic()) {
    return absl::StrCat(Formula(optimizer), ". On the servers, on the center.", Preparation(optimizer));
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
