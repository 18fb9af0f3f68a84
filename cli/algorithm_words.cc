#include "cli/algorithm_words.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/text.h"

namespace catchment {
namespace {

std::string Share(double share) { return absl::StrCat(Short(100 * share, 4), " %"); }

std::string DescribeGradient(const JobFacts& facts) {
  const v1::AccruedGradient& gradient = facts.job().algorithm().contribution().gradient();
  const bool accrues = gradient.push_period() > 1;
  std::string text =
      absl::StrCat(accrues ? "Gradients are summed up, and the sum is pushed " : "The gradient is pushed ",
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
  return absl::StrCat("Each worker trains weights x of its own and sends them ",
                      EverySteps(elastic.communication_period()), "; d = ", Short(elastic.moving_rate(), 4),
                      " * (x - center) is then added to the center and taken from x.");
}

std::string SgdFormula(const v1::Optimizer& optimizer) {
  if (optimizer.momentum() == 0) return "SGD: w -= lr * g";
  return absl::StrCat(
      optimizer.nesterov() ? "SGD with Nesterov momentum: v = " : "SGD with momentum: v = ",
      Short(optimizer.momentum()), " * v + g ; w -= lr * ",
      optimizer.nesterov() ? absl::StrCat("(g + ", Short(optimizer.momentum()), " * v)") : "v");
}

std::string Betas(const v1::Optimizer& optimizer) {
  return absl::StrCat("beta1 ", Short(optimizer.beta1()), ", beta2 ", Short(optimizer.beta2()), ", epsilon ",
                      Short(optimizer.epsilon()));
}

std::string RhoAndEpsilon(const v1::Optimizer& optimizer) {
  return absl::StrCat("rho ", Short(optimizer.rho()), ", epsilon ", Short(optimizer.epsilon()));
}

std::string Formula(const v1::Optimizer& optimizer) {
  switch (optimizer.kind()) {
    case v1::Optimizer::ADAGRAD:
      return absl::StrCat("AdaGrad: s += g*g ; w -= lr * g / (sqrt(s) + ", Short(optimizer.epsilon()), ")");
    case v1::Optimizer::RMSPROP:
      return absl::StrCat("RMSProp: ", RhoAndEpsilon(optimizer),
                          optimizer.momentum() == 0 ? "" : ", momentum " + Short(optimizer.momentum()));
    case v1::Optimizer::ADADELTA:
      return "AdaDelta: " + RhoAndEpsilon(optimizer);
    case v1::Optimizer::ADAM:
      return "Adam: " + Betas(optimizer);
    case v1::Optimizer::ADAMW:
      return absl::StrCat("AdamW: ", Betas(optimizer), "; w *= 1 - lr * ", Short(optimizer.weight_decay()),
                          " first");
    default:
      return SgdFormula(optimizer);
  }
}

// What is done to g beforehand.
std::string Preparation(const v1::Optimizer& optimizer) {
  std::string words;
  if (optimizer.has_clip_value()) {
    absl::StrAppend(&words, " Before, g is clipped to +-", Short(optimizer.clip_value()), ".");
  }
  if (optimizer.weight_decay() != 0 && optimizer.kind() != v1::Optimizer::ADAMW) {
    absl::StrAppend(&words, " Weight decay: ", Short(optimizer.weight_decay()), " * w is added to g.");
  }
  return words;
}

}  // namespace

std::string EverySteps(int64_t steps) {
  return steps == 1 ? "every step" : absl::StrCat("every ", Count(steps), " steps");
}

std::string DescribeConsistency(const JobFacts& facts) {
  if (!facts.synchronous()) {
    return "Asynchronous. Nobody waits: what a worker sends is applied as it comes, to weights that others "
           "may have "
           "moved since it fetched its own. By how many updates is measured as staleness.";
  }
  const std::string who = facts.workers() == 1
                              ? "one worker makes it alone"
                              : absl::StrCat("it is made of the contributions of all ", facts.workers(),
                                             " workers, and each waits for the slowest");
  const std::string how = facts.elastic()
                              ? "; all of them exchange against the same center"
                              : "; gradients are averaged by their samples, in the workers' order";
  return absl::StrCat("Synchronous. Updates are in step: ", who, how, ".");
}

std::string DescribeContribution(const JobFacts& facts) {
  return facts.elastic() ? DescribeElastic(facts) : DescribeGradient(facts);
}

std::string DescribeCompensation(const JobFacts& facts) {
  return facts.synchronous() ? "Nothing: there is none."
                             : "Nothing: a stale contribution counts like a fresh one.";
}

std::string DescribeOptimizer(const JobFacts& facts) {
  return absl::StrCat(Formula(facts.job().optimizer()),
                      facts.elastic()
                          ? ". On each worker, on its own weights; the center moves by the differences alone."
                          : ". On the servers, on the center.",
                      Preparation(facts.job().optimizer()));
}

std::string DescribeSchedule(const JobFacts& facts) {
  const v1::Optimizer& optimizer = facts.job().optimizer();
  const v1::Schedule& schedule = optimizer.schedule();
  const double rate = optimizer.learning_rate();
  std::string text;
  if (schedule.warmup() > 0) {
    text = absl::StrCat("rises from 0 to ", Short(rate), " over the first ", Share(schedule.warmup()),
                        " of the budget (", Count(std::llround(schedule.warmup() * facts.total_samples())),
                        " samples), then ");
  }
  if (schedule.decay() == v1::Schedule::CONSTANT) return absl::StrCat(text, "stays at ", Short(rate), ".");
  return absl::StrCat(text, "falls from ", Short(rate), " along half a cosine to ",
                      Short(rate * schedule.final_fraction()), " at the end.");
}

std::string DescribeBudget(const JobFacts& facts) {
  return absl::StrCat(
      Short(facts.epochs(), 4), facts.epochs() == 1 ? " epoch" : " epochs", " of ",
      Count(facts.train_samples()), " samples, ", Plural(facts.total_samples(), "sample"),
      " in all: ", Plural(facts.steps_per_worker(), "step"), " of ", Count(facts.job().batch_size()), " on ",
      facts.workers() == 1 ? "the one worker" : absl::StrCat("each of ", facts.workers(), " workers"),
      ", about ", Plural(facts.updates(), "update"), " of the center.");
}

}  // namespace catchment
