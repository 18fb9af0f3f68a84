// Warnings about contributions: stale, non-finite and late ones.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/live/advice_rules.h"
#include "common/base/text.h"
#include "common/job/algorithm_facts.h"

namespace catchment {
namespace {

// The numbers of pushes by outcome. All shards receive all pushes, but a NaN may be in the part of only one.
struct PushOutcomes {
  double applied = 0;
  double late = 0;
  double non_finite = 0;
  double late_share() const { return applied + late > 0 ? late / (applied + late) : 0; }
  // Returns true if enough of them are known, and a larger share than `bound` is late.
  bool IsLate(double bound) const { return applied + late >= kEnoughPushes && late_share() > bound; }
  void Add(const PushOutcomes& other) {
    applied += other.applied;
    late += other.late;
    non_finite += other.non_finite;
  }
};

std::map<uint32_t, PushOutcomes> OutcomesByWorker(const v1::JobStatus& status) {
  std::map<uint32_t, PushOutcomes> outcomes;
  for (const v1::ShardReport& shard : status.shards()) {
    for (const v1::WorkerStatistics& worker : shard.workers()) {
      PushOutcomes& of = outcomes[worker.worker()];
      of.applied = std::max<double>(of.applied, worker.applied());
      of.late = std::max<double>(of.late, worker.late());
      of.non_finite = std::max<double>(of.non_finite, worker.non_finite());
    }
  }
  return outcomes;
}

// Returns the warning that the share of late contributions is above `bound`. `found` continues "33 %".
Warning Late(const PushOutcomes& outcomes, double bound, const std::string& found, std::string why,
             std::string advice) {
  return {.code = "contributions_late",
          .measured = outcomes.late_share(),
          .bound = bound,
          .found = Share(outcomes.late_share()) + found,
          .why = std::move(why),
          .advice = std::move(advice)};
}

// Names the workers whose contributions are mostly late. Returns the outcomes of the others.
PushOutcomes FindAlwaysLate(const v1::JobStatus& status, const std::string& why, const std::string& advice,
                            std::vector<Warning>* warnings) {
  PushOutcomes others;
  for (const auto& [worker, outcomes] : OutcomesByWorker(status)) {
    if (outcomes.IsLate(kLateShareOfOne)) {
      const std::string found = absl::StrCat(
          " of worker ", worker, "'s contributions arrived after their update was made, more than half");
      warnings->push_back(Late(outcomes, kLateShareOfOne, found, why, advice));
      warnings->back().worker = worker;
    } else {
      others.Add(outcomes);
    }
  }
  return others;
}

void FindLateWithBackup(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  FindAlwaysLate(status,
                 "backup_workers is meant for workers that are slow occasionally; "
                 "this one always is, and its work is wasted.",
                 "Move it to another machine, or end it and lower backup_workers.", warnings);
}

void FindLateWithQuorum(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  const PushOutcomes others = FindAlwaysLate(
      status,
      "Its steps take longer than the grace, or its link does, "
      "and most of its work is lost: a late contribution is dropped.",
      "Give it a faster device, more --threads or a faster link, or raise "
      "contribution.pseudo_gradient.overlap_steps or consistency.quorum.grace; with quorum.minimum equal to "
      "workers every update waits for it.",
      warnings);
  if (!others.IsLate(kLateShareWithQuorum)) return;
  warnings->push_back(
      Late(others, kLateShareWithQuorum, " of contributions arrived after their update was made",
           "The grace ends before they are there, and their steps are lost.",
           "Raise consistency.quorum.minimum or grace, or contribution.pseudo_gradient.overlap_steps."));
}

void FindLateWithLimit(const PushOutcomes& all, uint32_t limit, std::vector<Warning>* warnings) {
  if (!all.IsLate(kLateShareWithLimit)) return;
  warnings->push_back(
      Late(all, kLateShareWithLimit,
           absl::StrCat(" of contributions were ", limit, " updates old or more, and were dropped"),
           "staleness_limit is meant for outliers, but the usual staleness, "
           "about workers - 1, reaches it, and work is lost.",
           "Raise staleness_limit, or use fewer workers."));
}

}  // namespace

void FindStaleness(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  const double expected = ExpectedStaleness(status.settings());
  const double bound = kStalenessTimes * expected + kStalenessMore;
  if (status.pushes_applied() < kEnoughPushes || status.staleness_mean() <= bound) return;
  const std::string period = PeriodField(status);
  warnings->push_back(
      {.code = "staleness_high",
       .measured = status.staleness_mean(),
       .bound = bound,
       .found = absl::StrCat("contributions are ", Short(status.staleness_mean(), 3),
                             " updates old on average; with ", Plural(status.settings().workers(), "worker"),
                             " and this algorithm ", Short(expected, 3), " are expected"),
       .why =
           "They were computed with old weights. The learning rate and the momentum were chosen for fresher "
           "ones, so training may become slow or diverge.",
       .advice = absl::StrCat("Use fewer workers (there are more than `workers`, or a stream is delayed), ",
                              period.empty() ? "" : absl::StrCat("raise ", period, ", "),
                              "lower optimizer.momentum or the learning rate, or let "
                              "algorithm.compensation correct for it (preset staleness_aware or dc_asgd).")});
}

void FindNonFinite(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  double refused = 0;
  int senders = 0;
  std::optional<uint32_t> sender;
  for (const auto& [worker, outcomes] : OutcomesByWorker(status)) {
    if (outcomes.non_finite == 0) continue;
    refused += outcomes.non_finite;
    sender = ++senders == 1 ? std::optional(worker) : std::nullopt;
  }
  if (refused == 0) return;
  const uint32_t limit = status.settings().faults().non_finite_limit();
  warnings->push_back(
      {.code = "non_finite",
       .worker = sender,
       .measured = refused,
       .bound = 0,
       .found =
           absl::StrCat(Plural(static_cast<int64_t>(refused), "contribution"), " with a NaN or an infinity",
                        sender ? absl::StrCat(" from worker ", *sender) : "", " refused"),
       .why = absl::StrCat("Training is about to diverge",
                           limit > 0 ? absl::StrCat("; after ", limit, " in a row the job fails.") : "."),
       .advice = absl::StrCat("Lower optimizer.learning_rate, raise "
                              "optimizer.schedule.warmup, or set optimizer.clip_norm.",
                              sender ? " If it is only this worker, check its data and its device." : "")});
}

void FindLate(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  if (BackupWorkers(ConsistencyOf(status)) > 0) return FindLateWithBackup(status, warnings);
  if (ConsistencyOf(status).has_quorum()) return FindLateWithQuorum(status, warnings);
  PushOutcomes all;
  for (const auto& [worker, outcomes] : OutcomesByWorker(status)) all.Add(outcomes);
  if (const uint32_t limit = ConsistencyOf(status).asynchronous().staleness_limit(); limit > 0)
    return FindLateWithLimit(all, limit, warnings);
  if (!all.IsLate(kLateShare)) return;
  warnings->push_back(
      Late(all, kLateShare,
           " of contributions arrived after their update was made, more than " + Share(kLateShare),
           "They are dropped. Without backup workers only workers declared lost should be late.",
           "See the events: workers that are lost and return need a longer "
           "faults.heartbeat_timeout_seconds or a better network."));
}

}  // namespace catchment
