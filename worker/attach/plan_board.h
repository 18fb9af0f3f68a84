// Publishes the samples of the coming steps in memory that the program reads: PLAN of proto/attach.proto.
//
// Threads: one writes; the program reads meanwhile.
#ifndef CATCHMENT_WORKER_ATTACH_PLAN_BOARD_H_
#define CATCHMENT_WORKER_ATTACH_PLAN_BOARD_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/shared_memory.h"

namespace catchment {

class PlanBoard {
 public:
  static constexpr uint64_t kSlots = 64;

  // `most`: samples in a step.
  static absl::StatusOr<PlanBoard> Create(uint32_t most);

  int fd() const { return memory_.fd(); }

  // Returns the number of steps that were added, which is the number of the last one.
  uint64_t planned() const { return planned_; }
  // Adds the next step. It replaces the one kSlots steps before.
  void Add(absl::Span<const uint32_t> samples);
  // Ends the plan: steps after `last` do not count.
  void End(uint64_t last);

 private:
  explicit PlanBoard(SharedMemory memory) : memory_(std::move(memory)) {}

  uint64_t* Word(uint64_t byte) const { return reinterpret_cast<uint64_t*>(memory_.data() + byte); }

  SharedMemory memory_;
  uint64_t planned_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_ATTACH_PLAN_BOARD_H_
