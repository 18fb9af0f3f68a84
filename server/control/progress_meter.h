// Computes the job's samples per second, training loss and training accuracy over the last seconds from the
// progress that workers report. Workers may join and leave.
//
// Units: seconds. Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_CONTROL_PROGRESS_METER_H_
#define CATCHMENT_SERVER_CONTROL_PROGRESS_METER_H_

#include <deque>

#include "proto/master.pb.h"

namespace catchment {

class ProgressMeter {
 public:
  static constexpr double kWindow = 10;

  // Restarts the window, because training begins or continues after a pause.
  void Restart(double now);

  // Adds the difference between two reports of one worker.
  void Add(const v1::Progress& before, const v1::Progress& after, double now);

  // Returns the rate over the last kWindow seconds, or since Restart; 0 if nothing is known.
  double samples_per_second(double now) const;
  // Return the means over the kWindow seconds that end with the last Add.
  double mean_loss() const;
  double accuracy() const;

 private:
  struct Totals {
    double time = 0;
    double samples = 0;
    double loss_sum = 0;
    double loss_samples = 0;  // those with a finite loss
    double correct = 0;
  };

  // Returns the newest totals that are at least kWindow seconds old, or the oldest ones.
  const Totals& Before(double now) const;

  std::deque<Totals> history_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_PROGRESS_METER_H_
