// Memory that other processes of this machine and user can read: an allocator for one of them, and a
// read-only mapping for the others. A process writes only to memory of its own.
//
// The memory is an anonymous file (memfd) of fixed size, whose pages exist from their first use until they
// are freed. It has no name in any file system, so nothing is left behind when its processes are killed. A
// reader opens it through /proc/PROCESS/fd, which the kernel allows only for the same user, and recognizes
// it by a random value at its beginning. Neither side can shorten it, and its pages come from the machine's
// memory instead of a reserve of huge pages, which may be empty, so reading raises no SIGBUS.
#ifndef CATCHMENT_COMMON_BASE_SHARED_ARENA_H_
#define CATCHMENT_COMMON_BASE_SHARED_ARENA_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <memory_resource>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/mutex.h"
#include "common/base/shared_memory.h"
#include "proto/wire.pb.h"

namespace catchment {

// The addresses that a worker reserves, as a multiple of the parameters, and those that a server does, as a
// multiple of its shard. Vectors beyond them are on the heap, and no more is accepted from a peer.
inline constexpr int64_t kArenaVectors = 8;
inline constexpr int64_t kArenaShards = 64;

// Threads: safe. Allocations are aligned to 64 bytes. If the arena is full, they come from the heap, and
// OffsetOf does not know them.
class SharedArena final : public std::pmr::memory_resource {
 public:
  // Reserves addresses for `bytes`; memory is used as it is allocated. ResourceExhausted if the process may
  // not have so much.
  static absl::StatusOr<std::shared_ptr<SharedArena>> Create(const std::string& name, int64_t bytes);

  // Reserves addresses for this number of float32 values, and at least 64 MiB. If the process may not have so
  // much, logs a warning that names the `peers`, and returns null.
  static std::shared_ptr<SharedArena> Reserve(const std::string& name, int64_t values,
                                              const std::string& peers);

  // Has others read `memory`, too, which this process shares with a program and which outlives the arena.
  // Call it once at most, before Offer. Memory that is not anonymous is left out.
  void Include(const SharedMemory& memory);

  // Returns what another process needs to map the memory.
  v1::SharedMemory Offer() const;
  // Returns the offset of memory in the arena or of what it includes; nothing for other memory.
  std::optional<uint64_t> OffsetOf(const void* memory) const;

 private:
  explicit SharedArena(SharedMemory memory);

  void* do_allocate(size_t bytes, size_t alignment) override;
  void do_deallocate(void* memory, size_t bytes, size_t alignment) override;
  bool do_is_equal(const std::pmr::memory_resource& other) const noexcept override { return this == &other; }

  const SharedMemory memory_;
  std::string nonce_;
  const SharedMemory* included_ = nullptr;
  mutable Mutex mu_;
  std::map<uint64_t, uint64_t> unused_ ABSL_GUARDED_BY(mu_);  // sizes by offset, without neighbours
};

// Returns true if the offer is of a process on this machine.
bool IsOfThisMachine(const v1::SharedMemory& offer);

// The arena of another process, or of this one, mapped for reading. Threads: safe; the values may change at
// any time.
class MappedArena {
 public:
  // `values` is the largest number for which the peer may have reserved the memory. Errors:
  // FailedPrecondition with the reason if the offer is of more, or not of an arena that this process can
  // read: one of another machine, user or container, for example.
  static absl::StatusOr<std::unique_ptr<MappedArena>> Open(const v1::SharedMemory& offer, int64_t values);
  ~MappedArena();

  // Returns the memory at `offset`; null if it is not completely in the arena.
  const char* At(uint64_t offset, uint64_t bytes) const;
  // Reads a counter at `offset`, a multiple of 8, after all earlier reads. Nothing: as with At.
  std::optional<uint64_t> Counter(uint64_t offset) const;

 private:
  MappedArena(const char* data, uint64_t bytes) : data_(data), bytes_(bytes) {}

  // Maps memory of another process at the offset.
  absl::Status Map(int fd, uint64_t offset, uint64_t bytes);

  const char* const data_;
  const uint64_t bytes_;
};

// A counter in memory of this process that others may read while it changes.

// Other processes read it with MappedArena::Counter (shared_arena.h). Threads: one writes.
class SharedCounter {
 public:
  explicit SharedCounter(void* memory) : value_(*static_cast<uint64_t*>(memory)) {}

  uint64_t value() const { return value_.load(std::memory_order_relaxed); }
  // Writes of this thread before the call are visible to those who read the new value.
  void Set(uint64_t value) { value_.store(value, std::memory_order_release); }
  // Others see the new value before they see writes of this thread after the call.
  void AdvanceTo(uint64_t value) {
    value_.store(value, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }

 private:
  std::atomic_ref<uint64_t> value_;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_SHARED_ARENA_H_
