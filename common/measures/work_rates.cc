#include "common/measures/work_rates.h"

#include <numeric>

namespace catchment {
namespace {

// Returns the growth; 0 if a value is NaN.
double Growth(double before, double now) { return now > before ? now - before : 0; }

std::optional<double> Ratio(double amount, double of) {
  return of > 0 ? std::optional(amount / of) : std::nullopt;
}

double Exchanges(const v1::Progress& progress) {
  const auto& counts = progress.round_trip_counts();
  return std::accumulate(counts.begin(), counts.end(), 0.0);
}

const v1::Progress& ProgressBefore(const v1::WorkerStatus& worker, const v1::JobStatus* before) {
  if (before != nullptr) {
    for (const v1::WorkerStatus& other : before->workers()) {
      if (other.worker() == worker.worker() && other.incarnation() == worker.incarnation()) {
        return other.progress();
      }
    }
  }
  return v1::Progress::default_instance();
}

}  // namespace

std::optional<double> Work::samples_per_second() const { return Ratio(samples, seconds()); }

std::optional<double> Work::compute_per_step() const { return Ratio(compute, steps); }

std::optional<double> Work::bytes_per_second() const { return Ratio(bytes, seconds()); }

std::optional<double> Work::bytes_per_step() const { return Ratio(bytes, steps); }

std::optional<double> Work::exchanges_per_step() const { return Ratio(exchanges, steps); }

std::optional<double> Work::bytes_read_per_second() const { return Ratio(bytes_read, seconds()); }

std::optional<double> Work::share(double part) const { return Ratio(part, seconds()); }

Work& Work::operator+=(const Work& other) {
  steps += other.steps;
  samples += other.samples;
  compute += other.compute;
  push += other.push;
  pull += other.pull;
  data += other.data;
  bytes += other.bytes;
  exchanges += other.exchanges;
  bytes_read += other.bytes_read;
  read += other.read;
  return *this;
}

Work WorkOf(const v1::WorkerStatus& worker, const v1::JobStatus* before) {
  const v1::Progress& now = worker.progress();
  const v1::Progress& then = ProgressBefore(worker, before);
  Work work;
  work.steps = Growth(then.steps(), now.steps());
  work.samples = Growth(then.samples(), now.samples());
  work.compute = Growth(then.compute_seconds(), now.compute_seconds());
  work.push = Growth(then.push_seconds(), now.push_seconds());
  work.pull = Growth(then.pull_seconds(), now.pull_seconds());
  work.data = Growth(then.data_seconds(), now.data_seconds());
  work.bytes =
      Growth(then.bytes_pushed(), now.bytes_pushed()) + Growth(then.bytes_pulled(), now.bytes_pulled());
  work.exchanges = Growth(Exchanges(then), Exchanges(now));
  work.bytes_read = Growth(then.bytes_read(), now.bytes_read());
  work.read = Growth(then.read_seconds(), now.read_seconds());
  return work;
}

Work WorkOf(const v1::JobStatus& status, const v1::JobStatus* before) {
  Work all;
  for (const v1::WorkerStatus& worker : status.workers()) all += WorkOf(worker, before);
  return all;
}

std::optional<double> SamplesPerSecond(const v1::JobStatus& status, const v1::JobStatus* before) {
  if (status.phase() != v1::JobStatus::TRAINING) return std::nullopt;
  if (before != nullptr && status.wall_seconds() > before->wall_seconds()) {
    return Growth(before->samples(), status.samples()) / (status.wall_seconds() - before->wall_seconds());
  }
  return status.samples_per_second() > 0 ? std::optional(status.samples_per_second()) : std::nullopt;
}

}  // namespace catchment
