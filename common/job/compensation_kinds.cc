#include "common/job/compensation_kinds.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "common/job/algorithm_facts.h"
#include "common/job/consistency_kinds.h"

namespace catchment {
namespace {

constexpr uint32_t kMaxCoordinates = 10000;

const char kPath[] = "algorithm.compensation.";

// ------------------------------------------------------------------------ factors of a stale contribution

void FillPower(uint32_t, v1::Compensation* compensation) {
  CATCHMENT_DEFAULT(compensation->mutable_power(), exponent, 1);
}

void CheckPower(const v1::Job& job, const std::string& path, Problems* problems) {
  problems->Positive(path + ".exponent", job.algorithm().compensation().power().exponent());
}

std::string DescribePower(const v1::Job& job, const std::string&) {
  return absl::StrCat("A contribution that is tau updates stale counts 1 / (1 + tau)^",
                      Short(job.algorithm().compensation().power().exponent()), ".");
}

void FillExponential(uint32_t, v1::Compensation* compensation) {
  CATCHMENT_DEFAULT(compensation->mutable_exponential(), rate, 0.1f);
}

void CheckExponential(const v1::Job& job, const std::string& path, Problems* problems) {
  problems->Positive(path + ".rate", job.algorithm().compensation().exponential().rate());
}

std::string DescribeExponential(const v1::Job& job, const std::string&) {
  return absl::StrCat("A contribution that is tau updates stale counts exp(-",
                      Short(job.algorithm().compensation().exponential().rate()), " * tau).");
}

std::string DescribeInverse(const v1::Job&, const std::string&) {
  return "A contribution that is tau updates stale counts 1 / max(1, tau).";
}

std::string DescribeNone(const v1::Job& job, const std::string&) {
  return KindOf(job.algorithm().consistency()).has_staleness
             ? "Not compensated: a stale contribution counts like a fresh one."
             : "None: every contribution is computed with the current weights.";
}

// ------------------------------------------------------------------------ corrections of gradients

void FillDelay(uint32_t, v1::Compensation* compensation) {
  v1::DelayCompensation* const delay = compensation->mutable_delay_compensated();
  CATCHMENT_DEFAULT(delay, adaptive, false);
  CATCHMENT_DEFAULT(delay, lambda, delay->adaptive() ? 2 : 0.04f);
  if (delay->adaptive()) CATCHMENT_DEFAULT(delay, decay, 0.95f);
}

void CheckDelay(const v1::Job& job, const std::string& path, Problems* problems) {
  const v1::DelayCompensation& delay = job.algorithm().compensation().delay_compensated();
  problems->Require(delay.lambda() >= 0 && std::isfinite(delay.lambda()), path + ".lambda", delay.lambda(),
                    "must be a number, 0 or above");
  if (delay.adaptive()) {
    problems->BelowOne(path + ".decay", delay.decay());
  } else if (delay.has_decay()) {
    problems->Add(path + ".decay", Reason::kUnused,
                  "belongs to the adaptive kind; leave it out, or set adaptive to true");
  }
}

std::string DescribeDelay(const v1::Job& job, const std::string& copies) {
  const v1::DelayCompensation& delay = job.algorithm().compensation().delay_compensated();
  return absl::StrCat("Each gradient g becomes g + lambda * g*g * (w - w_sent), lambda ",
                      Short(delay.lambda()), delay.adaptive() ? " over the gradients' usual size" : "",
                      "; w_sent, the weights last sent to its worker, takes ", copies, ".");
}

int DelayVectors(const v1::Compensation& compensation) { return compensation.delay_compensated().adaptive(); }

std::string DescribeGapAware(const v1::Job&, const std::string& copies) {
  return absl::StrCat(
      "Each gradient is divided by 1 + |w - w_sent| in usual steps; w_sent, "
      "the weights last sent to its worker, takes ",
      copies, ".");
}

int GapAwareVectors(const v1::Compensation&) { return 1; }

// ------------------------------------------------------------------------ momentum

void CheckLeast(const std::string& path, double least, double momentum, Problems* problems) {
  problems->Require(least > -1 && least <= momentum, path + ".min_momentum", least,
                    absl::StrCat("must be above -1 and at most optimizer.momentum, ", momentum));
}

void FillOpenLoop(uint32_t, v1::Compensation* compensation) {
  v1::OpenLoopMomentum* const momentum = compensation->mutable_open_loop_momentum();
  CATCHMENT_DEFAULT(momentum, min_momentum, 0);
  CATCHMENT_DEFAULT(momentum, rate_correction, 0.7f);
  CATCHMENT_DEFAULT(momentum, averaging, 0.01f);
}

void CheckOpenLoop(const v1::Job& job, const std::string& path, Problems* problems) {
  const v1::OpenLoopMomentum& open = job.algorithm().compensation().open_loop_momentum();
  CheckLeast(path, open.min_momentum(), job.optimizer().momentum(), problems);
  problems->Within<float>(0, 1, path + ".rate_correction", open.rate_correction());
  problems->Require(open.averaging() > 0 && open.averaging() <= 1, path + ".averaging", open.averaging(),
                    "must be in (0, 1]");
}

std::string DescribeOpenLoop(const v1::Job& job, const std::string&) {
  return absl::StrCat(
      "Momentum is lowered by the amount that the measured staleness adds, tau / (1 + tau), from ",
      Short(job.optimizer().momentum()), " down to ",
      Short(job.algorithm().compensation().open_loop_momentum().min_momentum()),
      " at most; the learning rate rises to compensate.");
}

void FillClosedLoop(uint32_t, v1::Compensation* compensation) {
  v1::ClosedLoopMomentum* const momentum = compensation->mutable_closed_loop_momentum();
  CATCHMENT_DEFAULT(momentum, min_momentum, -0.9f);
  CATCHMENT_DEFAULT(momentum, gain, 0.01f);
  CATCHMENT_DEFAULT(momentum, coordinates, 64);
}

void CheckClosedLoop(const v1::Job& job, const std::string& path, Problems* problems) {
  const v1::ClosedLoopMomentum& closed = job.algorithm().compensation().closed_loop_momentum();
  CheckLeast(path, closed.min_momentum(), job.optimizer().momentum(), problems);
  problems->Positive(path + ".gain", closed.gain());
  problems->Within<uint32_t>(1, kMaxCoordinates, path + ".coordinates", closed.coordinates());
}

std::string DescribeClosedLoop(const v1::Job& job, const std::string&) {
  return absl::StrCat("Momentum is adjusted until the measured total momentum is ",
                      Short(job.optimizer().momentum()), ".");
}

void FillDelayedNesterov(uint32_t workers, v1::Compensation* compensation) {
  CATCHMENT_DEFAULT(compensation->mutable_delayed_nesterov(), every, workers);
}

void CheckDelayedNesterov(const v1::Job& job, const std::string& path, Problems* problems) {
  problems->AtLeast<uint32_t>(1, path + ".every", job.algorithm().compensation().delayed_nesterov().every());
  if (!job.optimizer().nesterov()) {
    problems->Add(path, Reason::kNeeds,
                  "delays Nesterov momentum; set optimizer.kind to SGD, "
                  "optimizer.momentum above 0 and optimizer.nesterov to true");
  }
}

std::string DescribeDelayedNesterov(const v1::Job& job, const std::string&) {
  const std::string every = absl::StrCat(job.algorithm().compensation().delayed_nesterov().every());
  return absl::StrCat("A contribution g alone moves the weights by lr * g / ", every, "; the mean of every ",
                      every, " contributions updates the momentum, which then moves the weights once.");
}

// Returns 1 for the sum of the contributions that have not yet updated the momentum.
int DelayedNesterovVectors(const v1::Compensation& compensation) {
  return compensation.delayed_nesterov().every() > 1;
}

constexpr CompensationKind kKinds[] = {
    {.kind = v1::Compensation::kNone, .describe = DescribeNone},
    {.kind = v1::Compensation::kInverse, .scales = true, .describe = DescribeInverse},
    {.kind = v1::Compensation::kPower,
     .scales = true,
     .fill_defaults = FillPower,
     .check = CheckPower,
     .describe = DescribePower},
    {.kind = v1::Compensation::kExponential,
     .scales = true,
     .fill_defaults = FillExponential,
     .check = CheckExponential,
     .describe = DescribeExponential},
    {.kind = v1::Compensation::kDelayCompensated,
     .corrects_gradients = true,
     .fill_defaults = FillDelay,
     .check = CheckDelay,
     .describe = DescribeDelay,
     .vectors = DelayVectors},
    {.kind = v1::Compensation::kGapAware,
     .corrects_gradients = true,
     .reads_momentum = true,
     .needs_one_rate = true,
     .describe = DescribeGapAware,
     .vectors = GapAwareVectors},
    {.kind = v1::Compensation::kOpenLoopMomentum,
     .sets_momentum = true,
     .fill_defaults = FillOpenLoop,
     .check = CheckOpenLoop,
     .describe = DescribeOpenLoop},
    {.kind = v1::Compensation::kClosedLoopMomentum,
     .sets_momentum = true,
     .needs_each = true,
     .needs_one_rate = true,
     .fill_defaults = FillClosedLoop,
     .check = CheckClosedLoop,
     .describe = DescribeClosedLoop},
    {.kind = v1::Compensation::kDelayedNesterov,
     .needs_nesterov = true,
     .needs_each = true,
     .fill_defaults = FillDelayedNesterov,
     .check = CheckDelayedNesterov,
     .describe = DescribeDelayedNesterov,
     .vectors = DelayedNesterovVectors},
};

// ------------------------------------------------------------------------ additions to any kind

// The bound of staleness-aware momentum, with which the MLP and the CNN train with 8 to 60 workers
// (docs/results/staleness.md).
constexpr float kStepBound = 1.5f;

// Returns the number of contributions, of workers that are equally fast, from a worker's fetch to its last
// push with those weights.
uint32_t UsualStaleness(const v1::Job& job) {
  const v1::AccruedGradient& gradient = job.algorithm().contribution().gradient();
  const uint32_t pushes = std::max(1u, gradient.fetch_period() / std::max(1u, gradient.push_period()));
  const uint64_t usual =
      uint64_t{pushes} * job.workers() + job.algorithm().consistency().asynchronous().emulated_delay();
  return static_cast<uint32_t>(std::min<uint64_t>(usual, UINT32_MAX));
}

void FillBeside(uint32_t usual, v1::Compensation* compensation) {
  if (KindOf(*compensation).sets_momentum) CATCHMENT_DEFAULT(compensation, step_bound, kStepBound);
  if (compensation->has_delay_adaptive())
    CATCHMENT_DEFAULT(compensation->mutable_delay_adaptive(), threshold, usual);
  if (Scales(*compensation) && compensation->of() == v1::Compensation::OF_UNSET)
    compensation->set_of(v1::Compensation::STEP);
}

// Returns the paths of all settings that change contributions or their steps.
std::vector<std::string> Parts(const v1::Compensation& compensation) {
  std::vector<std::string> parts;
  if (!compensation.has_none()) parts.push_back(absl::StrCat(kPath, KindName(compensation)));
  if (compensation.has_delay_adaptive()) parts.push_back(absl::StrCat(kPath, "delay_adaptive"));
  const bool has_bound = compensation.has_step_bound() && !KindOf(compensation).sets_momentum;
  if (has_bound) parts.push_back(absl::StrCat(kPath, "step_bound"));
  return parts;
}

void CheckBeside(const v1::Job& job, Problems* problems) {
  const v1::Compensation& compensation = job.algorithm().compensation();
  if (compensation.has_delay_adaptive()) {
    problems->AtLeast<uint32_t>(1, absl::StrCat(kPath, "delay_adaptive.threshold"),
                                compensation.delay_adaptive().threshold());
  }
  if (compensation.has_step_bound())
    problems->Positive(absl::StrCat(kPath, "step_bound"), compensation.step_bound());
  problems->Require(v1::Compensation::Of_IsValid(compensation.of()), absl::StrCat(kPath, "of"),
                    static_cast<int>(compensation.of()), "must be STEP or GRADIENT");
}

std::string DescribeBeside(const v1::Compensation& compensation) {
  std::string text;
  if (compensation.has_delay_adaptive()) {
    const uint32_t threshold = compensation.delay_adaptive().threshold();
    absl::StrAppend(&text, " A contribution that is tau updates stale, more than ", threshold, ", counts ",
                    threshold, " / tau.");
  }
  if (compensation.has_step_bound()) {
    absl::StrAppend(&text, " The learning rate is bounded by the mean staleness, with a step_bound of ",
                    Short(compensation.step_bound()), ".");
  }
  if (compensation.of() == v1::Compensation::GRADIENT)
    absl::StrAppend(&text, " The factor is applied before the optimizer's moments.");
  return text;
}

// ------------------------------------------------------------------------ combinations with the other axes

const char kElasticSendsWeights[] =
    "does not belong to contribution elastic, which sends weights, not gradients: the spring between worker "
    "and center is the same, however old; leave it out";

void CheckOf(const v1::Job& job, Problems* problems) {
  const v1::Compensation& compensation = job.algorithm().compensation();
  const bool has_factor = Scales(compensation), elastic = job.algorithm().contribution().has_elastic();
  if (compensation.of() == v1::Compensation::OF_UNSET) return;
  if (elastic && !(has_factor && compensation.of() == v1::Compensation::STEP)) {
    problems->Add(absl::StrCat(kPath, "of"), Reason::kConflict, kElasticSendsWeights);
  } else if (!has_factor) {
    problems->Add(
        absl::StrCat(kPath, "of"), Reason::kUnused,
        "selects what the staleness factor multiplies, but the job has no such factor; leave it out, "
        "or set delay_adaptive {}, inverse {}, power {} or exponential {}");
  }
}

void CheckContribution(const v1::Job& job, const std::string& path, Problems* problems) {
  const v1::Compensation& compensation = job.algorithm().compensation();
  const v1::Contribution& contribution = job.algorithm().contribution();
  if (KindOf(compensation).corrects_gradients && !contribution.has_gradient()) {
    problems->Add(path, Reason::kNeeds,
                  "needs contribution gradient: it estimates the gradient at the current weights, but these "
                  "workers do not send gradients; leave it out, or choose inverse, power or exponential");
  } else if (KindOf(compensation).corrects_gradients &&
             job.compression().pull() != v1::Compression::FLOAT32) {
    problems->Add(
        "compression.pull", Reason::kConflict,
        absl::StrCat("is ", v1::Compression::Codec_Name(job.compression().pull()), "; must be FLOAT32 with ",
                     path, ", which compares the center with the exact weights that a worker was sent"));
  }
}

void CheckConsistency(const v1::Job& job, const std::string& path, Problems* problems) {
  const v1::Compensation& compensation = job.algorithm().compensation();
  const v1::Consistency& consistency = job.algorithm().consistency();
  const bool several = NumGroups(consistency) > 0 || IsBuffered(consistency);
  if (KindOf(compensation).needs_each && several && KindOf(consistency).has_staleness) {
    problems->Add(path, Reason::kNeeds,
                  "needs an update for every contribution; set algorithm.consistency to asynchronous {} or "
                  "bounded_staleness {}, or choose open_loop_momentum");
  }
}

void CheckMomentum(const v1::Job& job, const std::string& path, Problems* problems) {
  const v1::Optimizer& optimizer = job.optimizer();
  const bool has_momentum = optimizer.kind() == v1::Optimizer::SGD && optimizer.momentum() > 0;
  const CompensationKind& kind = KindOf(job.algorithm().compensation());
  if (kind.sets_momentum && optimizer.schedule().has_min_momentum()) {
    problems->Add(
        "optimizer.schedule.min_momentum", Reason::kConflict,
        absl::StrCat("cannot be combined with ", path, ", which sets the momentum; leave one of them out"));
  }
  if (has_momentum) return;
  if (kind.sets_momentum) {
    problems->Add(path, Reason::kNeeds,
                  "sets the momentum of SGD; set optimizer.kind to SGD and optimizer.momentum to the value "
                  "for training without staleness, above 0");
  } else if (kind.reads_momentum) {
    problems->Add(
        path, Reason::kNeeds,
        "measures gaps in steps of SGD's momentum; set optimizer.kind to SGD and optimizer.momentum above 0");
  }
}

}  // namespace

const CompensationKind& KindOf(const v1::Compensation& compensation) {
  for (const CompensationKind& kind : kKinds) {
    if (kind.kind == compensation.kind_case()) return kind;
  }
  return kKinds[0];
}

bool Scales(const v1::Compensation& compensation) {
  return KindOf(compensation).scales || compensation.has_delay_adaptive();
}

void FillCompensation(v1::Job* job) {
  v1::Compensation* const compensation = job->mutable_algorithm()->mutable_compensation();
  if (compensation->kind_case() == v1::Compensation::KIND_NOT_SET) compensation->mutable_none();
  if (const auto fill = KindOf(*compensation).fill_defaults; fill != nullptr)
    fill(job->workers(), compensation);
  FillBeside(UsualStaleness(*job), compensation);
}

std::string DescribeCompensation(const v1::Job& job, const std::string& copies) {
  const v1::Compensation& compensation = job.algorithm().compensation();
  const std::string beside = DescribeBeside(compensation);
  if (compensation.has_none() && !beside.empty()) return beside.substr(1);
  return KindOf(compensation).describe(job, copies) + beside;
}

void CheckCompensation(const v1::Job& job, Problems* problems) {
  const v1::Compensation& compensation = job.algorithm().compensation();
  CheckBeside(job, problems);
  CheckOf(job, problems);
  for (const std::string& path : Parts(compensation)) {
    if (job.algorithm().contribution().has_elastic())
      problems->Add(path, Reason::kConflict, kElasticSendsWeights);
    const v1::Consistency& consistency = job.algorithm().consistency();
    if (!KindOf(consistency).has_staleness) {
      problems->Add(path, Reason::kUnused,
                    absl::StrCat("has no effect with consistency.", KindName(consistency),
                                 ": no contribution is stale; leave it out, or set "
                                 "algorithm.consistency to asynchronous {}"));
    }
  }
  if (compensation.has_none()) return;
  const std::string path = absl::StrCat(kPath, KindName(compensation));
  if (const CompensationKind& kind = KindOf(compensation); kind.check != nullptr)
    kind.check(job, path, problems);
  CheckContribution(job, path, problems);
  CheckConsistency(job, path, problems);
  CheckMomentum(job, path, problems);
}

}  // namespace catchment
