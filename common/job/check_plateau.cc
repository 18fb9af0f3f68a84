#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/checks.h"
#include "common/job/contribution_kinds.h"
#include "common/job/data_sources.h"

namespace catchment {
namespace {

constexpr char kElsewhere[] = "; set it to COSINE or STEP";

bool IsPlateau(const v1::Optimizer& optimizer) {
  return optimizer.schedule().decay() == v1::Schedule::PLATEAU;
}

}  // namespace

void CheckPlateau(const v1::Job& job, Problems* problems) {
  if (!IsPlateau(job.optimizer())) return;
  const std::string path = "optimizer.schedule.decay";
  const v1::Contribution& contribution = job.algorithm().contribution();
  if (KindOf(contribution).workers_apply_learning_rate) {
    problems->Add(path, Reason::kConflict,
                  absl::StrCat("is PLATEAU, which only the servers can follow; with contribution ",
                               KindName(contribution), " the learning rate is the workers'", kElsewhere));
  }
  if (const std::string reason = WhyNoTestSamples(job.data()); !reason.empty()) {
    problems->Add(path, Reason::kNeeds,
                  absl::StrCat("is PLATEAU, which follows the test loss, and ", reason, kElsewhere));
  }
  if (job.deterministic()) {
    problems->Add(path, Reason::kConflict,
                  absl::StrCat("is PLATEAU and deterministic is true; evaluations run concurrently "
                               "with training and end at different times in each run",
                               kElsewhere, ", or deterministic to false"));
  }
}

}  // namespace catchment
