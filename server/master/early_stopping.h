// Which evaluation was the best, and when training is good enough or no longer gets better (Evaluation in
// proto/job.proto): early stopping on the test set (Prechelt 1998, "Early Stopping - But When?"), with
// Keras's margin. Of each evaluation, where m is its loss, or 1 - accuracy with best_by ACCURACY:
//   m < m_best - min_improvement:  m_best = m ; since = 0
//   otherwise:                     since += 1
//   training ends when each target that is set is reached, or patience > 0 and since >= patience
// Small steps add up, since m_best stays until they are a larger one. An evaluation whose loss is NaN or
// infinite is not better, and reaches no target.
//
// Targets are float32, and are compared in float32: 98 of 100 reach 0.98.
// Threads: not thread-safe. It has no clock: it counts evaluations.
#ifndef CATCHMENT_SERVER_MASTER_EARLY_STOPPING_H_
#define CATCHMENT_SERVER_MASTER_EARLY_STOPPING_H_

#include <optional>
#include <string>

#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"

namespace catchment {

class EarlyStopping {
 public:
  // `evaluation`: complete. `from`: where a job that is resumed was; empty for a fresh one.
  EarlyStopping(const v1::Evaluation& evaluation, const v1::BestState& from);

  // Of one more evaluation; its `since` means nothing. Returns whether it is the best.
  bool Observe(const v1::BestState& score);

  // Why training may end after the evaluation observed last, for people; empty: it goes on.
  const std::string& enough() const { return enough_; }
  // The best one, and how many came since.
  const v1::BestState& state() const { return state_; }

 private:
  double Measure(const v1::BestState& score) const;
  bool IsBetter(const v1::BestState& score) const;
  std::string TargetsReached(const v1::BestState& score) const;
  std::string PatienceEnded(const v1::BestState& score) const;

  const v1::Evaluation evaluation_;
  v1::BestState state_;
  std::string enough_;
};

// What a resumed job has for its best evaluation: its checkpoint's, or that of the weights that were kept,
// which may have come after the checkpoint. `kept` absent: there are none.
v1::BestState BestOfBoth(const v1::Evaluation& evaluation, const v1::BestState& checkpoint,
                         const std::optional<v1::BestState>& kept);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_EARLY_STOPPING_H_
