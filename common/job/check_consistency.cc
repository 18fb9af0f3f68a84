#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/algorithm_facts.h"
#include "common/job/checks.h"
#include "common/job/consistency_kinds.h"

namespace catchment {
namespace {

// An exchange moves worker and center by one difference, at the same time.
void CheckElastic(const v1::Job& job, const std::string& path, Problems* problems) {
  const v1::Consistency& consistency = job.algorithm().consistency();
  const std::string apart =
      "cannot be combined with contribution elastic: the worker would move before the "
      "center, and by a different amount";
  if (IsBuffered(consistency)) problems->Add(path, Reason::kConflict, apart);
  if (consistency.asynchronous().emulated_delay() > 0)
    problems->Add(path + ".emulated_delay", Reason::kConflict, apart);
  const std::string dropped =
      "cannot be combined with contribution elastic: a dropped exchange would "
      "move the worker but not the center";
  if (BackupWorkers(consistency) > 0) problems->Add(path + ".backup_workers", Reason::kConflict, dropped);
  if (consistency.asynchronous().staleness_limit() > 0)
    problems->Add(path + ".staleness_limit", Reason::kConflict, dropped);
  if (job.optimizer().worker_scaling() != v1::Optimizer::NO_SCALING) {
    problems->Add("optimizer.worker_scaling", Reason::kConflict,
                  "cannot be combined with contribution elastic, "
                  "whose optimizer runs on each worker by itself; leave it out");
  }
}

}  // namespace

void CheckConsistency(const v1::Job& job, Problems* problems) {
  const v1::Consistency& consistency = job.algorithm().consistency();
  const std::string path = absl::StrCat("algorithm.consistency.", KindName(consistency));
  if (const auto check = KindOf(consistency).check; check != nullptr) check(job, path, problems);
  problems->Require(v1::Optimizer::WorkerScaling_IsValid(job.optimizer().worker_scaling()),
                    "optimizer.worker_scaling", static_cast<int>(job.optimizer().worker_scaling()),
                    "must be NO_SCALING, LINEAR or SQUARE_ROOT");
  if (job.algorithm().contribution().has_elastic()) CheckElastic(job, path, problems);
}

}  // namespace catchment
