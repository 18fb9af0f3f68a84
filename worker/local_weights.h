// The weights x that a worker moves by itself between two exchanges with the center, and what an exchange
// needs of them. They lie in the worker (worker/algorithms/pseudo_gradient.h) or, where an attached program's
// own optimizer moves them, in the program, on its device. The host's memory is then written and read only
// for what is exchanged (proto/attach.proto, Hello.keeps_weights).
//
//                received                     sent         Use
//   pseudo       y, the center's weights      D = y - x    x = blend x + (1 - blend) y
//   elastic      d, after a pull y            x            x -= d
//
// Shapes: whole flat vectors, of which a call concerns one fragment. Threads: one, except that the received
// fragment is written by its exchange.
#ifndef CATCHMENT_WORKER_LOCAL_WEIGHTS_H_
#define CATCHMENT_WORKER_LOCAL_WEIGHTS_H_

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace catchment {

class LocalWeights {
 public:
  virtual ~LocalWeights() = default;

  virtual absl::Span<float> received() = 0;
  virtual absl::Span<float> sent() = 0;
  // x = y for all fragments. The optimizer that moves x forgets its moments.
  virtual void Restart() = 0;
  // Moves the fragment of x by what has been received.
  virtual void Use(int fragment) = 0;
  // Writes what is to be sent of the fragment.
  virtual absl::Status Write(int fragment) = 0;
};

// Memory that a model has of its own.
struct ModelMemory {
  LocalWeights* kept = nullptr;  // in jobs that allow it (MayKeepWeights); null: there are none
  // For x and for the gradient of a step: an algorithm that moves x only by what it fetches uses these in
  // place of vectors of its own. Empty: there are none.
  absl::Span<float> weights, gradient;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_LOCAL_WEIGHTS_H_
