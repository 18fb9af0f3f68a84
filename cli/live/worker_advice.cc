// Warnings about workers: slow, silent, stuck and missing ones, and the time that they wait.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/live/advice_rules.h"
#include "common/base/text.h"
#include "common/job/algorithm_facts.h"

namespace catchment {
namespace {

std::string Name(const v1::WorkerStatus& worker) {
  return absl::StrCat("worker ", worker.worker(), " (", worker.host(), ":", worker.pid(), ")");
}

Work Sum(const std::vector<WarmedUpWorker>& workers) {
  Work sum;
  for (const WarmedUpWorker& one : workers) sum += one.work;
  return sum;
}

std::string StragglerWhy(const v1::JobStatus& status) {
  if (AllWait(status)) return "The others of its group wait for it at every update.";
  if (NumGroups(ConsistencyOf(status)) > 0) {
    return "Updates do not wait for it unless another worker is even slower; its contributions are dropped.";
  }
  if (StalenessBound(ConsistencyOf(status)).has_value()) {
    return "Its contributions are staler than the others', "
           "and workers that reach the staleness bound wait for it.";
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

std::string ServersAdvice(const v1::JobStatus& status) {
  const v1::Contribution& contribution = status.settings().algorithm().contribution();
  std::string advice = AllWait(status) ? "First deal with any stragglers. Then start" : "Start";
  absl::StrAppend(&advice, " more servers (at resume)");
  if (!contribution.has_elastic()) absl::StrAppend(&advice, ", make messages smaller (compression.push)");
  if (!PeriodField(status).empty()) absl::StrAppend(&advice, ", raise ", PeriodField(status));
  if (contribution.has_gradient()) absl::StrAppend(&advice, ", or use algorithm.preset local_sgd or easgd");
  return advice + ". A larger batch_size also lengthens the computation between messages.";
}

}  // namespace

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
         .why = "Minibatches are read ahead, so reading them (or getting them from the "
                "master) is slower than computing.",
         .advice = "Put the data on a local disk (--stage), leave processors free for data.loader_threads in "
                   "addition to the worker's --threads and raise it, "
                   "or raise batch_size if steps take less than a few milliseconds."});
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
                                   "reach the master. If it is only delayed "
                                   "occasionally, raise faults.heartbeat_timeout_seconds."});
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
         .why =
             absl::StrCat("Synchronous workers, and those at a staleness bound, wait for it.",
                          limit > 0 ? absl::StrCat(" It is declared lost after ", Seconds(limit),
                                                   " (faults.stuck_seconds), earlier if others wait for it "
                                                   "(faults.hold_up_seconds).")
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
       .advice = "See the events and the lost workers' logs for the reason. "
                 "Start new workers with the same command; they join at once."});
}

}  // namespace catchment
