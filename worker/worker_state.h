// The state that a worker keeps in addition to the center's weights from one step to the next, and loses with
// its process unless a checkpoint has it (Checkpointing.worker_state in proto/job.proto): named vectors as
// long as the weights, and named numbers. Each owner lists its vectors and numbers once; they are saved from,
// and restored to, its own memory.
#ifndef CATCHMENT_WORKER_WORKER_STATE_H_
#define CATCHMENT_WORKER_WORKER_STATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace catchment {

struct WorkerState {
  struct Vector {
    std::string name;
    absl::Span<float> values;
    // The position of `values` in the vector, which may be listed in several parts, in order.
    int64_t begin = 0;
  };
  struct Number {
    std::string name;
    uint64_t* value;
  };

  std::vector<Vector> vectors;
  std::vector<Number> numbers;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_WORKER_STATE_H_
