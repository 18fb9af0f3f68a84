#include "tests/worker/model/largest_allocation.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<size_t> largest{0};

}  // namespace

void* operator new(size_t size) {
  if (size > largest.load()) largest = size;
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace catchment {

void ResetLargestAllocation() { largest = 0; }

size_t LargestAllocation() { return largest.load(); }

}  // namespace catchment
