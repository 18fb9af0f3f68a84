// What all workers together have spent their time on, and how long their round trips took, from what they
// tell of their progress. Those that have gone count, too.
//
// Units: seconds; round trips in microseconds. Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_MASTER_WORK_TOTALS_H_
#define CATCHMENT_SERVER_MASTER_WORK_TOTALS_H_

#include "common/latency_histogram.h"
#include "proto/master.pb.h"

namespace catchment {

class WorkTotals {
 public:
  // One worker went on from `before` to `after`.
  void Add(const v1::Progress& before, const v1::Progress& after);

  // The fields from compute_seconds on.
  void Fill(v1::JobStatus* status) const;

 private:
  double compute_seconds_ = 0;
  double push_seconds_ = 0;
  double pull_seconds_ = 0;
  double data_seconds_ = 0;
  LatencyHistogram round_trips_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_WORK_TOTALS_H_
