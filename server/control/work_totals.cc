#include "server/control/work_totals.h"

#include <algorithm>
#include <cmath>

namespace catchment {
namespace {

double Growth(double before, double after) {
  const double growth = after - before;
  return std::isfinite(growth) ? std::max(0.0, growth) : 0;
}

uint64_t CountOf(const v1::Progress& progress, uint64_t microseconds) {
  const int entries = std::min(progress.round_trip_us_size(), progress.round_trip_counts_size());
  for (int i = 0; i < entries; ++i) {
    if (progress.round_trip_us(i) == microseconds) return progress.round_trip_counts(i);
  }
  return 0;
}

}  // namespace

void WorkTotals::Add(const v1::Progress& before, const v1::Progress& after) {
  samples_ += after.samples() - std::min(before.samples(), after.samples());
  compute_seconds_ += Growth(before.compute_seconds(), after.compute_seconds());
  push_seconds_ += Growth(before.push_seconds(), after.push_seconds());
  pull_seconds_ += Growth(before.pull_seconds(), after.pull_seconds());
  data_seconds_ += Growth(before.data_seconds(), after.data_seconds());
  bytes_read_ += after.bytes_read() - std::min(before.bytes_read(), after.bytes_read());
  read_seconds_ += Growth(before.read_seconds(), after.read_seconds());
  const int entries = std::min(after.round_trip_us_size(), after.round_trip_counts_size());
  for (int i = 0; i < entries; ++i) {
    const uint64_t microseconds = after.round_trip_us(i);
    const uint64_t known = CountOf(before, microseconds);
    if (after.round_trip_counts(i) <= known) continue;
    round_trips_.Add(static_cast<double>(microseconds), after.round_trip_counts(i) - known);
  }
  for (const v1::ProgramMetric& metric :
       ProgramMetricsSince(before.program_metrics(), after.program_metrics())) {
    AddProgramMetric(metric.name(), metric.sum(), metric.count(), &program_metrics_);
  }
}

void WorkTotals::Fill(v1::JobStatus* status) const {
  status->set_compute_seconds(compute_seconds_);
  status->set_push_seconds(push_seconds_);
  status->set_pull_seconds(pull_seconds_);
  status->set_data_seconds(data_seconds_);
  status->set_bytes_read(bytes_read_);
  status->set_read_seconds(read_seconds_);
  status->set_round_trip_p50_us(round_trips_.Quantile(0.5));
  status->set_round_trip_p99_us(round_trips_.Quantile(0.99));
  *status->mutable_program_metrics() = program_metrics_;
}

v1::WorkTotalsImage WorkTotals::Save() const {
  v1::WorkTotalsImage image;
  image.set_samples(samples_);
  image.set_compute_seconds(compute_seconds_);
  image.set_push_seconds(push_seconds_);
  image.set_pull_seconds(pull_seconds_);
  image.set_data_seconds(data_seconds_);
  image.set_bytes_read(bytes_read_);
  image.set_read_seconds(read_seconds_);
  round_trips_.ForEach([&image](uint64_t microseconds, uint64_t count) {
    image.add_round_trip_us(microseconds);
    image.add_round_trip_counts(count);
  });
  *image.mutable_program_metrics() = program_metrics_;
  return image;
}

void WorkTotals::Restore(const v1::WorkTotalsImage& image) {
  samples_ = image.samples();
  compute_seconds_ = image.compute_seconds();
  push_seconds_ = image.push_seconds();
  pull_seconds_ = image.pull_seconds();
  data_seconds_ = image.data_seconds();
  bytes_read_ = image.bytes_read();
  read_seconds_ = image.read_seconds();
  round_trips_ = LatencyHistogram();
  const int entries = std::min(image.round_trip_us_size(), image.round_trip_counts_size());
  for (int i = 0; i < entries; ++i)
    round_trips_.Add(static_cast<double>(image.round_trip_us(i)), image.round_trip_counts(i));
  program_metrics_ = image.program_metrics();
}

}  // namespace catchment
