// How fast the job goes and what its training loss is, over the last seconds, from what workers tell of their
// progress. Workers may come and go.
//
// Units: seconds. Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_MASTER_PROGRESS_METER_H_
#define CATCHMENT_SERVER_MASTER_PROGRESS_METER_H_

#include <deque>

#include "proto/master.pb.h"

namespace catchment {

class ProgressMeter {
 public:
  static constexpr double kWindow = 10;

  // Training begins, or goes on after a pause: what came before does not count for the rates.
  void Restart(double now);

  // One worker went on from `before` to `after`.
  void Add(const v1::Progress& before, const v1::Progress& after, double now);

  // Over the last kWindow seconds, or since Restart; 0 when nothing is known.
  double samples_per_second(double now) const;
  // Over the kWindow seconds that end with the last Add.
  double mean_loss() const;
  double accuracy() const;

 private:
  struct Totals {
    double time = 0;
    double samples = 0;
    double loss_sum = 0;
    double loss_samples = 0;  // whose loss is finite
    double correct = 0;
  };

  // The last totals of at least kWindow seconds before, or the first.
  const Totals& Before(double now) const;

  std::deque<Totals> history_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_PROGRESS_METER_H_
