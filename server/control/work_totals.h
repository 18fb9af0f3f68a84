// Sums up how all workers, including those that have left, have spent their time, what they have read, how
// long their round trips took, and the metrics of their programs, from the progress that they report.
//
// Units: seconds; round trips in microseconds. Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_CONTROL_WORK_TOTALS_H_
#define CATCHMENT_SERVER_CONTROL_WORK_TOTALS_H_

#include "common/base/latency_histogram.h"
#include "common/job/program_metrics.h"
#include "proto/master.pb.h"
#include "proto/master_image.pb.h"

namespace catchment {

class WorkTotals {
 public:
  // Adds the difference between two reports of one worker.
  void Add(const v1::Progress& before, const v1::Progress& after);

  v1::WorkTotalsImage Save() const;
  void Restore(const v1::WorkTotalsImage& image);

  // Returns the samples that compute_seconds belong to.
  uint64_t samples() const { return samples_; }
  // Fills the fields of the status from compute_seconds on, and program_metrics.
  void Fill(v1::JobStatus* status) const;

 private:
  uint64_t samples_ = 0;
  double compute_seconds_ = 0;
  double push_seconds_ = 0;
  double pull_seconds_ = 0;
  double data_seconds_ = 0;
  uint64_t bytes_read_ = 0;
  double read_seconds_ = 0;
  LatencyHistogram round_trips_;
  ProgramMetrics program_metrics_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_WORK_TOTALS_H_
