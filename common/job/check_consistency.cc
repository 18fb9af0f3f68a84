#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/checks.h"

namespace catchment {
namespace {

constexpr uint32_t kMaxDelay = 10000;

const char kPath[] = "algorithm.consistency.";
const char kDelay[] = "algorithm.emulated_delay";

// Updates are made by groups.
void CheckGroups(const v1::Consistency& consistency, uint32_t workers, Problems* problems) {
  const uint32_t groups = consistency.groups();
  if (groups > workers) {
    return problems->Add(
        absl::StrCat(kPath, "groups"),
        absl::StrCat("is ", groups, ", and workers is ", workers,
                     "; every group needs a worker: lower it, raise workers, or set it to 0, "
                     "where each worker is a group of its own"));
  }
  const uint32_t smallest = workers / groups;
  if (consistency.spare_workers() >= smallest) {
    problems->Add(absl::StrCat(kPath, "spare_workers"),
                  absl::StrCat("is ", consistency.spare_workers(), ", and the smallest of ", groups,
                               groups == 1 ? " group has " : " groups has ", smallest,
                               smallest == 1 ? " worker" : " workers",
                               "; must be below that, so that at least one contribution counts"));
  }
}

void CheckOfArrivalAlone(const v1::Algorithm& algorithm, Problems* problems) {
  const v1::Consistency& consistency = algorithm.consistency();
  const std::string hint = "; leave it out, or set algorithm.consistency.groups to 0";
  if (consistency.has_softsync()) {
    problems->Add(absl::StrCat(kPath, "softsync"),
                  "belongs to groups 0: a group's updates wait for its members" + hint);
  }
  if (consistency.has_staleness_bound()) {
    problems->Add(
        absl::StrCat(kPath, "staleness_bound"),
        "belongs to groups 0: workers in a group advance together, so a staleness bound has no effect" +
            hint);
  }
  if (algorithm.emulated_delay() > 0) {
    problems->Add(kDelay, "belongs to groups 0: in groups the whole group would be late" + hint);
  }
}

// Returns true if no update waits for another.
void CheckArrival(const v1::Consistency& consistency, uint32_t workers, Problems* problems) {
  if (consistency.spare_workers() > 0) {
    problems->Add(absl::StrCat(kPath, "spare_workers"),
                  "belongs to groups above 0: with 0 no update waits for several workers; leave it out, or "
                  "set algorithm.consistency.groups to 1");
  }
  if (consistency.has_softsync()) {
    problems->Within<uint32_t>(1, workers, absl::StrCat(kPath, "softsync"), consistency.softsync());
  }
  if (consistency.has_softsync() && consistency.has_staleness_bound()) {
    problems->Add(
        absl::StrCat(kPath, "staleness_bound"),
        "does not go with softsync, where a worker goes on before its contribution is applied: nothing "
        "says how far it is ahead; leave one of them out");
  }
}

void CheckDelay(const v1::Algorithm& algorithm, Problems* problems) {
  problems->Within<uint32_t>(0, kMaxDelay, kDelay, algorithm.emulated_delay());
  if (algorithm.emulated_delay() == 0) return;
  if (algorithm.consistency().has_softsync()) {
    problems->Add(
        kDelay,
        "does not go with consistency.softsync: both hold contributions back, and staleness would be of "
        "neither; leave one of them out");
  }
  if (algorithm.consistency().has_staleness_bound()) {
    problems->Add(
        kDelay,
        "does not go with consistency.staleness_bound, which a contribution that is held back would not "
        "keep; leave one of them out");
  }
}

// An exchange moves worker and center by one difference, at the same time.
void CheckElastic(const v1::Job& job, Problems* problems) {
  const v1::Algorithm& algorithm = job.algorithm();
  const std::string apart =
      "does not go with contribution elastic: the worker would be moved before the center, by another "
      "difference";
  if (algorithm.consistency().has_softsync()) problems->Add(absl::StrCat(kPath, "softsync"), apart);
  if (algorithm.emulated_delay() > 0) problems->Add(kDelay, apart);
  if (algorithm.consistency().spare_workers() > 0) {
    problems->Add(
        absl::StrCat(kPath, "spare_workers"),
        "does not go with contribution elastic: a worker whose exchange is dropped would be moved, and "
        "the center not");
  }
  if (job.optimizer().worker_scaling() != v1::Optimizer::NO_SCALING) {
    problems->Add(
        "optimizer.worker_scaling",
        "does not go with contribution elastic, whose optimizer runs on each worker by itself; leave it "
        "out");
  }
}

}  // namespace

void CheckConsistency(const v1::Job& job, Problems* problems) {
  const v1::Algorithm& algorithm = job.algorithm();
  const uint32_t workers = std::max(1u, job.workers());
  if (algorithm.consistency().groups() > 0) {
    CheckGroups(algorithm.consistency(), workers, problems);
    CheckOfArrivalAlone(algorithm, problems);
  } else {
    CheckArrival(algorithm.consistency(), workers, problems);
    CheckDelay(algorithm, problems);
  }
  problems->Require(v1::Optimizer::WorkerScaling_IsValid(job.optimizer().worker_scaling()),
                    "optimizer.worker_scaling", static_cast<int>(job.optimizer().worker_scaling()),
                    "must be NO_SCALING, LINEAR or SQUARE_ROOT");
  if (algorithm.contribution().has_elastic()) CheckElastic(job, problems);
}

}  // namespace catchment
