#include "cli/advise/evidence.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cli/base/run_directory.h"
#include "cli/job/job_facts.h"
#include "cli/simulate/recorded_run.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/job/algorithm_facts.h"
#include "common/job/job_text.h"
#include "common/job/validate.h"
#include "common/measures/noise_scale.h"
#include "common/measures/work_rates.h"
#include "simulation/simulation.h"

namespace catchment {
namespace {

void TakeSpeeds(const std::map<uint32_t, double>& steps, Evidence* evidence) {
  if (steps.empty()) return;
  const Speeds speeds = SpeedsOf(steps);
  evidence->slow = speeds.slow;
  if (!evidence->step) evidence->step = Distribution{.mean = speeds.step};
  // The mean of all steps contains those of slow workers.
  if (!speeds.slow.empty()) evidence->step->mean = speeds.step;
}

// Returns an error of RecordedStep without the name of the flag that it begins with.
absl::Status WithoutFlag(const absl::Status& status) {
  return {status.code(), absl::StripPrefix(status.message(), "--from=")};
}

}  // namespace

absl::StatusOr<Evidence> EvidenceOfJob(const v1::Job& job, int servers) {
  RETURN_IF_ERROR(JobFacts::Create(job, servers).status());
  Evidence evidence;
  evidence.subject = absl::StrCat("job ", job.name());
  evidence.job = job;
  evidence.servers = servers;
  evidence.step = SyntheticStep(job);
  if (evidence.step) evidence.step_source = "model.synthetic";
  evidence.slow = SlowWorkersOf(job);
  return evidence;
}

absl::StatusOr<Evidence> EvidenceOfRun(const std::string& directory) {
  const absl::StatusOr<Distribution> step = RecordedStep(directory);
  if (!step.ok()) return WithoutFlag(step.status());
  const absl::StatusOr<std::map<uint32_t, double>> steps = RecordedStepsByWorker(directory);
  if (!steps.ok()) return WithoutFlag(steps.status());
  ASSIGN_OR_RETURN(const nlohmann::json summary, ReadSummary(directory + "/summary.json"));
  ASSIGN_OR_RETURN(v1::Job job, LoadJob(directory + "/job.textproto", {}, FileNamedBy::kDirectory));
  ASSIGN_OR_RETURN(job, FillDefaultsAndValidate(std::move(job)));
  const auto number = [&summary](const char* key) {
    const auto found = summary.find(key);
    return found != summary.end() && found->is_number() ? found->get<double>() : 0.0;
  };
  ASSIGN_OR_RETURN(Evidence evidence, EvidenceOfJob(job, std::max(1, static_cast<int>(number("servers")))));
  evidence.subject = absl::StrCat("the run in ", directory);
  evidence.job_file = directory + "/job.textproto";
  evidence.own_optimizer = true;
  evidence.step = *step;
  evidence.step_source = "measured";
  if (!steps->empty()) evidence.slow.clear();
  TakeSpeeds(*steps, &evidence);
  if (const absl::StatusOr<NetworkModel> network = RecordedNetwork(directory); network.ok()) {
    evidence.network = *network;
    evidence.network_source = "the median round trip, measured";
  }
  const double compute = number("compute_seconds");
  const double all = compute + number("push_seconds") + number("pull_seconds") + number("data_seconds");
  evidence.measured = Measured{.compute_share = compute / all};
  if (number("pushes_applied") > 0) evidence.measured->staleness = number("staleness_mean");
  evidence.has_run = true;
  if (number("noise_updates") > 0) {
    v1::GradientNoise& noise = evidence.noise.emplace();
    noise.set_updates(static_cast<uint64_t>(number("noise_updates")));
    noise.set_trace(number("noise_trace"));
    noise.set_squared_gradient(number("noise_squared_gradient"));
  }
  return evidence;
}

absl::StatusOr<Evidence> EvidenceOfStatus(const v1::JobStatus& status) {
  Evidence evidence;
  evidence.subject = absl::StrCat("the running job ", OneLine(status.job()));
  evidence.job = status.settings();
  evidence.servers = status.servers_size();
  uint64_t parameters = 0;
  for (const v1::ServerStatus& server : status.servers()) parameters += server.parameters();
  if (parameters == 0) {
    return absl::FailedPreconditionError("not all servers of the job have registered yet; try again");
  }
  evidence.job.mutable_model()->Clear();
  evidence.job.mutable_model()->mutable_synthetic()->set_parameters(parameters);
  evidence.job.mutable_data()->mutable_synthetic();
  if (status.total_samples() > 0) evidence.job.set_samples(status.total_samples());
  std::map<uint32_t, double> steps;
  for (const v1::WorkerStatus& worker : status.workers()) {
    const Work work = WorkOf(worker, nullptr);
    if (work.steps > 0 && work.compute > 0) steps[worker.worker()] = *work.compute_per_step();
  }
  TakeSpeeds(steps, &evidence);
  if (evidence.step) evidence.step_source = "measured, without its spread";
  if (!IsSynchronous(status.settings().algorithm().consistency()) && status.round_trip_p50_us() > 0) {
    evidence.network = {.latency = 0.5e-6 * status.round_trip_p50_us()};
    evidence.network_source = "the median round trip, measured";
  }
  evidence.has_run = true;
  evidence.noise = TotalNoise(status);
  const Work work = WorkOf(status, nullptr);
  if (const std::optional<double> share = work.share(work.compute)) {
    evidence.measured = Measured{.compute_share = *share};
    if (status.pushes_applied() > 0) evidence.measured->staleness = status.staleness_mean();
  }
  return evidence;
}

std::map<uint32_t, double> SlowWorkersOf(const v1::Job& job) {
  std::map<uint32_t, double> slow;
  for (const v1::Straggler& straggler : job.faults().stragglers()) {
    slow[straggler.worker()] = straggler.slowdown_factor();
  }
  return slow;
}

Speeds SpeedsOf(const std::map<uint32_t, double>& steps) {
  std::vector<double> sorted;
  for (const auto& [worker, seconds] : steps) sorted.push_back(seconds);
  std::sort(sorted.begin(), sorted.end());
  const double median = sorted[(sorted.size() - 1) / 2];
  Speeds speeds;
  double sum = 0;
  for (double seconds : sorted) {
    if (seconds < kSlowTimes * median) sum += seconds;
  }
  const auto fast = std::count_if(sorted.begin(), sorted.end(),
                                  [&](double seconds) { return seconds < kSlowTimes * median; });
  speeds.step = sum / static_cast<double>(fast);
  for (const auto& [worker, seconds] : steps) {
    if (seconds >= kSlowTimes * median) speeds.slow[worker] = seconds / speeds.step;
  }
  return speeds;
}

}  // namespace catchment
