// kernels/cuda/device.h on the processor, for tests: copies are done at once.
#include <cstdlib>
#include <cstring>

#include "kernels/cuda/device.h"

namespace catchment::cuda {

struct Device::Streams {};

Device::Device(int index, bool tf32) : index_(index), tf32_(tf32) {}
Device::~Device() { Free(scratch_); }

void Device::Enter() {}
std::string Device::Describe() const {
  return "the layers of cuda:" + std::to_string(index_) + " in plain loops";
}

void* Device::Allocate(size_t bytes) {
  void* const memory = std::aligned_alloc(256, (bytes + 256) / 256 * 256);
  if (memory == nullptr) throw Error("out of memory");
  std::memset(memory, 0xff, bytes);  // NaN: as on a device, nothing can be counted on
  return memory;
}

void* Device::AllocatePinned(size_t bytes) { return Allocate(bytes); }
void Device::Free(void* memory) noexcept { std::free(memory); }
void Device::FreePinned(void* memory) noexcept { std::free(memory); }

void Device::CopyIn(void* device, const void* pinned, size_t bytes) { std::memcpy(device, pinned, bytes); }

uint64_t Device::CopyOut(void* pinned, const void* device, size_t bytes) {
  std::memcpy(pinned, device, bytes);
  return 0;
}

void Device::Await(uint64_t) {}

void Device::ReserveScratch(int64_t values) {
  if (values <= scratch_values_) return;
  Free(std::exchange(scratch_, nullptr));
  scratch_ = static_cast<float*>(Allocate(values * sizeof(float)));
  scratch_values_ = values;
}

void Device::Launched() {}

}  // namespace catchment::cuda
