#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/checks.h"
#include "common/job/data_shape.h"

namespace catchment {
namespace {

constexpr char kElsewhere[] = "; set it to COSINE or STEP";

bool IsPlateau(const v1::Optimizer& optimizer) {
  return optimizer.schedule().decay() == v1::Schedule::PLATEAU;
}

// Whose learning rate is the workers' own; empty: the servers'.
std::string WorkersRate(const v1::Contribution& contribution) {
  if (contribution.has_elastic()) return "elastic";
  return contribution.has_energy_matching() ? "energy_matching" : "";
}

}  // namespace

void CheckPlateau(const v1::Job& job, Problems* problems) {
  const v1::Contribution& contribution = job.algorithm().contribution();
  if (IsPlateau(contribution.pseudo_gradient().local_optimizer())) {
    problems->Add("algorithm.contribution.pseudo_gradient.local_optimizer.schedule.decay",
                  absl::StrCat("is PLATEAU, of which only the servers are told", kElsewhere,
                               ", or optimizer.schedule.decay to PLATEAU"));
  }
  if (!IsPlateau(job.optimizer())) return;
  const std::string path = "optimizer.schedule.decay";
  if (const std::string kind = WorkersRate(contribution); !kind.empty()) {
    problems->Add(path, absl::StrCat("is PLATEAU, of which only the servers are told; with contribution ",
                                     kind, " the learning rate is the workers'", kElsewhere));
  }
  if (const std::string reason = WhyNoTestSamples(job.data()); !reason.empty()) {
    problems->Add(path, absl::StrCat("is PLATEAU, which follows the test loss, and ", reason, kElsewhere));
  }
  if (job.deterministic()) {
    problems->Add(path,
                  absl::StrCat("is PLATEAU and deterministic is true; evaluations go on beside training, and "
                               "when one is done differs from run to run",
                               kElsewhere, ", or deterministic to false"));
  }
}

}  // namespace catchment
