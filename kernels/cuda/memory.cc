// Accounts for the device's memory: what layers have allocated, and what they would need if there is too
// little.
#include <cstdio>

#include "kernels/cuda/device.h"

namespace catchment::cuda {
namespace {

std::string Size(size_t bytes) {
  const double mebibytes = static_cast<double>(bytes) / (1 << 20);
  char text[40];
  if (mebibytes < 1024) {
    std::snprintf(text, sizeof text, "%.1f MiB", mebibytes);
  } else {
    std::snprintf(text, sizeof text, "%.1f GiB", mebibytes / 1024);
  }
  return text;
}

}  // namespace

void* Device::Allocate(size_t bytes) {
  void* const memory = TryAllocate(bytes);
  (memory != nullptr ? used_ : missing_) += bytes;
  return memory;
}

void Device::Free(void* memory, size_t bytes) noexcept {
  (memory != nullptr ? used_ : missing_) -= bytes;
  Release(memory);
}

void Device::ReserveScratch(size_t bytes) {
  if (bytes <= scratch_bytes_) return;
  Wait();
  if (scratch_bytes_ > 0) Free(scratch_, scratch_bytes_);
  scratch_ = static_cast<char*>(Allocate(bytes));
  scratch_bytes_ = bytes;
}

void Device::CheckMemory(int batch_size) const {
  if (missing_ == 0) return;
  const Memory now = memory();
  throw Error("the device has too little memory: with batch_size " + std::to_string(batch_size) +
              " the model needs " + Size(used_ + missing_) + ", and of the device's " + Size(now.total) +
              " there are " + Size(now.free + used_) + " for it; use a smaller batch_size or model");
}

}  // namespace catchment::cuda
