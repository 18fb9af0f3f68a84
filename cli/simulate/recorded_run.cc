#include "cli/simulate/recorded_run.h"

#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/base/run_directory.h"
#include "common/base/status_macros.h"
#include "common/job/algorithm_facts.h"
#include "common/job/job_text.h"
#include "common/job/text_format.h"
#include "common/job/validate.h"
#include "nlohmann/json.hpp"

namespace catchment {
namespace {

using Json = nlohmann::json;

struct Recorded {
  Json summary;
  v1::Job job;
};

absl::StatusOr<Recorded> Read(const std::string& directory) {
  const absl::StatusOr<Json> summary = ReadSummary(directory + "/summary.json");
  if (!summary.ok()) {
    return absl::NotFoundError(
        absl::StrCat("--from=", directory, ": a finished run is needed: ", summary.status().message()));
  }
  absl::StatusOr<v1::Job> job = LoadJob(directory + "/job.textproto", {}, FileNamedBy::kDirectory);
  if (job.ok()) job = FillDefaultsAndValidate(*std::move(job));
  if (!job.ok()) {
    return absl::NotFoundError(
        absl::StrCat("--from=", directory, ": the job of the run is needed: ", job.status().message()));
  }
  return Recorded{*summary, *std::move(job)};
}

absl::StatusOr<double> Positive(const std::string& directory, const Json& summary, const char* key) {
  const auto found = summary.find(key);
  if (found != summary.end() && found->is_number() && found->get<double>() > 0) return found->get<double>();
  return absl::InvalidArgumentError(
      absl::StrCat("--from=", directory, ": its summary.json has no ", key, " above 0"));
}

// A worker's progress between two lines of metrics.
struct Interval {
  int line;        // at its end
  double seconds;  // of a step
  double steps;
};

double MeanStep(const std::vector<Interval>& intervals) {
  double steps = 0, seconds = 0;
  for (const Interval& one : intervals) {
    steps += one.steps;
    seconds += one.steps * one.seconds;
  }
  return seconds / steps;
}

std::map<uint32_t, std::vector<Interval>> IntervalsByWorker(const std::string& metrics, double batch_size) {
  std::map<uint32_t, std::vector<Interval>> workers;
  double last = 0;
  int number = 0;
  for (const std::string& text : std::vector<std::string>(absl::StrSplit(metrics, '\n'))) {
    const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object() || !line.contains("worker_rates")) continue;
    ++number;
    const double now = line.value("wall_seconds", 0.0);
    for (const Json& rates : line["worker_rates"]) {
      const Json rate = rates.value("samples_per_second", Json()),
                 share = rates.value("compute_share", Json());
      if (!rate.is_number() || !share.is_number() || rate.get<double>() <= 0 || now <= last) continue;
      const double steps = rate.get<double>() * (now - last) / batch_size;
      workers[rates.value("worker", 0u)].push_back(
          {number, share.get<double>() * batch_size / rate.get<double>(), steps});
    }
    last = now;
  }
  return workers;
}

// The difference between a worker's consecutive intervals.
struct Difference {
  double of_mean;   // relative to the worker's mean step
  double variance;  // relative to that of a step: 1 / m for the mean of an interval with m steps
};

// A weighted sum of squares, and its degrees of freedom.
struct SquareSum {
  double sum = 0;
  double freedom = 0;

  // Adds the differences, without their mean if `centered`.
  void Add(const std::vector<Difference>& differences, bool centered) {
    double mean = 0, weights = 0;
    for (const Difference& one : differences) weights += 1 / one.variance;
    for (const Difference& one : differences) mean += centered ? one.of_mean / one.variance / weights : 0;
    for (const Difference& one : differences) {
      sum += (one.of_mean - mean) * (one.of_mean - mean) / one.variance;
    }
    freedom += static_cast<double>(differences.size()) - (centered ? 1 : 0);
  }
  double deviation() const { return freedom > 0 ? std::sqrt(sum / freedom) : 0; }
};

// Returns the relative standard deviation of one step, from the intervals between lines of metrics.
// Differences between consecutive intervals (Allan's variance) are free of what slows a worker down for
// longer, such as other processes on its machine, which is not a property of single steps. What all workers
// have in common at a time, such as the load of a machine that they share, makes none wait for another: it is
// subtracted if several workers trained.
double StepDeviation(const std::string& metrics, double batch_size) {
  std::map<std::pair<int, int>, std::vector<Difference>> differences;  // by the lines of the two intervals
  for (const auto& [worker, intervals] : IntervalsByWorker(metrics, batch_size)) {
    const double mean = MeanStep(intervals);
    // The first and the last interval contain the beginning and the end of training.
    for (size_t i = 1; i + 2 < intervals.size(); ++i) {
      const Interval &a = intervals[i], &b = intervals[i + 1];
      differences[{a.line, b.line}].push_back({(b.seconds - a.seconds) / mean, 1 / a.steps + 1 / b.steps});
    }
  }
  SquareSum whole, apart;
  for (const auto& [lines, of_workers] : differences) {
    whole.Add(of_workers, /*centered=*/false);
    apart.Add(of_workers, /*centered=*/true);
  }
  return apart.freedom > 0 ? apart.deviation() : whole.deviation();
}

absl::StatusOr<std::string> ReadMetrics(const std::string& directory) {
  const absl::StatusOr<std::string> metrics = ReadTextFile(directory + "/metrics.jsonl");
  if (metrics.ok()) return metrics;
  return absl::NotFoundError(absl::StrCat(
      "--from=", directory, ": the metrics of the run are needed: ", metrics.status().message()));
}

}  // namespace

absl::StatusOr<Distribution> RecordedStep(const std::string& directory) {
  ASSIGN_OR_RETURN(const Recorded run, Read(directory));
  const absl::StatusOr<double> compute = Positive(directory, run.summary, "compute_seconds");
  // The seconds are those since the servers' last start. Runs of earlier releases do not have the samples
  // since then.
  const char* const key = run.summary.contains("computed_samples") ? "computed_samples" : "samples";
  const absl::StatusOr<double> samples = Positive(directory, run.summary, key);
  RETURN_IF_ERROR(compute.status());
  RETURN_IF_ERROR(samples.status());
  Distribution step{.mean = *compute * run.job.batch_size() / *samples};
  ASSIGN_OR_RETURN(const std::string metrics, ReadMetrics(directory));
  const double deviation = StepDeviation(metrics, run.job.batch_size());
  if (deviation < 0.01) return step;
  step.kind = Distribution::kLogNormal;
  step.shape = std::sqrt(std::log(1 + deviation * deviation));
  return step;
}

absl::StatusOr<std::map<uint32_t, double>> RecordedStepsByWorker(const std::string& directory) {
  ASSIGN_OR_RETURN(const Recorded run, Read(directory));
  ASSIGN_OR_RETURN(const std::string metrics, ReadMetrics(directory));
  std::map<uint32_t, double> steps;
  for (const auto& [worker, intervals] : IntervalsByWorker(metrics, run.job.batch_size())) {
    steps[worker] = MeanStep(intervals);
  }
  return steps;
}

absl::StatusOr<std::optional<Distribution>> RecordedStart(const std::string& directory) {
  ASSIGN_OR_RETURN(const Recorded run, Read(directory));
  ASSIGN_OR_RETURN(const std::string metrics, ReadMetrics(directory));
  const double deviation = StepDeviation(metrics, run.job.batch_size());
  double sum = 0, squares = 0, by_chance = 0, workers = 0;
  for (const auto& [worker, intervals] : IntervalsByWorker(metrics, run.job.batch_size())) {
    if (intervals.size() < 2) continue;
    const Interval& first = intervals.front();
    const double step = MeanStep({intervals.begin() + 1, intervals.end()});
    const double longer = first.steps * (first.seconds - step);
    sum += longer;
    squares += longer * longer;
    by_chance += first.steps * (deviation * step) * (deviation * step);
    ++workers;
  }
  if (workers < 2) return std::nullopt;
  const double variance = (squares - sum * sum / workers) / (workers - 1) - by_chance / workers;
  if (variance <= 0) return std::nullopt;
  return Distribution{.kind = Distribution::kExponential, .mean = std::sqrt(variance)};
}

absl::StatusOr<NetworkModel> RecordedNetwork(const std::string& directory) {
  ASSIGN_OR_RETURN(const Recorded run, Read(directory));
  if (IsSynchronous(run.job.algorithm().consistency())) {
    return absl::InvalidArgumentError(absl::StrCat("--from=", directory,
                                                   ": the run is synchronous, so its round trips include "
                                                   "waiting for other workers; "
                                                   "give --network, such as --network=10Gbit:50us"));
  }
  ASSIGN_OR_RETURN(const double round_trip, Positive(directory, run.summary, "round_trip_p50_us"));
  return NetworkModel{.latency = 0.5e-6 * round_trip};
}

}  // namespace catchment
