// What a worker keeps beside the center's weights from one step to the next, and loses with its process unless a
// checkpoint has it (Checkpointing.worker_state in proto/job.proto): named vectors as long as the weights, and named
// numbers. Who keeps them lists them once; they are read where they stand, and restored to where they stand.
#ifndef CATCHMENT_WORKER_ALGORITHMS_WORKER_STATE_H_
#define CATCHMENT_WORKER_ALGORITHMS_WORKER_STATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"

namespace catchment {

struct WorkerState {
  struct Vector {
    std::string name;
    absl::Span<float> values;
  };
  struct Number {
    std::string name;
    uint64_t* value;
  };

  std::vector<Vector> vectors;
  std::vector<Number> numbers;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_ALGORITHMS_WORKER_STATE_H_
