// Follows a training pass through a model's layers, so that weights can arrive and gradients can leave while
// the pass is under way.
//
// Shapes: ranges are of the flat vector of parameters, one for each layer with parameters, or for each part
// of a large layer. Both sequences cover the vector once: the forward one from its beginning to its end, the
// backward one from its end to its beginning, or all at once if a gradient is only final when all of it is
// known. Threads: called within the pass, by its thread. Errors: none. An observer that could not get the
// weights keeps the reason to itself; the pass continues with the present weights, and its result is to
// be discarded.
#ifndef CATCHMENT_WORKER_MODEL_PASS_OBSERVER_H_
#define CATCHMENT_WORKER_MODEL_PASS_OBSERVER_H_

#include "common/job/parameter_layout.h"

namespace catchment {

class PassObserver {
 public:
  virtual ~PassObserver() = default;
  // The pass is about to read these weights, for the first time; they stay as they are until AfterBackward.
  virtual void BeforeForward(Range parameters) = 0;
  // This part of the gradient is final, and the pass reads these weights no more.
  virtual void AfterBackward(Range parameters) = 0;
};

// For a pass whose progress does not matter.
class NoPassObserver final : public PassObserver {
 public:
  void BeforeForward(Range) override {}
  void AfterBackward(Range) override {}
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_MODEL_PASS_OBSERVER_H_
