// Measures how much of its time a simulated cluster spends on steps that its updates contain:
//   goodput = seconds of local steps whose contributions are in updates / (workers * seconds of training)
//   uptime  = the share of the time of training in which at least one worker computes
// A contribution is in updates block by block: each block counts for its share of the weights. It also
// measures the bytes that all workers begin to send in the busiest second, which the links must carry, except
// in the last tenth of the budget: all fragments are sent together at the end.
//
// Source: the measure of Douillard et al. 2026, arXiv:2604.21428.
// Units: seconds. Threads: those of the simulation.
#ifndef CATCHMENT_SIMULATION_GOODPUT_H_
#define CATCHMENT_SIMULATION_GOODPUT_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "common/base/clock.h"

namespace catchment {

// The measure of the whole cluster.
class Goodput {
 public:
  explicit Goodput(const Clock* clock) : clock_(*clock) {}

  // Called around the computation of each worker.
  void BeginComputing() {
    if (computing_++ == 0) since_ = clock_.Now();
  }
  void EndComputing() {
    if (--computing_ == 0) up_ += clock_.Now() - since_;
  }
  void AddMerged(double seconds) { merged_ += seconds; }
  // Called when a tenth of the budget is left.
  void ComeNearEnd() { near_end_ = true; }
  // Called when a worker begins to send `bytes` of a contribution.
  void AddPushed(size_t bytes) {
    if (near_end_) return;
    const double second = std::floor(clock_.Now());
    pushed_ = second == second_ ? pushed_ + bytes : bytes;
    second_ = second;
    most_pushed_ = std::max(most_pushed_, pushed_);
  }

  double merged_seconds() const { return merged_; }
  size_t busiest_second_bytes() const { return most_pushed_; }
  double up_seconds() const { return up_ + (computing_ > 0 ? clock_.Now() - since_ : 0); }

 private:
  const Clock& clock_;
  int computing_ = 0;  // workers
  double since_ = 0;
  double up_ = 0;
  double merged_ = 0;
  double second_ = 0;       // the one that pushed_ is of
  size_t pushed_ = 0;       // bytes
  size_t most_pushed_ = 0;  // in a second
  bool near_end_ = false;
};

// The seconds that a worker has computed for its last contribution to each block of a server.
class BlockSeconds {
 public:
  explicit BlockSeconds(size_t blocks) : counted_(blocks), sent_(blocks) {}

  // The block is sent, with everything that the worker has computed so far.
  void Send(size_t block, double computed) {
    sent_[block] = computed - counted_[block];
    counted_[block] = computed;
  }
  // Returns the seconds in the contribution that was sent last.
  double Sent(size_t block) const { return sent_[block]; }

 private:
  std::vector<double> counted_;  // in all contributions
  std::vector<double> sent_;     // in the last one
};

}  // namespace catchment

#endif  // CATCHMENT_SIMULATION_GOODPUT_H_
