#include "cli/watch/advice.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/text.h"
#include "common/base/work_rates.h"
#include "common/job/algorithm_facts.h"
#include "common/job/data_sources.h"

namespace catchment {
namespace {

// A worker is judged only after this time and this number of steps. Its first steps, with cold caches and
// the choice of kernels, then weigh little, and an interruption of one second is a tenth of the time.
constexpr double kWarmUpSeconds = 10;
constexpr double kWarmUpSteps = 50;
// The number of pushes before their staleness or outcomes are judged: the standard error of a share is below
// 0.04.
constexpr double kEnoughPushes = 200;

// A worker of a synchronous job that takes twice the time of the others costs as much as the loss of half of
// them.
constexpr double kStragglerTimes = 2;
// The expected mean is an upper bound (see ExpectedStaleness). An excess of one half, and of one version for
// jobs with few workers, is not explained by fluctuations.
constexpr double kStalenessTimes = 1.5;
constexpr double kStalenessMore = 1;
// A share of the workers' time. Computing during it would be worth half as many additional workers.
constexpr double kServersShare = 1.0 / 3;
// A share of the workers' time. Minibatches are read ahead, so any wait means that reading is slower than
// computing; below this bound it costs little.
constexpr double kDataShare = 0.2;
// A share of the lease. Heartbeats are sent at least every quarter of it: at half, two are missing.
constexpr double kHeartbeatShare = 0.5;
// Shards report ten times a second, and at least every 5 s; an older report indicates a problem.
constexpr double kShardBehindSeconds = 10;
// Relative to an even share: a contribution is in flight until the largest shard has received it.
constexpr double kShardTimes = 1.5;
// The transfer of a smaller shard takes less than a millisecond on any network, so its size does not matter.
constexpr double kLargeShardParameters = 1 << 20;
// Without backup workers only contributions that are in flight when a worker is declared lost should be late.
constexpr double kLateShare = 0.01;
// With backup workers some contributions are late by design. If most of one worker's are, its work is wasted.
constexpr double kLateShareOfOne = 0.5;
// With a staleness limit, more than this share says that it is below the usual staleness.
constexpr double kLateShareWithLimit = 0.25;
// The same with a quorum, whose calls bring nearly all contributions in time.
constexpr double kLateShareWithQuorum = 0.1;
// An evaluator reads its data before it joins.
constexpr double kEvaluatorSeconds = 30;
// A multiple of checkpoint.every_updates or every_seconds, and a lower bound in seconds for jobs that save
// very often.
constexpr double kCheckpointTimes = 2;
constexpr double kCheckpointSeconds = 60;
// Scores of a test set of 1000 samples vary by about 2 % by chance.
constexpr double kTestLossTimes = 1.05;
constexpr uint64_t kEvaluationsSinceBest = 3;

// Returns "33 %" or "0.5 %".
std::string Share(double share) { return Short(100 * share, 2) + " %"; }
std::string Times(double times) { return Short(times, 3); }

std::string Name(const v1::WorkerStatus& worker) {
  return absl::StrCat("worker ", worker.worker(), " (", worker.host(), ":", worker.pid(), ")");
}

const v1::Consistency& ConsistencyOf(const v1::JobStatus& status) {
  return status.settings().algorithm().consistency();
}

// Returns true if every update waits for all workers of a group.
bool AllWait(const v1::JobStatus& status) {
  const v1::Consistency& consistency = ConsistencyOf(status);
  return NumGroups(consistency) > 0 && BackupWorkers(consistency) == 0 && !consistency.has_quorum();
}

// A worker of `status` with its work.
struct WarmedUpWorker {
  const v1::WorkerStatus* worker;
  Work work;
};

std::vector<WarmedUpWorker> WarmedUpWorkers(const v1::JobStatus& status) {
  std::vector<WarmedUpWorker> workers;
  for (const v1::WorkerStatus& worker : status.workers()) {
    const Work work = WorkOf(worker, nullptr);
    if (work.seconds() >= kWarmUpSeconds && work.steps >= kWarmUpSteps) workers.push_back({&worker, work});
  }
  return workers;
}

Work Sum(const std::vector<WarmedUpWorker>& workers) {
  Work sum;
  for (const WarmedUpWorker& one : workers) sum += one.work;
  return sum;
}

// The numbers of pushes by outcome. All shards receive all pushes, but a NaN may be in the part of only one.
struct PushOutcomes {
  double applied = 0;
  double late = 0;
  double non_finite = 0;
  double late_share() const { return applied + late > 0 ? late / (applied + late) : 0; }
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

// ------------------------------------------------------------------------------------------------ workers

std::string StragglerWhy(const v1::JobStatus& status) {
  if (AllWait(status)) return "The others of its group wait for it at every update.";
  if (NumGroups(ConsistencyOf(status)) > 0) {
    return "Updates do not wait for it unless another worker is even slower; its contributions are dropped.";
  }
  if (StalenessBound(ConsistencyOf(status)).has_value()) {
    return "Its contributions are staler than the others', and workers that reach the staleness bound wait "
           "for it.";
  }
  return "Its contributions are as many times staler as it is slower.";
}

std::string StragglerAdvice(const v1::JobStatus& status) {
  const std::string machine =
      "Check the load of its machine and its --threads, or move it to another machine";
  if (!AllWait(status)) return machine + ", or end it: its samples are assigned to others.";
  return machine +
         "; or use algorithm.preset sync_backup, which does not wait for the slowest worker, or downpour or "
         "easgd, in which no worker waits.";
}

void FindStragglers(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  const std::vector<WarmedUpWorker> workers = WarmedUpWorkers(status);
  if (workers.size() < 2) return;
  std::vector<double> seconds;
  for (const WarmedUpWorker& one : workers) seconds.push_back(*one.work.compute_per_step());
  // The lower median: of two workers the faster one.
  std::nth_element(seconds.begin(), seconds.begin() + (seconds.size() - 1) / 2, seconds.end());
  const double median = seconds[(seconds.size() - 1) / 2];
  for (const WarmedUpWorker& one : workers) {
    const double mine = *one.work.compute_per_step();
    if (median <= 0 || mine < kStragglerTimes * median) continue;
    warnings->push_back(
        {.code = "straggler",
         .worker = one.worker->worker(),
         .measured = mine / median,
         .bound = kStragglerTimes,
         .found = absl::StrCat(Name(*one.worker), " computes ", Duration(mine), " a step, ",
                               Times(mine / median), " times the median of ", Duration(median)),
         .why = StragglerWhy(status),
         .advice = StragglerAdvice(status)});
  }
}

std::string PeriodField(const v1::JobStatus& status) {
  switch (status.settings().algorithm().contribution().kind_case()) {
    case v1::Contribution::kElastic:
      return "algorithm.contribution.elastic.communication_period";
    case v1::Contribution::kPseudoGradient:
      return "algorithm.contribution.pseudo_gradient.local_steps";
    case v1::Contribution::kGradient:
      return "algorithm.contribution.gradient.push_period";
    default:
      return "";
  }
}

std::string ServersAdvice(const v1::JobStatus& status) {
  const v1::Contribution& contribution = status.settings().algorithm().contribution();
  std::string advice = AllWait(status) ? "First deal with any stragglers. Then start" : "Start";
  absl::StrAppend(&advice, " more servers (at resume)");
  if (!contribution.has_elastic()) absl::StrAppend(&advice, ", make messages smaller (compression.push)");
  if (!PeriodField(status).empty()) absl::StrAppend(&advice, ", raise ", PeriodField(status));
  if (contribution.has_gradient()) absl::StrAppend(&advice, ", or use algorithm.preset local_sgd or easgd");
  return advice + ". A larger batch_size also lengthens the computation between messages.";
}

void FindWaits(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  const Work work = Sum(WarmedUpWorkers(status));
  const double servers = work.share(work.push + work.pull).value_or(0);
  if (servers > kServersShare) {
    warnings->push_back(
        {.code = "waiting_for_servers",
         .measured = servers,
         .bound = kServersShare,
         .found = absl::StrCat("workers wait for pushes and pulls ", Share(servers),
                               " of their time, more than ", Share(kServersShare)),
         .why = AllWait(status) ? "They compute nothing meanwhile. This includes waiting for slower workers."
                                : "They compute nothing meanwhile.",
         .advice = ServersAdvice(status)});
  }
  const double data = work.share(work.data).value_or(0);
  if (data > kDataShare) {
    warnings->push_back(
        {.code = "waiting_for_data",
         .measured = data,
         .bound = kDataShare,
         .found = absl::StrCat("workers wait for minibatches ", Share(data), " of their time, more than ",
                               Share(kDataShare)),
         .why =
             "Minibatches are read ahead, so reading them (or getting them from the master) is slower than "
             "computing.",
         .advice =
             "Put the data on a local disk (--stage), leave processors free for data.loader_threads in "
             "addition "
             "to the worker's --threads and raise it, or raise batch_size if steps take less than a few "
             "milliseconds."});
  }
}

void FindSilentWorkers(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  const double lease = status.settings().faults().heartbeat_timeout_seconds();
  for (const v1::WorkerStatus& worker : status.workers()) {
    const double silent = worker.seconds_since_heartbeat();
    if (lease <= 0 || silent <= kHeartbeatShare * lease) continue;
    warnings->push_back({.code = "heartbeat_late",
                         .worker = worker.worker(),
                         .measured = silent,
                         .bound = kHeartbeatShare * lease,
                         .found = absl::StrCat(Name(worker), " sent its last heartbeat ", Seconds(silent),
                                               " ago; they are due at least every ", Duration(lease / 4)),
                         .why = absl::StrCat("After ", Seconds(lease),
                                             " it is declared lost, and its samples are assigned to others."),
                         .advice = "Check that its process is alive (its log, its machine's memory) and can "
                                   "reach the master. If it is only delayed occasionally, raise "
                                   "faults.heartbeat_timeout_seconds."});
  }
}

void FindNoProgress(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  const double lease = status.settings().faults().heartbeat_timeout_seconds();
  const double limit = status.settings().faults().stuck_seconds();
  for (const v1::WorkerStatus& worker : status.workers()) {
    const double seconds = worker.seconds_without_progress();
    if (seconds <= 0) continue;
    warnings->push_back(
        {.code = "no_progress",
         .worker = worker.worker(),
         .measured = seconds,
         .bound = 3 * lease,
         .found = absl::StrCat(Name(worker), " has work and has made no progress for ", Seconds(seconds),
                               ", although it sends heartbeats"),
         .why = absl::StrCat("Synchronous workers, and those at a staleness bound, wait for it.",
                             limit > 0 ? absl::StrCat(" After ", Seconds(limit),
                                                      " (faults.stuck_seconds) it is declared lost.")
                                       : ""),
         .advice =
             "Find out what its training thread is doing (its log, a debugger, its device). If you end it, "
             "its samples are assigned to the others at once."});
  }
}

void FindMissingWorkers(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  const int wanted = static_cast<int>(status.settings().workers());
  if (status.workers_size() == 0 || status.workers_size() >= wanted) return;
  warnings->push_back(
      {.code = "workers_missing",
       .measured = static_cast<double>(status.workers_size()),
       .bound = static_cast<double>(wanted),
       .found =
           absl::StrCat("training continues with ", status.workers_size(), " of ", Plural(wanted, "worker")),
       .why = "Training takes longer, and the learning rate and the moving rate were chosen for all of them.",
       .advice = "See the events and the lost workers' logs for the reason. Start new workers with the same "
                 "command; "
                 "they join at once."});
}

void FindNoEvaluator(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  double longest = 0;
  for (const WarmedUpWorker& one : WarmedUpWorkers(status)) longest = std::max(longest, one.work.seconds());
  if (status.evaluators() > 0 || longest < kEvaluatorSeconds) return;
  if (!WhyNoTestSamples(status.settings().data()).empty()) return;
  warnings->push_back(
      {.code = "no_evaluator",
       .measured = 0,
       .bound = 1,
       .found = "there is no evaluator, although the job's data have test samples",
       .why = "The test set is not scored, so neither the progress nor the quality of the result is known.",
       .advice = "Start one, at any time: catchment_worker --role=evaluator --master=HOST:PORT."});
}

// ------------------------------------------------------------------------------------------ contributions

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
       .advice = absl::StrCat("Lower optimizer.learning_rate, raise optimizer.schedule.warmup, or set "
                              "optimizer.clip_norm.",
                              sender ? " If it is only this worker, check its data and its device." : "")});
}

// Names the workers whose contributions are mostly late. Returns the outcomes of the others.
PushOutcomes FindAlwaysLate(const v1::JobStatus& status, const std::string& why, const std::string& advice,
                            std::vector<Warning>* warnings) {
  PushOutcomes others;
  for (const auto& [worker, outcomes] : OutcomesByWorker(status)) {
    if (outcomes.applied + outcomes.late < kEnoughPushes || outcomes.late_share() <= kLateShareOfOne) {
      others.applied += outcomes.applied;
      others.late += outcomes.late;
      continue;
    }
    warnings->push_back(
        {.code = "contributions_late",
         .worker = worker,
         .measured = outcomes.late_share(),
         .bound = kLateShareOfOne,
         .found = absl::StrCat(Share(outcomes.late_share()), " of worker ", worker,
                               "'s contributions arrived after their update was made, more than half"),
         .why = why,
         .advice = advice});
  }
  return others;
}

void FindLateWithBackup(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  FindAlwaysLate(status,
                 "backup_workers is meant for workers that are slow occasionally; this one always is, and "
                 "its work is wasted.",
                 "Move it to another machine, or end it and lower backup_workers.", warnings);
}

void FindLateWithQuorum(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  const PushOutcomes others = FindAlwaysLate(
      status,
      "Its steps take longer than the grace, or its link does, and most of its work is lost: a late "
      "contribution is dropped.",
      "Give it a faster device, more --threads or a faster link, or raise "
      "contribution.pseudo_gradient.overlap_steps or consistency.quorum.grace; with quorum.minimum equal to "
      "workers every update waits for it.",
      warnings);
  if (others.applied + others.late < kEnoughPushes || others.late_share() <= kLateShareWithQuorum) return;
  warnings->push_back({.code = "contributions_late",
                       .measured = others.late_share(),
                       .bound = kLateShareWithQuorum,
                       .found = absl::StrCat(Share(others.late_share()),
                                             " of contributions arrived after their update was made"),
                       .why = "The grace ends before they are there, and their steps are lost.",
                       .advice = "Raise consistency.quorum.minimum or grace, or "
                                 "contribution.pseudo_gradient.overlap_steps."});
}

void FindLateWithLimit(const PushOutcomes& all, uint32_t limit, std::vector<Warning>* warnings) {
  if (all.applied + all.late < kEnoughPushes || all.late_share() <= kLateShareWithLimit) return;
  warnings->push_back(
      {.code = "contributions_late",
       .measured = all.late_share(),
       .bound = kLateShareWithLimit,
       .found = absl::StrCat(Share(all.late_share()), " of contributions were ", limit,
                             " updates old or more, and were dropped"),
       .why =
           "staleness_limit is meant for outliers, but the usual staleness, about workers - 1, reaches it, "
           "and work is lost.",
       .advice = "Raise staleness_limit, or use fewer workers."});
}

void FindLate(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  if (BackupWorkers(ConsistencyOf(status)) > 0) return FindLateWithBackup(status, warnings);
  if (ConsistencyOf(status).has_quorum()) return FindLateWithQuorum(status, warnings);
  PushOutcomes all;
  for (const auto& [worker, outcomes] : OutcomesByWorker(status)) {
    all.applied += outcomes.applied;
    all.late += outcomes.late;
  }
  if (const uint32_t limit = ConsistencyOf(status).asynchronous().staleness_limit(); limit > 0)
    return FindLateWithLimit(all, limit, warnings);
  if (all.applied + all.late < kEnoughPushes || all.late_share() <= kLateShare) return;
  warnings->push_back(
      {.code = "contributions_late",
       .measured = all.late_share(),
       .bound = kLateShare,
       .found = absl::StrCat(Share(all.late_share()),
                             " of contributions arrived after their update was made, more than ",
                             Share(kLateShare)),
       .why = "They are dropped. Without backup workers only workers declared lost should be late.",
       .advice = "See the events: workers that are lost and return need a longer "
                 "faults.heartbeat_timeout_seconds or a better network."});
}

// ------------------------------------------------------------------------------------------------ shards

void FindShardsBehind(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  uint64_t highest = 0;
  for (const v1::ShardReport& shard : status.shards()) highest = std::max(highest, shard.version());
  // The average number of updates in that time.
  const double bound = status.wall_seconds() > kShardBehindSeconds
                           ? static_cast<double>(highest) / status.wall_seconds() * kShardBehindSeconds
                           : 0;
  for (const v1::ShardReport& shard : status.shards()) {
    const double behind = static_cast<double>(highest - shard.version());
    if (bound <= 0 || behind <= std::max<double>(bound, status.workers_size())) continue;
    warnings->push_back(
        {.code = "shard_behind",
         .shard = shard.shard(),
         .measured = behind,
         .bound = bound,
         .found = absl::StrCat("server ", shard.shard(), " is ", Count(static_cast<int64_t>(behind)),
                               " updates behind the first, more than ", Seconds(kShardBehindSeconds),
                               " of training"),
         .why = "It is overloaded, or the master cannot reach it. Workers need all shards for every step.",
         .advice = "Check its log and its machine's load and network. A server that cannot be reached for "
                   "faults.connect_timeout_seconds ends the job."});
  }
}

void FindLargeShards(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  if (status.servers_size() < 2) return;
  double sum = 0;
  for (const v1::ServerStatus& server : status.servers()) sum += static_cast<double>(server.parameters());
  const double even = sum / status.servers_size();
  for (int s = 0; s < status.servers_size(); ++s) {
    const double parameters = static_cast<double>(status.servers(s).parameters());
    if (parameters < kLargeShardParameters || parameters <= kShardTimes * even) continue;
    warnings->push_back(
        {.code = "shard_large",
         .shard = static_cast<uint32_t>(s),
         .measured = parameters / even,
         .bound = kShardTimes,
         .found = absl::StrCat("server ", s, " holds ", Count(static_cast<int64_t>(parameters)),
                               " parameters, ", Times(parameters / even), " times an even share"),
         .why = "Every push and pull takes as long as the largest shard's part of it.",
         .advice =
             "Lower block_kib, the unit of placement; with the optimizers LARS, LARC and LAMB, which need "
             "whole tensors, use fewer servers. `catchment validate` shows the placement."});
  }
}

// ------------------------------------------------------------------------------------------------ the job

void FindOverdueCheckpoint(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  const v1::Checkpointing& settings = status.settings().checkpoint();
  const double every_updates = static_cast<double>(settings.every_updates());
  const double every_seconds = settings.every_seconds();
  const double updates = static_cast<double>(status.updates());
  if (!status.writes_checkpoints() || updates == 0) return;
  const double since = updates - static_cast<double>(status.last_checkpoint());
  const double seconds = since / updates * status.wall_seconds();
  const bool by_updates = every_updates > 0 && since > kCheckpointTimes * every_updates;
  const bool by_seconds = every_seconds > 0 && seconds > kCheckpointTimes * every_seconds;
  if (!(by_updates || by_seconds) || seconds < kCheckpointSeconds) return;
  warnings->push_back(
      {.code = "checkpoint_overdue",
       .measured = by_updates ? since : seconds,
       .bound = kCheckpointTimes * (by_updates ? every_updates : every_seconds),
       .found = absl::StrCat(
           status.last_checkpoint() == 0
               ? "there is no checkpoint yet after "
               : absl::StrCat("the last checkpoint, ", status.last_checkpoint(), ", is older by "),
           Count(static_cast<int64_t>(since)), " updates (about ", Seconds(seconds), "); ",
           by_updates ? absl::StrCat("checkpoint.every_updates is ", settings.every_updates())
                      : absl::StrCat("checkpoint.every_seconds is ", settings.every_seconds())),
       .why = "If the job ends now, this training is lost.",
       .advice =
           "Check the servers' logs: a disk is full or too slow, or a server does not save. All servers "
           "need the same --checkpoint_dir, on a shared file system."});
}

void FindCheckpoints(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  for (const v1::ShardReport& shard : status.shards()) {
    if (shard.save_error().empty()) continue;
    warnings->push_back(
        {.code = "checkpoint_failed",
         .shard = shard.shard(),
         .measured = 1,
         .bound = 0,
         .found = absl::StrCat("server ", shard.shard(),
                               " could not save its part of a checkpoint: ", shard.save_error()),
         .why = "If the job ends now, it can only be resumed from an older checkpoint, or not at all.",
         .advice = "Free space, or give the server permission to write; it retries."});
  }
  FindOverdueCheckpoint(status, warnings);
}

// The status has the last and the best test loss and the current training loss, but no history.
void FindOverFitting(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  const double best = status.best_test_loss();
  if (status.best_evaluation() == 0 || status.evaluations_since_best() < kEvaluationsSinceBest) return;
  if (status.test_loss() <= kTestLossTimes * best || status.train_loss() >= best) return;
  warnings->push_back(
      {.code = "over_fitting",
       .measured = status.test_loss() / best,
       .bound = kTestLossTimes,
       .found = absl::StrCat("the test loss is ", Short(status.test_loss(), 4), ", ",
                             Times(status.test_loss() / best), " times its best of ", Short(best, 4), " ",
                             status.evaluations_since_best(), " evaluations ago; the training loss is ",
                             Short(status.train_loss(), 4)),
       .why = "The model memorizes its training samples and gets worse on new ones.",
       .advice =
           "Stop, and use the best weights (evaluation.keep_best, evaluation.patience); then add data or "
           "data.augmentation, dropout, or optimizer.weight_decay."});
}

}  // namespace

double ExpectedStaleness(const v1::Job& job) {
  const v1::Consistency& consistency = job.algorithm().consistency();
  const double workers = std::max<double>(1, job.workers());
  if (const uint32_t groups = NumGroups(consistency); groups > 0)
    return std::min<double>(groups, workers) - 1;
  double expected = workers - 1;
  const v1::AccruedGradient& gradient = job.algorithm().contribution().gradient();
  if (gradient.push_period() > 0 && gradient.fetch_period() > gradient.push_period()) {
    const double pushes = static_cast<double>(gradient.fetch_period()) / gradient.push_period();
    expected = (pushes - 1) / 2 + (pushes + 1) / 2 * (workers - 1);
  }
  if (IsBuffered(consistency)) return workers / BufferedContributions(consistency, job.workers());
  return expected + consistency.asynchronous().emulated_delay();
}

std::vector<Warning> Advise(const v1::JobStatus& status) {
  std::vector<Warning> warnings;
  if (status.phase() == v1::JobStatus::TRAINING) {
    FindNonFinite(status, &warnings);
    FindSilentWorkers(status, &warnings);
    FindMissingWorkers(status, &warnings);
    FindStragglers(status, &warnings);
    FindWaits(status, &warnings);
    FindNoProgress(status, &warnings);
    FindStaleness(status, &warnings);
    FindLate(status, &warnings);
    FindShardsBehind(status, &warnings);
    FindLargeShards(status, &warnings);
    FindNoEvaluator(status, &warnings);
    FindOverFitting(status, &warnings);
  }
  if (status.phase() == v1::JobStatus::TRAINING || status.phase() == v1::JobStatus::FINISHING) {
    FindCheckpoints(status, &warnings);
  }
  return warnings;
}

}  // namespace catchment
