// kernels/cuda/device.h on the CPU, for tests. Copies are made immediately. CATCHMENT_HOST_DEVICE_BYTES
// limits its memory.
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/device.h"

namespace catchment::cuda {
namespace {

size_t MemoryBytes() {
  const char* const bytes = std::getenv("CATCHMENT_HOST_DEVICE_BYTES");
  return bytes != nullptr ? std::strtoull(bytes, nullptr, 10) : size_t{1} << 40;
}

}  // namespace

struct Device::Streams {};

const int64_t Device::kMaxPatchValues = int64_t{1} << 11;
const size_t Device::kSpareBytes = size_t{1} << 16;

Device::Device(int index, Precision precision) : index_(index), precision_(precision) {}
Device::~Device() { Release(scratch_); }

void Device::Enter() {}
std::string Device::Describe() const {
  return "the layers of cuda:" + std::to_string(index_) + " in plain loops, " + NameOf(precision_);
}

void* Device::TryAllocate(size_t bytes) {
  if (bytes > memory().free) return nullptr;
  void* const memory = std::aligned_alloc(256, (bytes + 256) / 256 * 256);
  // Filled with NaN, since the memory of a device is not initialised either.
  if (memory != nullptr) std::memset(memory, 0xff, bytes);
  return memory;
}

Device::Memory Device::memory() const {
  const size_t total = MemoryBytes();
  return {total - used_, total};
}

void* Device::AllocatePinned(size_t bytes) {
  void* const memory = std::calloc(bytes + 1, 1);
  if (memory == nullptr) throw Error("out of memory");
  return memory;
}

bool Device::TryRegister(void*, size_t) { return true; }
void Device::Unregister(void*) noexcept {}

void Device::Release(void* memory) noexcept { std::free(memory); }
void Device::FreePinned(void* memory) noexcept { std::free(memory); }

void Device::CopyIn(void* device, const void* pinned, size_t bytes) { std::memcpy(device, pinned, bytes); }

uint64_t Device::CopyOut(void* pinned, const void* device, size_t bytes) {
  std::memcpy(pinned, device, bytes);
  return 0;
}

void Device::Await(uint64_t) {}
void Device::Wait() {}
void Device::Launched(const char*) {}

}  // namespace catchment::cuda
