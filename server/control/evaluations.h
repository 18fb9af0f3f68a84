// Decides when the test set is scored. Evaluation k is due when k * every_epochs epochs have been trained,
// and replaces older evaluations that are not done. The job ends with a final evaluation.
//
// Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_CONTROL_EVALUATIONS_H_
#define CATCHMENT_SERVER_CONTROL_EVALUATIONS_H_

#include <cstdint>

#include "proto/master.pb.h"
#include "proto/master_image.pb.h"

namespace catchment {

class Evaluations {
 public:
  // A point of training.
  struct Moment {
    uint64_t samples = 0;  // over all workers
    double seconds = 0;    // of training
  };

  // With every_epochs <= 0 there is only the final evaluation. Evaluations below `next` are done.
  Evaluations(double every_epochs, uint64_t next);

  // Notes that `epochs` epochs have been trained.
  void Observe(double epochs);
  // Makes the final evaluation due, because the weights are final.
  void DemandFinal();

  // Returns the evaluation that is due, if any; when called again, the same or a newer one. The evaluator
  // will read the weights at `now`.
  v1::GetEvaluationReply Current(const Moment& now);

  // Takes a report. Returns true if it has a new score; late and repeated reports have no effect.
  bool Report(const v1::EvaluationReport& report);

  v1::EvaluationsImage Save() const;
  void Restore(const v1::EvaluationsImage& image);

  bool final_done() const { return final_ > 0 && done_ >= final_; }
  uint64_t next() const { return done_ + 1; }
  // Returns the newest report; its `samples` are 0 if there is none.
  const v1::EvaluationReport& last() const { return last_; }
  // Returns the point of training of the weights that last() scored.
  const Moment& last_moment() const { return last_moment_; }

 private:
  const double every_epochs_;
  uint64_t due_ = 0;
  uint64_t done_;
  uint64_t given_ = 0;
  uint64_t final_ = 0;  // number of the final evaluation; 0: not yet due
  Moment given_moment_;
  v1::EvaluationReport last_;
  Moment last_moment_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_EVALUATIONS_H_
