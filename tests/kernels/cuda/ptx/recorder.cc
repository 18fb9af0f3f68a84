#include "tests/kernels/cuda/ptx/recorder.h"

#include <array>
#include <memory>
#include <unordered_map>
#include <utility>

#include "tests/kernels/cuda/ptx/kernel.h"
#include "tests/kernels/cuda/ptx/runtime.h"

namespace catchment::ptx {
namespace {

constexpr uintptr_t kSectorBytes = 32;

// The sectors of memory that a kernel has accessed.
class Sectors {
 public:
  void Add(const char* memory, size_t bytes) {
    const auto first = reinterpret_cast<uintptr_t>(memory) / kSectorBytes;
    const auto last = (reinterpret_cast<uintptr_t>(memory) + bytes - 1) / kSectorBytes;
    for (uintptr_t sector = first; sector <= last; ++sector) AddOne(sector);
  }

  // Returns the bytes of all sectors, and forgets them.
  double TakeBytes() {
    pages_.clear();
    recent_.fill({});
    return static_cast<double>(std::exchange(count_, 0) * kSectorBytes);
  }

 private:
  static constexpr uintptr_t kPageSectors = 1 << 15, kRecent = 64;
  using Page = std::array<uint64_t, kPageSectors / 64>;
  struct Recent {
    uintptr_t number = 0;
    Page* page = nullptr;
  };

  void AddOne(uintptr_t sector) {
    uint64_t& word = FindPage(sector / kPageSectors)[sector % kPageSectors / 64];
    const uint64_t bit = uint64_t{1} << sector % 64;
    count_ += (word & bit) == 0;
    word |= bit;
  }

  Page& FindPage(uintptr_t number) {
    Recent& recent = recent_[number % kRecent];
    if (recent.page == nullptr || recent.number != number) {
      std::unique_ptr<Page>& page = pages_[number];
      if (page == nullptr) page = std::make_unique<Page>();
      recent = {number, page.get()};
    }
    return *recent.page;
  }

  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  std::array<Recent, kRecent> recent_;
  uint64_t count_ = 0;
};

struct Accesses {
  Sectors read, written;
  uint64_t count = 0, bytes = 0;
};

Accesses& TheAccesses() {
  static auto* const accesses = new Accesses;
  return *accesses;
}

}  // namespace

void AddRead(const char* memory, size_t bytes) {
  Accesses& accesses = TheAccesses();
  accesses.read.Add(memory, bytes);
  ++accesses.count;
  accesses.bytes += bytes;
}

void AddWrite(const char* memory, size_t bytes) {
  Accesses& accesses = TheAccesses();
  accesses.written.Add(memory, bytes);
  ++accesses.count;
  accesses.bytes += bytes;
}

void Record(Recording* recording) {
  const std::lock_guard<std::mutex> lock(TheRuntime().mu);
  TheRuntime().recording = recording;
}

void TakeAccesses(Operation* operation) {
  Accesses& accesses = TheAccesses();
  operation->bytes_read = accesses.read.TakeBytes();
  operation->bytes_written = accesses.written.TakeBytes();
  operation->accesses = static_cast<double>(std::exchange(accesses.count, 0));
  operation->accessed_bytes = static_cast<double>(std::exchange(accesses.bytes, 0));
}

}  // namespace catchment::ptx
