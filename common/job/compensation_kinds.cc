#include "common/job/compensation_kinds.h"

#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/algorithm_facts.h"
#include "common/text.h"

namespace catchment {
namespace {

constexpr uint32_t kMaxCoordinates = 10000;

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
  return IsSynchronous(job.algorithm().consistency())
             ? "Nothing: there is none."
             : "Nothing: a stale contribution counts like a fresh one.";
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
    problems->Add(path + ".decay", "belongs to the adaptive kind; leave it out, or set adaptive to true");
  }
}

std::string DescribeDelay(const v1::Job& job, const std::string& copies) {
  const v1::DelayCompensation& delay = job.algorithm().compensation().delay_compensated();
  return absl::StrCat("Each gradient g becomes g + lambda * g*g * (w - w_sent), lambda ",
                      Short(delay.lambda()), delay.adaptive() ? " over the gradients' usual size" : "",
                      "; w_sent, what its worker was sent, takes ", copies, ".");
}

int DelayVectors(const v1::Compensation& compensation) { return compensation.delay_compensated().adaptive(); }

std::string DescribeGapAware(const v1::Job&, const std::string& copies) {
  return absl::StrCat(
      "Each gradient is divided by 1 + |w - w_sent| in usual steps; w_sent, what its worker was sent, takes ",
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
  return absl::StrCat("Momentum is lowered by what the measured staleness adds, tau / (1 + tau), from ",
                      Short(job.optimizer().momentum()), " down to ",
                      Short(job.algorithm().compensation().open_loop_momentum().min_momentum()),
                      " at most; the learning rate rises for it.");
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
  return absl::StrCat("Momentum is set so that the total that is measured comes to ",
                      Short(job.optimizer().momentum()), ".");
}

void FillDelayedNesterov(uint32_t workers, v1::Compensation* compensation) {
  CATCHMENT_DEFAULT(compensation->mutable_delayed_nesterov(), every, workers);
}

void CheckDelayedNesterov(const v1::Job& job, const std::string& path, Problems* problems) {
  problems->AtLeast<uint32_t>(1, path + ".every", job.algorithm().compensation().delayed_nesterov().every());
  if (!job.optimizer().nesterov()) {
    problems->Add(path,
                  "delays Nesterov momentum; set optimizer.kind to SGD, optimizer.momentum above 0 and "
                  "optimizer.nesterov to true");
  }
}

std::string DescribeDelayedNesterov(const v1::Job& job, const std::string&) {
  const std::string every = absl::StrCat(job.algorithm().compensation().delayed_nesterov().every());
  return absl::StrCat("A contribution g alone moves the weights by lr * g / ", every,
                      "; the momentum takes up the mean of ", every,
                      " contributions, and moves the weights once for them.");
}

// The sum of the contributions that the momentum has not taken up.
int DelayedNesterovVectors(const v1::Compensation& compensation) {
  return compensation.delayed_nesterov().every() > 1;
}

constexpr CompensationKind kKinds[] = {
    {.kind = v1::Compensation::kNone, .describe = DescribeNone},
    {.kind = v1::Compensation::kInverse, .describe = DescribeInverse},
    {.kind = v1::Compensation::kPower,
     .fill_defaults = FillPower,
     .check = CheckPower,
     .describe = DescribePower},
    {.kind = v1::Compensation::kExponential,
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
     .fill_defaults = FillClosedLoop,
     .check = CheckClosedLoop,
     .describe = DescribeClosedLoop},
    {.kind = v1::Compensation::kDelayedNesterov,
     .needs_each = true,
     .fill_defaults = FillDelayedNesterov,
     .check = CheckDelayedNesterov,
     .describe = DescribeDelayedNesterov,
     .vectors = DelayedNesterovVectors},
};

// ------------------------------------------------------------------------ combinations with the other axes

void CheckContribution(const v1::Job& job, const std::string& path, Problems* problems) {
  const v1::Compensation& compensation = job.algorithm().compensation();
  const v1::Contribution& contribution = job.algorithm().contribution();
  if (contribution.has_elastic()) {
    problems->Add(path,
                  "does not belong to contribution elastic, which sends weights, not gradients: the spring "
                  "between worker and center is the same, however old; leave it out");
  } else if (KindOf(compensation).corrects_gradients && !contribution.has_gradient()) {
    problems->Add(path,
                  "needs contribution gradient: it estimates what the gradient itself would be now, and the "
                  "workers send something else; leave it out, or choose inverse, power or exponential");
  } else if (KindOf(compensation).corrects_gradients &&
             job.compression().pull() != v1::Compression::FLOAT32) {
    problems->Add(
        "compression.pull",
        absl::StrCat("is ", v1::Compression::Codec_Name(job.compression().pull()), "; must be FLOAT32 with ",
                     path, ", which compares the center with the very weights that a worker was sent"));
  }
}

void CheckConsistency(const v1::Job& job, const std::string& path, Problems* problems) {
  const v1::Compensation& compensation = job.algorithm().compensation();
  const v1::Consistency& consistency = job.algorithm().consistency();
  if (consistency.has_synchronous()) {
    problems->Add(
        path,
        "has no effect with consistency.synchronous: no contribution is stale; leave it out, or set "
        "algorithm.consistency to asynchronous {}");
  } else if (KindOf(compensation).needs_each && (consistency.has_grouped() || consistency.has_n_softsync())) {
    problems->Add(path,
                  "needs an update for every contribution; set algorithm.consistency to asynchronous {} or "
                  "bounded_staleness {}, or choose open_loop_momentum");
  }
}

void CheckMomentum(const v1::Job& job, const std::string& path, Problems* problems) {
  const v1::Optimizer& optimizer = job.optimizer();
  const bool has_momentum = optimizer.kind() == v1::Optimizer::SGD && optimizer.momentum() > 0;
  if (has_momentum) return;
  const CompensationKind& kind = KindOf(job.algorithm().compensation());
  if (kind.sets_momentum) {
    problems->Add(
        path,
        "sets the momentum of SGD; set optimizer.kind to SGD and optimizer.momentum above 0, to what "
        "training without staleness would have");
  } else if (kind.reads_momentum) {
    problems->Add(
        path,
        "measures gaps in steps of SGD's momentum; set optimizer.kind to SGD and optimizer.momentum "
        "above 0");
  }
}

}  // namespace

const CompensationKind& KindOf(const v1::Compensation& compensation) {
  for (const CompensationKind& kind : kKinds) {
    if (kind.kind == compensation.kind_case()) return kind;
  }
  return kKinds[0];
}

void CheckCompensation(const v1::Job& job, Problems* problems) {
  const v1::Compensation& compensation = job.algorithm().compensation();
  if (compensation.has_none()) return;
  const std::string path = absl::StrCat("algorithm.compensation.", KindName(compensation));
  if (const CompensationKind& kind = KindOf(compensation); kind.check != nullptr)
    kind.check(job, path, problems);
  CheckContribution(job, path, problems);
  CheckConsistency(job, path, problems);
  CheckMomentum(job, path, problems);
}

}  // namespace catchment
