// Early stopping on the test set: finds the best evaluation, and decides when training has reached its target
// or no longer improves (Evaluation in proto/job.proto).
// Source: Prechelt 1998, "Early Stopping - But When?", with the margin of Keras's EarlyStopping.
//
// For each evaluation, where m is its loss, or 1 - accuracy with best_by ACCURACY:
//   m < m_best - min_improvement:  m_best = m ; since = 0
//   otherwise:                     since += 1
//   training ends when each target that is set is reached, or patience > 0 and since >= patience
// Small improvements add up, because m_best does not change until their sum exceeds min_improvement. An
// evaluation whose loss is NaN or infinite is not an improvement and reaches no target.
//
// Targets are float32 and are compared in float32, so 98 of 100 reach 0.98.
// Threads: not thread-safe. It has no clock: it counts evaluations.
#ifndef CATCHMENT_SERVER_CONTROL_EARLY_STOPPING_H_
#define CATCHMENT_SERVER_CONTROL_EARLY_STOPPING_H_

#include <string>
#include <utility>

#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"

namespace catchment {

class EarlyStopping {
 public:
  // `evaluation` has its defaults filled in. `from` and `last` are state() and last_score() of a resumed job,
  // empty for a new one. A job whose last evaluation was enough, also with other settings now, is resumed
  // with enough().
  EarlyStopping(const v1::Evaluation& evaluation, const v1::BestState& from, const v1::BestState& last);

  // Records an evaluation, whose `since` is ignored. Returns true if it is the best so far.
  bool Observe(const v1::BestState& score);

  // Returns true if a score is better by more than `margin` than another one, which may be of no evaluation.
  bool IsBetter(const v1::BestState& score, const v1::BestState& than, float margin = 0) const;

  // Returns, for people, why training may end after the last evaluation; empty if it continues.
  const std::string& enough() const { return enough_; }
  // Takes the state, last_score() and enough() of another object.
  void Restore(const v1::BestState& state, const v1::BestState& last, std::string enough) {
    state_ = state;
    last_ = last;
    enough_ = std::move(enough);
  }
  // Returns the best evaluation and the number of evaluations since.
  const v1::BestState& state() const { return state_; }
  // Returns the last evaluation; number 0: there was none.
  const v1::BestState& last_score() const { return last_; }

 private:
  double Measure(const v1::BestState& score) const;
  // Return why the last evaluation is enough; empty if it is not.
  std::string Judge() const;
  std::string TargetsReached() const;
  std::string PatienceEnded() const;

  const v1::Evaluation evaluation_;
  v1::BestState state_;
  v1::BestState last_;
  std::string enough_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_EARLY_STOPPING_H_
