// The state of one worker as a part of a checkpoint (Checkpointing.worker_state): named vectors as long as
// the weights and named numbers, in one safetensors file, DIR/checkpoint-12/worker-3.safetensors.
#ifndef CATCHMENT_COMMON_CHECKPOINT_WORKER_FILE_H_
#define CATCHMENT_COMMON_CHECKPOINT_WORKER_FILE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace catchment {

struct SavedWorker {
  std::map<std::string, std::vector<float>> vectors;
  std::map<std::string, uint64_t> numbers;
};

// Saves the state of worker `worker` atomically as a part of checkpoint `number`, and creates its directory
// if necessary.
absl::Status WriteWorkerState(const std::string& dir, uint64_t number, uint32_t worker,
                              const SavedWorker& state);

// Reads the state and verifies its checksums. Errors: those of SafetensorsFile; DataLoss if a number is
// malformed.
absl::StatusOr<SavedWorker> ReadWorkerState(const std::string& dir, uint64_t number, uint32_t worker);

// Verifies the checksums without keeping the state. Errors: those of SafetensorsFile.
absl::Status VerifyWorkerState(const std::string& dir, uint64_t number, uint32_t worker);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CHECKPOINT_WORKER_FILE_H_
