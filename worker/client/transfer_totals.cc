#include "worker/client/transfer_totals.h"

namespace catchment {

void TransferTotals::FillProgress(v1::Progress* progress) const {
  progress->set_push_seconds(push_seconds);
  progress->set_pull_seconds(pull_seconds);
  progress->set_bytes_pushed(bytes_pushed);
  progress->set_bytes_pulled(bytes_pulled);
  progress->clear_round_trip_us();
  progress->clear_round_trip_counts();
  round_trips.ForEach([progress](uint64_t microseconds, uint64_t count) {
    progress->add_round_trip_us(microseconds);
    progress->add_round_trip_counts(count);
  });
}

}  // namespace catchment
