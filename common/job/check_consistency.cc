#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/algorithm_facts.h"
#include "common/job/checks.h"

namespace catchment {
namespace {

constexpr uint32_t kMaxDelay = 10000;

const char kPath[] = "algorithm.consistency.";
const char kDelay[] = "asynchronous.emulated_delay";
const char kLimit[] = "asynchronous.staleness_limit";

// A job without workers is reported elsewhere.
uint32_t WorkersOf(const v1::Job& job) { return std::max(1u, job.workers()); }

void CheckBackupWorkers(const v1::Job& job, Problems* problems) {
  const uint32_t groups = NumGroups(job.algorithm().consistency());
  const uint32_t backup_workers = BackupWorkers(job.algorithm().consistency());
  const uint32_t smallest = WorkersOf(job) / std::max(1u, groups);
  if (backup_workers < smallest) return;
  problems->Add(
      absl::StrCat(kPath, KindName(job.algorithm().consistency()), ".backup_workers"),
      absl::StrCat("is ", backup_workers, ", and ", groups == 1 ? "the job has " : "the smallest group has ",
                   smallest, smallest == 1 ? " worker" : " workers",
                   "; must be below that, so that at least one contribution counts"));
}

void CheckGroups(const v1::Job& job, Problems* problems) {
  const uint32_t groups = job.algorithm().consistency().grouped().groups();
  const std::string path = absl::StrCat(kPath, "grouped.groups");
  if (groups < 2) {
    problems->Add(path, absl::StrCat("is ", groups, "; must be at least 2; set algorithm.consistency to ",
                                     groups == 1 ? "synchronous {}" : "asynchronous {}", " instead"));
  } else if (groups > WorkersOf(job)) {
    problems->Add(path, absl::StrCat("is ", groups, ", and workers is ", WorkersOf(job),
                                     "; every group needs a worker: lower it, raise workers, or set "
                                     "algorithm.consistency to synchronous {}"));
  } else {
    CheckBackupWorkers(job, problems);
  }
}

void CheckStalenessLimit(const v1::Job& job, Problems* problems) {
  const v1::Asynchronous& asynchronous = job.algorithm().consistency().asynchronous();
  if (!asynchronous.has_staleness_limit()) return;
  const std::string path = absl::StrCat(kPath, kLimit);
  const v1::Contribution& contribution = job.algorithm().contribution();
  if (asynchronous.staleness_limit() == 0) {
    problems->Add(path,
                  "is 0, which drops every contribution; must be at least 1; leave it out for no limit");
  } else if (asynchronous.emulated_delay() > 0) {
    problems->Add(
        path,
        "cannot be combined with emulated_delay, which applies contributions long after answering them; "
        "leave one of them out");
  } else if (contribution.has_gradient() &&
             contribution.gradient().fetch_period() != contribution.gradient().push_period()) {
    problems->Add(
        path,
        "needs a fetch_period that equals push_period: a worker whose contribution is dropped continues "
        "with the newest weights");
  }
}

void CheckSoftsync(const v1::Job& job, Problems* problems) {
  const v1::NSoftsync& softsync = job.algorithm().consistency().n_softsync();
  if (softsync.amount_case() == v1::NSoftsync::kSize) {
    return problems->AtLeast<uint32_t>(1, absl::StrCat(kPath, "n_softsync.size"), softsync.size());
  }
  problems->Within<uint32_t>(1, WorkersOf(job), absl::StrCat(kPath, "n_softsync.n"), softsync.n());
}

void CheckGrace(const v1::Algorithm& algorithm, const std::string& path, Problems* problems) {
  const v1::Quorum& quorum = algorithm.consistency().quorum();
  problems->BelowOne(absl::StrCat(path, ".grace"), quorum.grace());
  problems->Positive(absl::StrCat(path, ".longest_grace_seconds"), quorum.longest_grace_seconds());
  if (quorum.grace() > 0 && algorithm.contribution().pseudo_gradient().overlap_steps() == 0) {
    problems->Add(
        absl::StrCat(path, ".grace"),
        absl::StrCat("is ", quorum.grace(),
                     ", a part of the overlap, and workers wait for their answers at once; set it to "
                     "0, or algorithm.contribution.pseudo_gradient.overlap_steps above 0"));
  }
}

void CheckQuorum(const v1::Job& job, Problems* problems) {
  const v1::Algorithm& algorithm = job.algorithm();
  const std::string path = absl::StrCat(kPath, "quorum");
  problems->Within<uint32_t>(1, WorkersOf(job), absl::StrCat(path, ".minimum"),
                             algorithm.consistency().quorum().minimum());
  if (!algorithm.contribution().has_pseudo_gradient()) {
    return problems->Add(
        path, absl::StrCat("cannot be combined with contribution ", KindName(algorithm.contribution()),
                           ": a called worker would send a part of a minibatch's sum; set "
                           "algorithm.contribution to pseudo_gradient {}, or algorithm.consistency to "
                           "synchronous { backup_workers: 1 }"));
  }
  CheckGrace(algorithm, path, problems);
  if (job.deterministic()) {
    problems->Add(path,
                  "makes updates of the contributions that are in at a time, and deterministic is true; set "
                  "algorithm.consistency to synchronous {}, or deterministic to false");
  }
}

void CheckKind(const v1::Job& job, Problems* problems) {
  const v1::Consistency& consistency = job.algorithm().consistency();
  switch (consistency.kind_case()) {
    case v1::Consistency::kSynchronous:
      return CheckBackupWorkers(job, problems);
    case v1::Consistency::kGrouped:
      return CheckGroups(job, problems);
    case v1::Consistency::kNSoftsync:
      return CheckSoftsync(job, problems);
    case v1::Consistency::kAsynchronous:
      problems->Within<uint32_t>(0, kMaxDelay, absl::StrCat(kPath, kDelay),
                                 consistency.asynchronous().emulated_delay());
      return CheckStalenessLimit(job, problems);
    case v1::Consistency::kQuorum:
      return CheckQuorum(job, problems);
    case v1::Consistency::kBoundedStaleness:
    case v1::Consistency::KIND_NOT_SET:
      return;
  }
}

// An exchange moves worker and center by one difference, at the same time.
void CheckElastic(const v1::Job& job, Problems* problems) {
  const v1::Consistency& consistency = job.algorithm().consistency();
  const std::string apart =
      "cannot be combined with contribution elastic: the worker would move before the center, and by a "
      "different amount";
  if (consistency.has_n_softsync()) problems->Add(absl::StrCat(kPath, "n_softsync"), apart);
  if (consistency.asynchronous().emulated_delay() > 0) problems->Add(absl::StrCat(kPath, kDelay), apart);
  const std::string dropped =
      "cannot be combined with contribution elastic: a dropped exchange would move the worker but not the "
      "center";
  if (BackupWorkers(consistency) > 0)
    problems->Add(absl::StrCat(kPath, KindName(consistency), ".backup_workers"), dropped);
  if (consistency.asynchronous().staleness_limit() > 0) problems->Add(absl::StrCat(kPath, kLimit), dropped);
  if (job.optimizer().worker_scaling() != v1::Optimizer::NO_SCALING) {
    problems->Add("optimizer.worker_scaling",
                  "cannot be combined with contribution elastic, whose optimizer runs on each worker by "
                  "itself; leave it "
                  "out");
  }
}

}  // namespace

void CheckConsistency(const v1::Job& job, Problems* problems) {
  CheckKind(job, problems);
  problems->Require(v1::Optimizer::WorkerScaling_IsValid(job.optimizer().worker_scaling()),
                    "optimizer.worker_scaling", static_cast<int>(job.optimizer().worker_scaling()),
                    "must be NO_SCALING, LINEAR or SQUARE_ROOT");
  if (job.algorithm().contribution().has_elastic()) CheckElastic(job, problems);
}

}  // namespace catchment
