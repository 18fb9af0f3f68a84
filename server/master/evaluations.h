// When the test set is scored: evaluation k is due when k * every_epochs epochs have been trained. One that
// is due takes the place of older ones that are not done. At the end there is a final one.
//
// Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_MASTER_EVALUATIONS_H_
#define CATCHMENT_SERVER_MASTER_EVALUATIONS_H_

#include <cstdint>

#include "proto/master.pb.h"

namespace catchment {

class Evaluations {
 public:
  // How far training is.
  struct Moment {
    uint64_t samples = 0;  // over all workers
    double seconds = 0;    // of training
  };

  // every_epochs <= 0: only the final one. Evaluations below `next` are done.
  Evaluations(double every_epochs, uint64_t next);

  // So many epochs are trained now.
  void Observe(double epochs);
  // The weights are final.
  void DemandFinal();

  // What to do now. Asked again, it answers the same or a newer one. The weights are read next: those of `now`.
  v1::GetEvaluationReply Current(const Moment& now);

  // Late or repeated reports change nothing. Returns whether this one has a new score.
  bool Report(const v1::EvaluationReport& report);

  bool final_done() const { return final_ > 0 && done_ >= final_; }
  uint64_t next() const { return done_ + 1; }
  // The newest report; samples 0: none.
  const v1::EvaluationReport& last() const { return last_; }
  // Of the weights that it is of.
  const Moment& last_moment() const { return last_moment_; }

 private:
  const double every_epochs_;
  uint64_t due_ = 0;
  uint64_t done_;
  uint64_t given_ = 0;
  uint64_t final_ = 0;  // number of the final one; 0: not yet demanded
  Moment given_moment_;
  v1::EvaluationReport last_;
  Moment last_moment_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_EVALUATIONS_H_
