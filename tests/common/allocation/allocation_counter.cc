#include "tests/common/allocation/allocation_counter.h"

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <new>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)

namespace catchment {

Allocations CountAllocations() { return {}; }
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

void Count(const void* caller) {
  all.fetch_add(1, std::memory_order_relaxed);
  if (caller >= &__executable_start && caller < &etext) ours.fetch_add(1, std::memory_order_relaxed);
}

void* New(size_t bytes, size_t alignment) {
  void* const memory = alignment == 0 ? __libc_malloc(bytes) : __libc_memalign(alignment, bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

#define CATCHMENT_COUNT() Count(__builtin_return_address(0))

extern "C" {

void* malloc(size_t bytes) {
  CATCHMENT_COUNT();
  return __libc_malloc(bytes);
}
void* calloc(size_t count, size_t bytes) {
  CATCHMENT_COUNT();
  return __libc_calloc(count, bytes);
}
void* realloc(void* memory, size_t bytes) {
  CATCHMENT_COUNT();
  return __libc_realloc(memory, bytes);
}
void* memalign(size_t alignment, size_t bytes) {
  CATCHMENT_COUNT();
  return __libc_memalign(alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) {
  CATCHMENT_COUNT();
  return __libc_memalign(alignment, bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) {
  CATCHMENT_COUNT();
  *memory = __libc_memalign(alignment, bytes);
  return *memory == nullptr ? ENOMEM : 0;
}
void free(void* memory) { __libc_free(memory); }

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
void operator delete(void* memory) noexcept { __libc_free(memory); }
void operator delete[](void* memory) noexcept { __libc_free(memory); }
void operator delete(void* memory, size_t) noexcept { __libc_free(memory); }
void operator delete[](void* memory, size_t) noexcept { __libc_free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { __libc_free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { __libc_free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { __libc_free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { __libc_free(memory); }

namespace catchment {

Allocations CountAllocations() { return {all, ours}; }
bool AllocationsAreCounted() { return true; }

}  // namespace catchment

#endif
