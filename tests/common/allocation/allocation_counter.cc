#include "tests/common/allocation/allocation_counter.h"

#include <malloc.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

namespace catchment {

Allocations CountAllocations() { return {}; }
uint64_t BytesInUse() { return 0; }
uint64_t MostBytesInUse() { return 0; }
void ResetMostBytes() {}
bool AllocationsAreCounted() { return false; }

}  // namespace catchment

#else

// glibc's functions, under names that no other library replaces.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
void* __libc_memalign(size_t alignment, size_t bytes);
void __libc_free(void* memory);

// The linker's: where the executable's code lies.
extern const char __executable_start;
extern const char etext;
}

namespace {

std::atomic<uint64_t> all{0};
std::atomic<uint64_t> ours{0};
std::atomic<uint64_t> in_use{0};
std::atomic<uint64_t> most_in_use{0};

void Count(const void* caller) {
  all.fetch_add(1, std::memory_order_relaxed);
  if (caller >= &__executable_start && caller < &etext) ours.fetch_add(1, std::memory_order_relaxed);
}

void* Taken(void* memory) {
  const uint64_t bytes = malloc_usable_size(memory);
  const uint64_t now = in_use.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  uint64_t most = most_in_use.load(std::memory_order_relaxed);
  while (most < now && !most_in_use.compare_exchange_weak(most, now, std::memory_order_relaxed)) {
  }
  return memory;
}

void Free(void* memory) {
  in_use.fetch_sub(malloc_usable_size(memory), std::memory_order_relaxed);
  __libc_free(memory);
}

void* New(size_t bytes, size_t alignment) {
  void* const memory = alignment == 0 ? __libc_malloc(bytes) : __libc_memalign(alignment, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return Taken(memory);
}

}  // namespace

#define CATCHMENT_COUNT() Count(__builtin_return_address(0))

extern "C" {

void* malloc(size_t bytes) {
  CATCHMENT_COUNT();
  return Taken(__libc_malloc(bytes));
}
void* calloc(size_t count, size_t bytes) {
  CATCHMENT_COUNT();
  return Taken(__libc_calloc(count, bytes));
}
void* realloc(void* memory, size_t bytes) {
  CATCHMENT_COUNT();
  const uint64_t before = malloc_usable_size(memory);
  void* const moved = __libc_realloc(memory, bytes);
  if (moved != nullptr || bytes == 0) in_use.fetch_sub(before, std::memory_order_relaxed);
  return Taken(moved);
}
void* memalign(size_t alignment, size_t bytes) {
  CATCHMENT_COUNT();
  return Taken(__libc_memalign(alignment, bytes));
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  CATCHMENT_COUNT();
  return Taken(__libc_memalign(alignment, bytes));
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  CATCHMENT_COUNT();
  *memory = Taken(__libc_memalign(alignment, bytes));
  return *memory == nullptr ? ENOMEM : 0;
}
void free(void* memory) { Free(memory); }

}  // extern "C"

// The standard library's would call malloc from a library.
void* operator new(size_t bytes) {
  CATCHMENT_COUNT();
  return New(bytes, 0);
}
void* operator new[](size_t bytes) {
  CATCHMENT_COUNT();
  return New(bytes, 0);
}
void* operator new(size_t bytes, std::align_val_t alignment) {
  CATCHMENT_COUNT();
  return New(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  CATCHMENT_COUNT();
  return New(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { Free(memory); }
void operator delete[](void* memory) noexcept { Free(memory); }
void operator delete(void* memory, size_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t) noexcept { Free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { Free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { Free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { Free(memory); }

namespace catchment {

Allocations CountAllocations() { return {all, ours}; }
uint64_t BytesInUse() { return in_use; }
uint64_t MostBytesInUse() { return most_in_use; }
void ResetMostBytes() { most_in_use = in_use.load(); }
bool AllocationsAreCounted() { return true; }

}  // namespace catchment

#endif
