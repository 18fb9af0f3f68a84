#include "worker/attach/plan_board.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "common/base/status_macros.h"
#include "glog/logging.h"

namespace catchment {
namespace {

// Offsets in the shared memory, in bytes.
constexpr uint64_t kPlanned = 0, kEnd = 8, kSlotCount = 16, kSlotBytes = 24, kFirstSlot = 64;
constexpr uint64_t kStep = 0, kSamples = 8, kIndices = 16;

void Publish(uint64_t* word, uint64_t value) {
  std::atomic_ref<uint64_t>(*word).store(value, std::memory_order_release);
}

}  // namespace

absl::StatusOr<PlanBoard> PlanBoard::Create(uint32_t most) {
  const uint64_t indices = (uint64_t{most} + 1) / 2 * 2;  // slots begin at multiples of 8 bytes
  const uint64_t slot = kIndices + indices * sizeof(uint32_t);
  ASSIGN_OR_RETURN(
      SharedMemory memory,
      SharedMemory::Create("plan", static_cast<int64_t>(kFirstSlot + kSlots * slot), WithoutMemfd::kUseFile));
  PlanBoard board(std::move(memory));
  *board.Word(kSlotCount) = kSlots;
  *board.Word(kSlotBytes) = slot;
  return board;
}

void PlanBoard::Add(absl::Span<const uint32_t> samples) {
  const uint64_t slot_bytes = *Word(kSlotBytes);
  CHECK_LE(kIndices + samples.size() * sizeof(uint32_t), slot_bytes);
  const uint64_t slot = kFirstSlot + planned_ % kSlots * slot_bytes;
  ++planned_;
  *Word(slot + kStep) = planned_;
  *Word(slot + kSamples) = samples.size();
  std::copy(samples.begin(), samples.end(), reinterpret_cast<uint32_t*>(memory_.data() + slot + kIndices));
  Publish(Word(kPlanned), planned_);
}

void PlanBoard::End(uint64_t last) { Publish(Word(kEnd), last + 1); }

}  // namespace catchment
