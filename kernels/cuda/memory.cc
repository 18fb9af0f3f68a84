// Accounts for the device's memory: the layers' allocations, and their needs if there is too little; and for
// the host's memory that is pinned.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "kernels/cuda/device.h"

namespace catchment::cuda {
namespace {

constexpr size_t kPageBytes = 4096;

// Returns the beginning of the byte's page.
char* PageOf(char* byte) { return byte - reinterpret_cast<uintptr_t>(byte) % kPageBytes; }

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

bool Device::Pin(void* memory, size_t bytes) {
  const std::lock_guard<std::mutex> lock(pinned_mu_);
  char* const begin = PageOf(static_cast<char*>(memory));
  char* const end = PageOf(static_cast<char*>(memory) + bytes + kPageBytes - 1);
  for (char* at = begin; at < end;) {
    if (RunOf(at) == nullptr) {
      const auto next = runs_.upper_bound(at);
      char* const run_end = next == runs_.end() ? end : std::min(end, const_cast<char*>(next->first));
      if (!TryRegister(at, run_end - at)) {
        UnpinPages(begin, at);
        return false;
      }
      runs_[at] = {run_end, 0};
    }
    Run& run = std::prev(runs_.upper_bound(at))->second;
    ++run.users;
    at = run.end;
  }
  pinned_[memory] = bytes;
  return true;
}

void Device::Unpin(void* memory) {
  const std::lock_guard<std::mutex> lock(pinned_mu_);
  const auto pinned = pinned_.find(memory);
  if (pinned == pinned_.end()) return;
  UnpinPages(PageOf(static_cast<char*>(memory)),
             PageOf(static_cast<char*>(memory) + pinned->second + kPageBytes - 1));
  pinned_.erase(pinned);
}

void Device::UnpinPages(char* begin, char* end) {
  if (begin == end) return;
  auto run = std::prev(runs_.upper_bound(begin));
  while (run != runs_.end() && run->first < end) {
    const auto next = std::next(run);
    if (--run->second.users == 0) {
      Unregister(const_cast<char*>(run->first));
      runs_.erase(run);
    }
    run = next;
  }
}

const Device::Run* Device::RunOf(const char* byte) const {
  const auto after = runs_.upper_bound(byte);
  if (after == runs_.begin()) return nullptr;
  const Run& run = std::prev(after)->second;
  return byte < run.end ? &run : nullptr;
}

bool Device::IsPinned(const void* memory, size_t bytes) const {
  const std::lock_guard<std::mutex> lock(pinned_mu_);
  const char* const begin = static_cast<const char*>(memory);
  for (const char* at = begin; at < begin + bytes;) {
    const Run* const run = RunOf(at);
    if (run == nullptr) return false;
    at = run->end;
  }
  return true;
}

void Device::CheckMemory(int batch_size) const {
  const Memory now = memory();
  if (missing_ == 0 && now.free >= kSpareBytes) return;
  throw Error("the device has too little memory: with minibatches of " + std::to_string(batch_size) +
              " samples the model needs " + Size(used_ + missing_) + ", besides " + Size(kSpareBytes) +
              " for the code of kernels, and of the device's " + Size(now.total) + " there are " +
              Size(now.free + used_) +
              " for both; use a smaller batch_size or model, or run fewer programs on the device");
}

bool Device::IsSet(const char* variable) {
  const char* const value = std::getenv(variable);
  return value != nullptr && std::string(value) == "1";
}

}  // namespace catchment::cuda
