#include "tests/benchmarks/scaling_run.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>

#include "absl/strings/str_cat.h"
#include "cli/live/job_control.h"
#include "cli/local/local_cluster.h"
#include "common/base/clock.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "tests/benchmarks/process.h"
#include "tests/benchmarks/rate_meter.h"

namespace catchment {
namespace {

// Between two looks at the master's status.
constexpr double kPoll = 0.02;
// The master renews the counts in its status so often.
constexpr double kReportInterval = 0.1;
constexpr double kListenSeconds = 20;
constexpr double kPatience = 120;
constexpr double kSilence = 30;
// Before the measurement every worker trains so long, and at least one step.
constexpr double kWarmUp = 1.5;

int WarmUpSteps(const ScalingCase& c) {
  return std::max(1, static_cast<int>(std::ceil(kWarmUp / c.step_seconds())));
}

// The number of round trips by microseconds.
using RoundTrips = std::map<uint64_t, int64_t>;

void Gather(const v1::JobStatus& status, int64_t sign, RoundTrips* trips) {
  for (const v1::WorkerStatus& worker : status.workers()) {
    const v1::Progress& progress = worker.progress();
    for (int i = 0; i < std::min(progress.round_trip_us_size(), progress.round_trip_counts_size()); ++i) {
      (*trips)[progress.round_trip_us(i)] += sign * static_cast<int64_t>(progress.round_trip_counts(i));
    }
  }
}

std::optional<double> QuantileMs(const RoundTrips& trips, double quantile) {
  int64_t all = 0;
  for (const auto& [us, count] : trips) all += count;
  int64_t below = 0;
  for (const auto& [us, count] : trips) {
    below += count;
    if (below > 0 && below >= quantile * all) return us / 1000.0;
  }
  return std::nullopt;
}

// The resources that the processes of a cluster have used so far.
struct Usage {
  double time = 0;
  double server = 0;
  double workers = 0;
  double machine = 0;
};

class Run {
 public:
  Run(const ScalingCase& c, const ScalingSetting& setting, SignalWaiter* signals)
      : case_(c), setting_(setting), signals_(*signals), cluster_(Plan()) {}
  ~Run() { cluster_.SignalAll(SIGKILL); }

  absl::StatusOr<ScalingFigures> Measure() {
    RETURN_IF_ERROR(Start());
    RETURN_IF_ERROR(AwaitWarmUp());
    RETURN_IF_ERROR(Watch());
    return figures_;
  }

 private:
  std::string Directory() const {
    return absl::StrCat(setting_.directory, "/", case_.preset, "-", case_.parameters, "-", case_.workers);
  }

  ClusterPlan Plan() const {
    ClusterPlan plan;
    plan.daemons = setting_.daemons;
    plan.out = Directory();
    plan.job = plan.out + "/job.textproto";
    plan.checkpoints = plan.out + "/checkpoints";
    plan.workers = case_.workers;
    plan.evaluator = false;
    return plan;
  }

  absl::Status Start() {
    std::filesystem::create_directories(Directory() + "/logs");
    std::ofstream(Directory() + "/job.textproto") << ScalingJobText(case_);
    started_ = clock_.Now();
    RETURN_IF_ERROR(cluster_.Start(kListenSeconds, &signals_));
    ASSIGN_OR_RETURN(JobControl master, JobControl::Create(cluster_.master(), TlsFiles()));
    master_.emplace(std::move(master));
    return absl::OkStatus();
  }

  absl::Status AwaitWarmUp() {
    const auto workers = static_cast<uint64_t>(case_.workers);
    const double deadline = clock_.Now() + kPatience + 2 * WarmUpSteps(case_) * case_.step_seconds();
    do {
      RETURN_IF_ERROR(Look());
      const uint64_t applied = status_.pushes_applied();
      if (figures_.start_seconds == 0 && applied >= workers) figures_.start_seconds = looked_ - started_;
      if (applied >= workers * WarmUpSteps(case_)) return absl::OkStatus();
    } while (clock_.Now() < deadline);
    return absl::DeadlineExceededError(absl::StrCat("after ", Short(looked_ - started_), " s ",
                                                    status_.workers_size(), " workers are there, and ",
                                                    status_.pushes_applied(), " contributions are applied"));
  }

  absl::Status Watch() {
    RateMeter meter(case_.workers, MeasuredSteps(case_, setting_.seconds) / 2, kReportInterval);
    RoundTrips trips;
    Gather(status_, -1, &trips);
    const Usage before = UsageNow();
    const double deadline = clock_.Now() + kPatience + 10 * ExpectedSeconds(case_, setting_.seconds);
    while (!meter.enough()) {
      RETURN_IF_ERROR(Look());
      if (status_.workers_size() < case_.workers) {
        return absl::UnavailableError(absl::StrCat("only ", status_.workers_size(), " workers are left"));
      }
      meter.Add(looked_, status_.pushes_applied());
      if (clock_.Now() > deadline)
        return absl::DeadlineExceededError("contributions are hardly applied any more");
    }
    figures_.updates_per_second = meter.per_second();
    Gather(status_, 1, &trips);
    figures_.p50_ms = QuantileMs(trips, 0.5);
    figures_.p99_ms = QuantileMs(trips, 0.99);
    Report(before, UsageNow());
    return absl::OkStatus();
  }

  // Waits a moment, and reads the master's status.
  absl::Status Look() {
    const int signal = signals_.Wait(kPoll);
    if (signal != 0 && signal != SIGCHLD) return absl::AbortedError("stopped by a signal");
    for (const Departure& departure : cluster_.Reap()) return absl::UnavailableError(ToString(departure));
    absl::StatusOr<v1::JobStatus> status = master_->GetStatus();
    const double now = clock_.Now();
    if (status.ok()) {
      status_ = *std::move(status);
      looked_ = now;
      return absl::OkStatus();
    }
    // Under load an answer may take long: while nothing is read, nothing is counted.
    return now - std::max(looked_, started_) > kSilence ? status.status() : absl::OkStatus();
  }

  Usage UsageNow() const {
    Usage usage{clock_.Now(), ProcessorSeconds(cluster_.MasterPid()), 0, BusySeconds()};
    for (const v1::WorkerStatus& worker : status_.workers()) {
      usage.workers += ProcessorSeconds(static_cast<pid_t>(worker.pid()));
    }
    return usage;
  }

  void Report(const Usage& before, const Usage& after) {
    const double seconds = after.time - before.time;
    figures_.server_processors = (after.server - before.server) / seconds;
    figures_.worker_processors = (after.workers - before.workers) / seconds;
    figures_.machine_share = (after.machine - before.machine) / seconds / Cores();
    figures_.server_bytes = ResidentBytes(cluster_.MasterPid());
    for (const v1::WorkerStatus& worker : status_.workers()) {
      figures_.worker_bytes += ResidentBytes(static_cast<pid_t>(worker.pid())) / status_.workers_size();
    }
  }

  const ScalingCase case_;
  const ScalingSetting& setting_;
  SignalWaiter& signals_;
  const SteadyClock clock_;
  LocalCluster cluster_;
  std::optional<JobControl> master_;
  double started_ = 0;
  double looked_ = 0;
  v1::JobStatus status_;  // as of looked_
  ScalingFigures figures_;
};

}  // namespace

int MeasuredSteps(const ScalingCase& c, double seconds) {
  return 2 * std::max(1, static_cast<int>(std::ceil(seconds / 2 / c.step_seconds())));
}

double ExpectedSeconds(const ScalingCase& c, double seconds) {
  constexpr double kStart = 0.5, kStartOfWorker = 0.05;
  const int steps = WarmUpSteps(c) + MeasuredSteps(c, seconds);
  return kStart + kStartOfWorker * c.workers + steps * c.step_seconds();
}

absl::StatusOr<ScalingFigures> MeasureScaling(const ScalingCase& c, const ScalingSetting& setting,
                                              SignalWaiter* signals) {
  return Run(c, setting, signals).Measure();
}

}  // namespace catchment
