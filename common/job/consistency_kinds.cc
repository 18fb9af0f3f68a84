#include "common/job/consistency_kinds.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "common/job/algorithm_facts.h"

namespace catchment {
namespace {

// A job without workers is reported elsewhere.
uint32_t WorkersOf(const v1::Job& job) { return std::max(1u, job.workers()); }

uint32_t One(const v1::Consistency&) { return 1; }

void CheckBackupWorkers(const v1::Job& job, const std::string& path, Problems* problems) {
  const uint32_t groups = NumGroups(job.algorithm().consistency());
  const uint32_t backup_workers = BackupWorkers(job.algorithm().consistency());
  const uint32_t smallest = WorkersOf(job) / std::max(1u, groups);
  if (backup_workers < smallest) return;
  problems->Add(
      absl::StrCat(path, ".backup_workers"), Reason::kRange,
      absl::StrCat("is ", backup_workers, ", and ", groups == 1 ? "the job has " : "the smallest group has ",
                   smallest, smallest == 1 ? " worker" : " workers",
                   "; must be below that, so that at least one contribution counts"));
}

// Describes what happens to the contributions of backup workers.
std::string Dropped(uint32_t backups) {
  if (backups == 0) return ".";
  return absl::StrCat(" but the last", backups == 1 ? "" : absl::StrCat(" ", backups),
                      ": later contributions are dropped, and their workers are notified.");
}

// ------------------------------------------------------------------------------------------- synchronous

uint32_t SynchronousBackups(const v1::Consistency& consistency) {
  return consistency.synchronous().backup_workers();
}

void FillSynchronous(const v1::Contribution&, v1::Consistency* consistency) {
  CATCHMENT_DEFAULT(consistency->mutable_synchronous(), backup_workers, 0);
}

std::string DescribeSynchronous(const v1::Job& job) {
  if (const uint32_t backups = BackupWorkers(job.algorithm().consistency()); backups > 0) {
    return absl::StrCat("Synchronous with ", Plural(backups, "backup worker"),
                        ". Each update uses the contributions of all ", job.workers(), " workers",
                        Dropped(backups));
  }
  const std::string workers =
      job.workers() == 1 ? "the one worker" : absl::StrCat("each of the ", job.workers(), " workers");
  const std::string wait = job.workers() == 1 ? "" : ", so all wait for the slowest";
  const std::string how = job.algorithm().contribution().has_elastic()
                              ? "All exchange with the same center."
                              : "Gradients are averaged, weighted by their samples.";
  return absl::StrCat("Synchronous. Each update uses one contribution from ", workers, wait, ". ", how);
}

// ------------------------------------------------------------------------------------------------ grouped

uint32_t Groups(const v1::Consistency& consistency) { return consistency.grouped().groups(); }

uint32_t GroupedBackups(const v1::Consistency& consistency) { return consistency.grouped().backup_workers(); }

void FillGrouped(const v1::Contribution&, v1::Consistency* consistency) {
  CATCHMENT_DEFAULT(consistency->mutable_grouped(), groups, 2);
  CATCHMENT_DEFAULT(consistency->mutable_grouped(), backup_workers, 0);
}

void CheckGrouped(const v1::Job& job, const std::string& path, Problems* problems) {
  const uint32_t groups = job.algorithm().consistency().grouped().groups();
  if (groups < 2) {
    problems->Add(path + ".groups", Reason::kRange,
                  absl::StrCat("is ", groups, "; must be at least 2; set algorithm.consistency to ",
                               groups == 1 ? "synchronous {}" : "asynchronous {}", " instead"));
  } else if (groups > WorkersOf(job)) {
    problems->Add(path + ".groups", Reason::kRange,
                  absl::StrCat("is ", groups, ", and workers is ", WorkersOf(job),
                               "; every group needs a worker: lower it, raise workers, or "
                               "set algorithm.consistency to synchronous {}"));
  } else {
    CheckBackupWorkers(job, path, problems);
  }
}

std::string DescribeGrouped(const v1::Job& job) {
  const v1::Grouped& grouped = job.algorithm().consistency().grouped();
  return absl::StrCat(
      "Hybrid. Workers are split into ", grouped.groups(),
      " groups that do not wait for each other; staleness counts the updates of other groups that a "
      "group has not seen. Each update uses the contributions of all members of one group",
      Dropped(grouped.backup_workers()));
}

// ----------------------------------------------------------------------------------------- n_softsync

uint32_t Buffered(const v1::Consistency& consistency, uint32_t workers) {
  const v1::NSoftsync& softsync = consistency.n_softsync();
  const uint32_t most = std::max(1u, workers);
  return softsync.amount_case() == v1::NSoftsync::kSize ? std::min(softsync.size(), most)
                                                        : std::max(1u, most / std::max(1u, softsync.n()));
}

void FillSoftsync(const v1::Contribution&, v1::Consistency* consistency) {
  v1::NSoftsync* const softsync = consistency->mutable_n_softsync();
  if (softsync->amount_case() == v1::NSoftsync::AMOUNT_NOT_SET) softsync->set_n(1);
}

void CheckSoftsync(const v1::Job& job, const std::string& path, Problems* problems) {
  const v1::NSoftsync& softsync = job.algorithm().consistency().n_softsync();
  if (softsync.amount_case() == v1::NSoftsync::kSize) {
    return problems->AtLeast<uint32_t>(1, path + ".size", softsync.size());
  }
  problems->Within<uint32_t>(1, WorkersOf(job), path + ".n", softsync.n());
}

std::string DescribeSoftsync(const v1::Job& job) {
  const v1::NSoftsync& softsync = job.algorithm().consistency().n_softsync();
  return absl::StrCat(
      softsync.amount_case() == v1::NSoftsync::kSize ? "Buffered" : absl::StrCat(softsync.n(), "-softsync"),
      ". No worker waits: each is answered when its contribution arrives. An update is made from every ",
      Plural(static_cast<int64_t>(PaceOf(job).contributions), "contribution"),
      ", from any workers, or fewer as workers leave; staleness is the age of each in updates.");
}

// ---------------------------------------------------------------------- asynchronous, bounded_staleness

constexpr uint32_t kMaxDelay = 10000;

constexpr char kApplied[] =
    "A contribution is applied when it arrives; staleness counts the updates that other workers have made "
    "since its worker fetched the weights.";

void FillAsynchronous(const v1::Contribution&, v1::Consistency* consistency) {
  CATCHMENT_DEFAULT(consistency->mutable_asynchronous(), emulated_delay, 0);
}

void CheckStalenessLimit(const v1::Job& job, const std::string& path, Problems* problems) {
  const v1::Asynchronous& asynchronous = job.algorithm().consistency().asynchronous();
  const v1::Contribution& contribution = job.algorithm().contribution();
  if (asynchronous.staleness_limit() == 0) {
    problems->Add(path, Reason::kRange,
                  "is 0, which drops every contribution; must be at least 1; leave it out for no limit");
  } else if (asynchronous.emulated_delay() > 0) {
    problems->Add(path, Reason::kConflict,
                  "cannot be combined with emulated_delay, which applies contributions long after "
                  "answering them; leave one of them out");
  } else if (contribution.has_gradient() &&
             contribution.gradient().fetch_period() != contribution.gradient().push_period()) {
    problems->Add(path, Reason::kNeeds,
                  "needs a fetch_period that equals push_period: a worker whose contribution is dropped "
                  "continues with the newest weights");
  }
}

void CheckAsynchronous(const v1::Job& job, const std::string& path, Problems* problems) {
  const v1::Asynchronous& asynchronous = job.algorithm().consistency().asynchronous();
  problems->Within<uint32_t>(0, kMaxDelay, path + ".emulated_delay", asynchronous.emulated_delay());
  if (asynchronous.has_staleness_limit()) CheckStalenessLimit(job, path + ".staleness_limit", problems);
}

std::string DescribeAsynchronous(const v1::Job& job) {
  const uint32_t delay = job.algorithm().consistency().asynchronous().emulated_delay();
  if (delay == 0) return absl::StrCat("Asynchronous. No worker waits. ", kApplied);
  return absl::StrCat(
      "Asynchronous, with a delay for experiments. No worker waits: a contribution is answered "
      "when it arrives, and applied when ",
      Plural(delay, "later contribution"), delay == 1 ? " has" : " have",
      " arrived, as if its worker were that much slower.");
}

uint32_t Bound(const v1::Consistency& consistency) { return consistency.bounded_staleness().bound(); }

void FillBounded(const v1::Contribution&, v1::Consistency* consistency) {
  CATCHMENT_DEFAULT(consistency->mutable_bounded_staleness(), bound, 3);
}

std::string DescribeBounded(const v1::Job& job) {
  const uint32_t bound = Bound(job.algorithm().consistency());
  return absl::StrCat(
      "Stale synchronous. ", kApplied, " A worker continues only while it is ",
      bound == 0 ? "no push" : absl::StrCat("at most ", bound, bound == 1 ? " push" : " pushes"),
      " ahead of the slowest.");
}

// ------------------------------------------------------------------------------------------------- quorum

// Without an overlap every second of grace is one that a worker waits.
void FillQuorum(const v1::Contribution& contribution, v1::Consistency* consistency) {
  v1::Quorum* const quorum = consistency->mutable_quorum();
  CATCHMENT_DEFAULT(quorum, minimum, 1);
  CATCHMENT_DEFAULT(quorum, grace, contribution.pseudo_gradient().overlap_steps() > 0 ? 0.5f : 0);
  CATCHMENT_DEFAULT(quorum, longest_grace_seconds, 10);
}

void CheckGrace(const v1::Algorithm& algorithm, const std::string& path, Problems* problems) {
  const v1::Quorum& quorum = algorithm.consistency().quorum();
  problems->BelowOne(absl::StrCat(path, ".grace"), quorum.grace());
  problems->Positive(absl::StrCat(path, ".longest_grace_seconds"), quorum.longest_grace_seconds());
  if (quorum.grace() > 0 && algorithm.contribution().pseudo_gradient().overlap_steps() == 0) {
    problems->Add(
        absl::StrCat(path, ".grace"), Reason::kNeeds,
        absl::StrCat("is ", quorum.grace(),
                     ", a part of the overlap, and workers wait for their answers at once; set it to "
                     "0, or algorithm.contribution.pseudo_gradient.overlap_steps above 0"));
  }
}

void CheckQuorum(const v1::Job& job, const std::string& path, Problems* problems) {
  const v1::Algorithm& algorithm = job.algorithm();
  problems->Within<uint32_t>(1, WorkersOf(job), absl::StrCat(path, ".minimum"),
                             algorithm.consistency().quorum().minimum());
  if (!algorithm.contribution().has_pseudo_gradient()) {
    return problems->Add(
        path, Reason::kConflict,
        absl::StrCat("cannot be combined with contribution ", KindName(algorithm.contribution()),
                     ": a called worker would send a part of a minibatch's sum; set algorithm.contribution "
                     "to pseudo_gradient {}, or algorithm.consistency to synchronous { backup_workers: 1 }"));
  }
  CheckGrace(algorithm, path, problems);
  if (job.deterministic()) {
    problems->Add(path, Reason::kConflict,
                  "makes updates of the contributions that are in at a time, and deterministic is true; set "
                  "algorithm.consistency to synchronous {}, or deterministic to false");
  }
}

std::string DescribeGrace(const v1::Algorithm& algorithm) {
  const v1::Quorum& quorum = algorithm.consistency().quorum();
  if (quorum.grace() == 0) return "";
  return absl::StrCat(" and a grace has passed: ", Short(quorum.grace()), " of the time that ",
                      Plural(algorithm.contribution().pseudo_gradient().overlap_steps(), "step"),
                      " of the fastest worker leave, at most ", Short(quorum.longest_grace_seconds()), " s");
}

std::string DescribeQuorum(const v1::Job& job) {
  const v1::Algorithm& algorithm = job.algorithm();
  const uint32_t minimum = algorithm.consistency().quorum().minimum();
  const std::string all = absl::StrCat("the contributions of all ", job.workers(), " workers");
  if (minimum >= job.workers()) return absl::StrCat("Quorum of all. Each update uses ", all, ".");
  return absl::StrCat("Quorum. The worker that first has ",
                      Plural(static_cast<int64_t>(PaceOf(job).steps_per_version), "step"),
                      " sends its contribution, and the servers call the others, which send theirs when "
                      "their step ends. Each update uses ",
                      all, ", or those that are in when at least ", minimum, minimum == 1 ? " is" : " are",
                      DescribeGrace(algorithm),
                      ". Later contributions are dropped, and their workers are notified.");
}

// The first one is that of jobs without a kind.
constexpr ConsistencyKind kKinds[] = {
    {.kind = v1::Consistency::kAsynchronous,
     .fill_defaults = FillAsynchronous,
     .check = CheckAsynchronous,
     .describe = DescribeAsynchronous},
    {.kind = v1::Consistency::kSynchronous,
     .groups = One,
     .backup_workers = SynchronousBackups,
     .has_staleness = false,
     .fill_defaults = FillSynchronous,
     .check = CheckBackupWorkers,
     .describe = DescribeSynchronous},
    {.kind = v1::Consistency::kGrouped,
     .groups = Groups,
     .backup_workers = GroupedBackups,
     .fill_defaults = FillGrouped,
     .check = CheckGrouped,
     .describe = DescribeGrouped},
    {.kind = v1::Consistency::kNSoftsync,
     .buffered = Buffered,
     .fill_defaults = FillSoftsync,
     .check = CheckSoftsync,
     .describe = DescribeSoftsync},
    {.kind = v1::Consistency::kBoundedStaleness,
     .staleness_bound = Bound,
     .fill_defaults = FillBounded,
     .describe = DescribeBounded},
    {.kind = v1::Consistency::kQuorum,
     .groups = One,
     .has_staleness = false,
     .fill_defaults = FillQuorum,
     .check = CheckQuorum,
     .describe = DescribeQuorum},
};

}  // namespace

absl::Span<const ConsistencyKind> ConsistencyKinds() { return kKinds; }

const ConsistencyKind& KindOf(const v1::Consistency& consistency) {
  for (const ConsistencyKind& kind : kKinds) {
    if (kind.kind == consistency.kind_case()) return kind;
  }
  return kKinds[0];
}

}  // namespace catchment
