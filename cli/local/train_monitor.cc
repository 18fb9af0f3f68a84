#include "cli/local/train_monitor.h"

#include <string.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/base/run_directory.h"
#include "common/base/machine.h"
#include "common/base/not_ready.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/base/thread_limit.h"
#include "common/program/command_line.h"
#include "common/program/ending_signals.h"

namespace catchment {
namespace {

constexpr int kEvaluatorRestarts = 2;
constexpr int kRestarts = 5;  // of each server and worker
// A little longer than a worker waits for its program (AttachedModel::kEndSeconds).
constexpr double kProgramEndSeconds = 75;
// The time for which workers may end with the job after a signal to stop. Those that are left are then asked
// directly, because only then they limit the time of their programs, one of which may hang.
constexpr double kLeaveSeconds = 1;
constexpr char kStops[] = ": stopping after saving a checkpoint; a second signal kills all processes";

bool HasMoved(const v1::JobStatus& before, const v1::JobStatus& now) {
  return before.phase() != now.phase() || before.samples() != now.samples() ||
         before.updates() != now.updates() || before.test_accuracy() != now.test_accuracy() ||
         before.test_loss() != now.test_loss() || before.last_checkpoint() != now.last_checkpoint() ||
         before.workers_size() != now.workers_size() || before.shards_size() != now.shards_size();
}

// Replaces the job's number of samples, which a run in seconds does not reach, by the time.
void SetTimeBudget(double seconds, v1::JobStatus* status) {
  status->clear_total_samples();
  status->set_seconds_left(std::max(0.0, seconds - status->wall_seconds()));
}

std::string SignalName(int signal) { return absl::StrCat("SIG", sigabbrev_np(signal)); }

}  // namespace

std::string TimeIsUp(double seconds) { return absl::StrCat("the budget of ", Short(seconds), " s is spent"); }

TrainOutcome TrainMonitor::Run() {
  answered_ = moved_ = clock_.Now();
  Watch();
  EndAll();
  ReportReason();
  observer_->Clear();
  return outcome_;
}

void TrainMonitor::Watch() {
  double next_poll = clock_.Now();
  while (!Decided() && !master_ended_) {
    HandleSignal(signals_->Wait(next_poll - clock_.Now()));
    for (const Departure& departure : cluster_->Reap()) HandleDeparture(departure);
    if (Decided() || master_ended_) return;
    if (clock_.Now() >= next_poll) {
      PollMaster();
      next_poll = clock_.Now() + PollSeconds();
    }
    AskWorkers();
    CheckBounds();
    CheckLost();
    CheckWorkers();
  }
}

// Returns the time until the next request to the master, not beyond the end of TrainBounds::train.
double TrainMonitor::PollSeconds() const {
  const double left = bounds_.train - status_.wall_seconds();
  return Trains() && left > 0 ? std::min(bounds_.poll, left) : bounds_.poll;
}

void TrainMonitor::PollMaster() {
  patience_.Begin(clock_.Now(), kMasterCallSeconds);
  absl::StatusOr<v1::JobStatus> status = master_->GetStatus();
  if (IsNotReady(status.status())) {
    patience_.Succeed();
    answered_ = clock_.Now();
    return;
  }
  if (!status.ok()) {
    silent_ = patience_.Fail(clock_.Now());
    patience_.Begin(clock_.Now(), bounds_.poll);
    return;
  }
  patience_.Succeed();
  if (bounds_.train > 0) SetTimeBudget(bounds_.train, &*status);
  answered_ = clock_.Now();
  if (HasMoved(status_, *status)) moved_ = answered_;
  status_ = *status;
  if (status_.phase() == v1::JobStatus::TRAINING) outcome_.training = status_;
  NoteIndices();
  observer_->Update(status_);
  if (bounds_.train > 0 && status_.wall_seconds() >= bounds_.train && Trains()) StopForTime();
}

void TrainMonitor::NoteIndices() {
  for (const v1::WorkerStatus& worker : status_.workers())
    indices_[static_cast<pid_t>(worker.pid())] = static_cast<int>(worker.worker());
}

void TrainMonitor::StopForTime() {
  if (stop_asked_ > 0) return;
  stop_asked_ = clock_.Now();
  if (!master_->Stop(TimeIsUp(bounds_.train)).ok()) cluster_->SignalMaster(SIGTERM);
}

void TrainMonitor::HandleSignal(int signal) {
  if (signal == 0 || signal == SIGCHLD) return;
  if (stop_asked_ > 0 && IsWarning(signal)) return;
  if (std::exchange(warned_, false)) return observer_->Note(absl::StrCat(SignalName(signal), kStops));
  if (stop_asked_ > 0) {
    observer_->Note(absl::StrCat(SignalName(signal), ": killing all processes"));
    killed_ = true;
    outcome_.signal = signal;
    outcome_.status =
        absl::AbortedError(absl::StrCat("killed by a second signal (", SignalName(signal), ")"));
    cluster_->SignalAll(SIGKILL);
    return;
  }
  stop_asked_ = clock_.Now();
  ask_workers_at_ = stop_asked_ + kLeaveSeconds;
  outcome_.signal = signal;
  warned_ = IsWarning(signal);
  observer_->Note(
      absl::StrCat(SignalName(signal), warned_ ? ": stopping after saving a checkpoint" : kStops));
  if (!master_->Stop(absl::StrCat(SignalName(signal), " to `catchment train`")).ok())
    cluster_->SignalMaster(SIGTERM);
}

void TrainMonitor::AskWorkers() {
  if (ask_workers_at_ == 0 || clock_.Now() < ask_workers_at_) return;
  ask_workers_at_ = 0;
  cluster_->SignalWorkers(SIGTERM);
}

void TrainMonitor::HandleDeparture(Departure departure) {
  if (const auto known = indices_.find(departure.pid); known != indices_.end())
    departure.worker = known->second;
  const bool master = departure.name == "server-0";
  if (departure.end.in_order() || departure.end.exit_code == kExitProgramFailed) {
    NoteEnd(departure);
    master_ended_ |= master;
    if (departure.part != Part::kWorker) return;
    last_worker_ = departure.name;
    last_reason_ = ReasonOf(departure);
    ++workers_in_order_;
    PollMaster();
    recoveries_at_end_ = status_.recoveries();
    return;
  }
  if (departure.part == Part::kEvaluator) return LoseEvaluator(departure);
  if (departure.part == Part::kServer && HasResult()) {
    observer_->Note(ToString(departure));
    master_ended_ |= master;
    return;
  }
  if (departure.end.signal != 0 && Restart(departure)) return;
  master_ended_ |= master;
  if (departure.part == Part::kServer) return Fail(ToString(departure));
  LoseWorker(departure);
}

void TrainMonitor::NoteEnd(const Departure& departure) {
  const bool evaluator = departure.part == Part::kEvaluator;
  const int code = departure.end.exit_code;
  if (code == kExitProgramFailed || (evaluator && code != 0)) {
    observer_->Note(ToString(departure));
    outcome_.failed.insert(departure.name);
  } else if (evaluator && departure.end.in_order()) {
    outcome_.failed.erase(departure.name);
  }
}

bool TrainMonitor::HasResult() const {
  const absl::StatusOr<nlohmann::json> summary = ReadSummary(cluster_->out() + "/summary.json");
  const std::string phase = summary.ok() ? summary->value("phase", "") : "";
  return phase == "DONE" || phase == "STOPPED";
}

bool TrainMonitor::Restart(const Departure& departure) {
  if (stop_asked_ > 0 || restarts_[departure.name] == kRestarts) return false;
  observer_->Note(ToString(departure));
  const absl::Status status = cluster_->Restart(departure.name);
  if (!status.ok()) {
    observer_->Note(std::string(status.message()));
    return false;
  }
  const int times = ++restarts_[departure.name];
  observer_->Note(
      absl::StrCat("started ", departure.name, " again (", times, " of at most ", kRestarts, " times)"));
  return true;
}

void TrainMonitor::LoseWorker(const Departure& departure) {
  lost_at_ = clock_.Now();
  PollMaster();
  // When a job fails all workers end with an error; the master reports the reason.
  if (status_.phase() == v1::JobStatus::FAILED) return;
  observer_->Note(ToString(departure));
  if (stop_asked_ > 0) return;
  lost_worker_ = departure.name;
  const auto hung = hung_.find(departure.pid);
  last_worker_ = departure.name;
  last_reason_ = hung == hung_.end() ? ReasonOf(departure) : hung->second;
  JudgeLoss();
}

void TrainMonitor::JudgeLoss() {
  // The last status may be from before training. A master that does not answer may have ended, with a reason.
  if (lost_worker_.empty() || answered_ < lost_at_) return;
  lost_worker_.clear();
  if (!Trains()) return;
  const int left = cluster_->Running(Part::kWorker);
  // A job that went back to a checkpoint is WAITING again.
  const bool trained = outcome_.training.phase() == v1::JobStatus::TRAINING || status_.recoveries() > 0;
  if (status_.phase() == v1::JobStatus::WAITING && !trained) {
    Fail(absl::StrCat(last_worker_, " was lost before training began: ", last_reason_));
  } else if (left > 0) {
    observer_->Note(absl::StrCat("training continues with ", Plural(left, "worker")));
  }
}

void TrainMonitor::LoseEvaluator(const Departure& departure) {
  const double now = clock_.Now();
  PollMaster();
  if (status_.phase() == v1::JobStatus::FAILED) return;
  observer_->Note(ToString(departure));
  if (stop_asked_ > 0) return;
  outcome_.failed.insert(departure.name);
  evaluator_lost_at_ = now;
  JudgeEvaluator();
}

void TrainMonitor::JudgeEvaluator() {
  // A master that does not answer may have ended, and the evaluator would look for it for a minute.
  if (evaluator_lost_at_ == 0 || answered_ < evaluator_lost_at_) return;
  evaluator_lost_at_ = 0;
  if (!Trains() && status_.phase() != v1::JobStatus::FINISHING) return;
  if (evaluator_restarts_ == kEvaluatorRestarts) {
    return observer_->Note("the evaluator is not restarted; training continues without test scores");
  }
  ++evaluator_restarts_;
  const absl::Status status = cluster_->RestartEvaluator();
  observer_->Note(status.ok() ? "started the evaluator again" : std::string(status.message()));
}

void TrainMonitor::CheckBounds() {
  const double now = clock_.Now();
  if (silent_) {
    Fail(absl::StrCat("the master has not answered for ", Seconds(bounds_.silence)));
  } else if (now - moved_ > bounds_.stall) {
    Fail(absl::StrCat("no progress for ", Seconds(bounds_.stall), " (", ProgressLine(status_),
                      "); --stall_seconds sets this limit"));
  } else if (stop_asked_ > 0 && now - stop_asked_ > bounds_.stop) {
    Fail(absl::StrCat("the job did not stop within ", Seconds(bounds_.stop)));
  }
}

void TrainMonitor::CheckWorkers() {
  JudgeLoss();
  JudgeEvaluator();
  if (Decided() || !lost_worker_.empty() || cluster_->Running(Part::kWorker) > 0 || !Trains() ||
      stop_asked_ > 0)
    return;
  // Workers that ended with exit code 0 probably did so because the job has ended since its last status.
  if (workers_in_order_ == 0)
    return Fail(absl::StrCat("all workers are lost; the last one, ", last_worker_, ": ", last_reason_));
  if (status_.recoveries() > recoveries_at_end_) {
    observer_->Note("the job went back to a checkpoint after its workers had ended: restarting them");
    recoveries_at_end_ = status_.recoveries();
    workers_in_order_ = 0;
    orphaned_ = 0;
    if (absl::Status status = cluster_->RestartWorkers(); !status.ok()) Fail(std::string(status.message()));
    return;
  }
  if (orphaned_ == 0) orphaned_ = clock_.Now();
  if (clock_.Now() - orphaned_ <= bounds_.orphan) return;
  Fail(absl::StrCat("no worker is running, but the job is not finished; the last one, ", last_worker_, ": ",
                    last_reason_));
}

std::string TrainMonitor::LastEventOf(pid_t pid) const {
  const std::string process = absl::StrCat("(", HostName(), ":", pid, ")");
  std::string last;
  for (const std::string& event : status_.events()) {
    if (absl::StrContains(event, process)) last = event;
  }
  return last;
}

void TrainMonitor::NoteLost(pid_t pid) {
  const bool member =
      std::any_of(status_.workers().begin(), status_.workers().end(),
                  [pid](const auto& worker) { return static_cast<pid_t>(worker.pid()) == pid; });
  const std::string event = LastEventOf(pid);
  if (!member && absl::StrContains(event, "considered lost")) {
    lost_since_.try_emplace(pid, clock_.Now());
  } else if (member || !event.empty()) {
    lost_since_.erase(pid);
  }
}

void TrainMonitor::CheckLost() {
  const v1::Faults& faults = status_.settings().faults();
  if (!Trains() || stop_asked_ > 0 || faults.stuck_seconds() == 0) return;
  for (const pid_t pid : cluster_->Members()) {
    NoteLost(pid);
    const auto lost = lost_since_.find(pid);
    if (lost == lost_since_.end()) continue;
    const std::string name = cluster_->NameOf(pid);
    const double patience =
        std::max(faults.stuck_seconds(), faults.heartbeat_timeout_seconds()) * std::exp2(restarts_[name]);
    if (clock_.Now() - lost->second < patience) continue;
    observer_->Note(absl::StrCat(name, " (pid ", pid, ") was lost to the master, and has not come back in ",
                                 Seconds(patience), ": killing it"));
    hung_[pid] = LastEventOf(pid);
    lost_since_.erase(pid);
    cluster_->Kill(pid);
  }
}

bool TrainMonitor::Trains() const {
  return status_.phase() == v1::JobStatus::WAITING || status_.phase() == v1::JobStatus::TRAINING;
}

void TrainMonitor::Fail(const std::string& reason) {
  if (!outcome_.status.ok()) return;
  outcome_.status = absl::UnavailableError(reason);
}

void TrainMonitor::ReportReason() {
  if (outcome_.status.ok() || killed_) return;
  const absl::StatusOr<nlohmann::json> summary = ReadSummary(cluster_->out() + "/summary.json");
  if (!summary.ok() || summary->value("phase", "") != "FAILED") return;
  const std::string reason = summary->value("reason", "");
  if (reason.empty()) return;
  observer_->Note(std::string(outcome_.status.message()));
  outcome_.status = absl::UnavailableError(absl::StrCat("the job failed: ", reason));
}

void TrainMonitor::EndAll() {
  master_->Disconnect();
  if (killed_) return AwaitEnd(bounds_.end, /*master_only=*/false);
  if (cluster_->MasterRuns()) {
    cluster_->SignalMaster(SIGTERM);  // it saves a checkpoint if it can, and stops the other processes
    AwaitEnd(bounds_.stop, /*master_only=*/true);
  } else {
    AwaitEnd(outcome_.status.ok() ? bounds_.end : 0, /*master_only=*/false);
  }
  for (int signal : {SIGTERM, SIGKILL}) {
    if (!cluster_->AnyRuns()) return;
    cluster_->SignalAll(signal);
    AwaitEnd(bounds_.end, /*master_only=*/false);
  }
}

void TrainMonitor::AwaitEnd(double seconds, bool master_only) {
  const double deadline = clock_.Now() + seconds;
  while (true) {
    for (const Departure& departure : cluster_->Reap()) {
      const bool lost = !departure.end.in_order() && departure.end.signal != SIGKILL;
      if (departure.name == "server-0" && lost) Fail(ToString(departure));
      if (departure.part != Part::kServer) NoteEnd(departure);
    }
    if (!(master_only ? cluster_->MasterRuns() : cluster_->AnyRuns())) return;
    const double left = deadline - clock_.Now();
    if (left <= 0) return;
    HandleSignal(signals_->Wait(std::min(left, 0.1)));
    AskWorkers();
    if (killed_) cluster_->SignalAll(SIGKILL);
  }
}

int ThreadsPerWorker(int workers) { return std::max(1, AvailableProcessors() / workers); }

TrainBounds BoundsFor(const std::string& program, TrainBounds bounds) {
  if (!program.empty()) bounds.end = std::max(bounds.end, kProgramEndSeconds);
  return bounds;
}

absl::StatusOr<TrainOutcome> RunCluster(const ClusterPlan& plan, const TrainBounds& bounds,
                                        SignalWaiter* signals, TrainObserver* observer) {
  RETURN_IF_ERROR(CheckThreads(FindThreadRoom(), "the job's processes", ThreadsOf(plan)));
  ASSIGN_OR_RETURN(const TemporaryDirectory sockets, CreateSocketDirectory(plan.out));
  ClusterPlan own = plan;
  own.sockets = sockets.path();
  ClearSecurityEnvironment();
  LocalCluster cluster(std::move(own));
  RETURN_IF_ERROR(cluster.Start(bounds.listen, signals));
  ASSIGN_OR_RETURN(JobControl master, JobControl::Create(cluster.master(), TlsFiles()));
  return TrainMonitor(&cluster, &master, signals, observer, bounds).Run();
}

}  // namespace catchment
