#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/algorithm_facts.h"
#include "common/job/checks.h"

namespace catchment {
namespace {

constexpr uint32_t kMaxCoordinates = 10000;

void CheckDelay(const std::string& path, const v1::DelayCompensation& delay, Problems* problems) {
  problems->Require(delay.lambda() >= 0 && std::isfinite(delay.lambda()), path + ".lambda", delay.lambda(),
                    "must be a number, 0 or above");
  if (delay.adaptive()) {
    problems->BelowOne(path + ".decay", delay.decay());
  } else if (delay.has_decay()) {
    problems->Add(path + ".decay", "belongs to the adaptive kind; leave it out, or set adaptive to true");
  }
}

void CheckLeast(const std::string& path, double least, double momentum, Problems* problems) {
  problems->Require(least > -1 && least <= momentum, path + ".min_momentum", least,
                    absl::StrCat("must be above -1 and at most optimizer.momentum, ", momentum));
}

void CheckFields(const v1::Job& job, const std::string& path, Problems* problems) {
  const v1::Compensation& compensation = job.algorithm().compensation();
  if (compensation.has_power()) {
    problems->Positive(path + ".exponent", compensation.power().exponent());
  } else if (compensation.has_exponential()) {
    problems->Positive(path + ".rate", compensation.exponential().rate());
  } else if (compensation.has_delay_compensated()) {
    CheckDelay(path, compensation.delay_compensated(), problems);
  } else if (compensation.has_open_loop_momentum()) {
    const v1::OpenLoopMomentum& open = compensation.open_loop_momentum();
    CheckLeast(path, open.min_momentum(), job.optimizer().momentum(), problems);
    problems->Within<float>(0, 1, path + ".rate_correction", open.rate_correction());
    problems->Require(open.averaging() > 0 && open.averaging() <= 1, path + ".averaging", open.averaging(),
                      "must be in (0, 1]");
  } else if (compensation.has_closed_loop_momentum()) {
    const v1::ClosedLoopMomentum& closed = compensation.closed_loop_momentum();
    CheckLeast(path, closed.min_momentum(), job.optimizer().momentum(), problems);
    problems->Positive(path + ".gain", closed.gain());
    problems->Within<uint32_t>(1, kMaxCoordinates, path + ".coordinates", closed.coordinates());
  }
}

bool SetsMomentum(const v1::Compensation& compensation) {
  return compensation.has_open_loop_momentum() || compensation.has_closed_loop_momentum();
}

void CheckContribution(const v1::Job& job, const std::string& path, Problems* problems) {
  const v1::Compensation& compensation = job.algorithm().compensation();
  const v1::Contribution& contribution = job.algorithm().contribution();
  if (contribution.has_elastic()) {
    problems->Add(path,
                  "does not belong to contribution elastic, which sends weights, not gradients: the spring "
                  "between worker and center is the same, however old; leave it out");
  } else if (CorrectsGradients(compensation) && !contribution.has_gradient()) {
    problems->Add(path,
                  "needs contribution gradient: it estimates what the gradient itself would be now, and the "
                  "workers send something else; leave it out, or choose inverse, power or exponential");
  } else if (CorrectsGradients(compensation) && job.compression().pull() != v1::Compression::FLOAT32) {
    problems->Add(
        "compression.pull",
        absl::StrCat("is ", v1::Compression::Codec_Name(job.compression().pull()), "; must be FLOAT32 with ",
                     path, ", which compares the center with the very weights that a worker was sent"));
  }
}

void CheckConsistency(const v1::Job& job, const std::string& path, Problems* problems) {
  const v1::Compensation& compensation = job.algorithm().compensation();
  const v1::Consistency& consistency = job.algorithm().consistency();
  if (consistency.groups() == 1) {
    problems->Add(path,
                  "has nothing to do with consistency.groups 1: no contribution is stale; leave it out, or "
                  "set groups to 0");
  } else if (compensation.has_closed_loop_momentum() &&
             (consistency.groups() > 0 || consistency.has_softsync())) {
    problems->Add(path,
                  "needs an update for every contribution, to compare two of them; leave groups 0 and "
                  "softsync out, or choose open_loop_momentum");
  }
}

void CheckMomentum(const v1::Job& job, const std::string& path, Problems* problems) {
  const v1::Optimizer& optimizer = job.optimizer();
  const bool has_momentum = optimizer.kind() == v1::Optimizer::SGD && optimizer.momentum() > 0;
  if (has_momentum) return;
  if (SetsMomentum(job.algorithm().compensation())) {
    problems->Add(
        path,
        "sets the momentum of SGD; set optimizer.kind to SGD and optimizer.momentum above 0, to what "
        "training without staleness would have");
  } else if (job.algorithm().compensation().has_gap_aware()) {
    problems->Add(
        path,
        "measures gaps in steps of SGD's momentum; set optimizer.kind to SGD and optimizer.momentum "
        "above 0");
  }
}

}  // namespace

void CheckCompensation(const v1::Job& job, Problems* problems) {
  const v1::Compensation& compensation = job.algorithm().compensation();
  if (compensation.has_none()) return;
  const auto* const field = compensation.GetDescriptor()->FindFieldByNumber(compensation.kind_case());
  const std::string path = absl::StrCat("algorithm.compensation.", field->name());
  CheckFields(job, path, problems);
  CheckContribution(job, path, problems);
  CheckConsistency(job, path, problems);
  CheckMomentum(job, path, problems);
}

}  // namespace catchment
