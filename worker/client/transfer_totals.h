// Time and bytes of a worker's transfers, real or simulated.
#ifndef CATCHMENT_WORKER_CLIENT_TRANSFER_TOTALS_H_
#define CATCHMENT_WORKER_CLIENT_TRANSFER_TOTALS_H_

#include <cstdint>

#include "common/base/latency_histogram.h"
#include "proto/master.pb.h"

namespace catchment {

struct TransferTotals {
  // Seconds that the caller was blocked: until the last block had left and, for operations without output,
  // until all were answered; and then until the output had arrived.
  double push_seconds = 0;
  double pull_seconds = 0;
  double blocked_seconds() const { return push_seconds + pull_seconds; }
  // Payloads, including repeated ones.
  uint64_t bytes_pushed = 0;
  uint64_t bytes_pulled = 0;
  // Durations of pushes with pull, and of exchanges: from the moment when the whole input was Ready until
  // the whole output had arrived, even if the caller did not wait for it.
  LatencyHistogram round_trips;

  // Sets the fields of a worker's progress that report these.
  void FillProgress(v1::Progress* progress) const;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_CLIENT_TRANSFER_TOTALS_H_
