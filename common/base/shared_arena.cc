#include "common/base/shared_arena.h"

#include <fcntl.h>
#include <glog/logging.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/file_access.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr size_t kNonceBytes = 16;
// The arena begins with the nonce.
constexpr uint64_t kHeaderBytes = kAlignment;
constexpr int64_t kMinReservedBytes = 64 << 20;

// Returns the bytes that are reserved for float32 values.
int64_t ReservedBytes(int64_t values) {
  return std::max(values * static_cast<int64_t>(sizeof(float)), kMinReservedBytes);
}

uint64_t RoundUp(uint64_t bytes, uint64_t unit = kAlignment) { return (bytes + unit - 1) / unit * unit; }

// Returns the offset of the memory that an arena of `bytes` includes.
uint64_t PlaceOfIncluded(uint64_t bytes) { return RoundUp(bytes, sysconf(_SC_PAGESIZE)); }

// Returns the kernel's identifier of the time since the machine started; empty if it is not readable.
std::string BootId() {
  const absl::StatusOr<std::string> id = ReadFile("/proc/sys/kernel/random/boot_id");
  return id.ok() ? std::string(absl::StripTrailingAsciiWhitespace(*id)) : "";
}

std::string Random16() {
  std::string bytes;
  for (int i = 0; i < 2; ++i) {
    const uint64_t number = RandomId();
    bytes.append(reinterpret_cast<const char*>(&number), sizeof(number));
  }
  return bytes;
}

absl::Status Unusable(absl::string_view why) { return absl::FailedPreconditionError(why); }

// Opens the descriptor of another process, if it is shared memory of this user.
absl::StatusOr<int> OpenMemory(uint32_t process, uint32_t descriptor, uint64_t bytes) {
  const std::string path = absl::StrCat("/proc/", process, "/fd/", descriptor);
  char target[64];
  const ssize_t length = readlink(path.c_str(), target, sizeof(target));
  if (length < 0) return Unusable(absl::ErrnoToStatus(errno, path).message());
  if (!absl::StartsWith(absl::string_view(target, length), "/memfd:catchment-"))
    return Unusable(
        absl::StrCat(path, " is not shared memory of Catchment; the peer may be in another container"));
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return Unusable(absl::ErrnoToStatus(errno, path).message());
  struct stat info;
  const int seals = fcntl(fd, F_GET_SEALS);
  struct statfs system;
  const bool fits = fstat(fd, &info) == 0 && static_cast<uint64_t>(info.st_size) == bytes;
  // Reading huge pages (MFD_HUGETLB), which are another file system's, raises SIGBUS if there are none.
  const bool has_pages = fstatfs(fd, &system) == 0 && system.f_type == TMPFS_MAGIC;
  if (seals >= 0 && (seals & F_SEAL_SHRINK) != 0 && fits && has_pages && info.st_uid == geteuid()) return fd;
  close(fd);
  return Unusable(absl::StrCat(path, " is not sealed memory of this user with ", bytes, " bytes"));
}

}  // namespace

// ---------------------------------------------------------------------------------------------- SharedArena

absl::StatusOr<std::shared_ptr<SharedArena>> SharedArena::Create(const std::string& name, int64_t bytes) {
  ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::Create(name, bytes));
  madvise(memory.data(), bytes, MADV_DONTDUMP);
  madvise(memory.data(), bytes, MADV_HUGEPAGE);  // if the machine allows it for shared memory
  return std::shared_ptr<SharedArena>(new SharedArena(std::move(memory)));
}

std::shared_ptr<SharedArena> SharedArena::Reserve(const std::string& name, int64_t values,
                                                  const std::string& peers) {
  absl::StatusOr<std::shared_ptr<SharedArena>> arena = Create(name, ReservedBytes(values));
  if (arena.ok()) return *std::move(arena);
  LOG(WARNING) << "no memory is shared with " << peers << " on this machine: " << arena.status().message();
  return nullptr;
}

SharedArena::SharedArena(SharedMemory memory) : memory_(std::move(memory)), nonce_(Random16()) {
  std::memcpy(memory_.data(), nonce_.data(), nonce_.size());
  unused_.emplace(kHeaderBytes, memory_.bytes() - kHeaderBytes);
}

v1::SharedMemory SharedArena::Offer() const {
  v1::SharedMemory offer;
  offer.set_boot_id(BootId());
  offer.set_process(getpid());
  offer.set_descriptor_number(memory_.fd());
  offer.set_bytes(memory_.bytes());
  offer.set_nonce(nonce_);
  if (included_ != nullptr) {
    offer.mutable_more()->set_descriptor_number(included_->fd());
    offer.mutable_more()->set_bytes(included_->bytes());
  }
  return offer;
}

void SharedArena::Include(const SharedMemory& memory) {
  if (IsMemfd(memory.fd())) included_ = &memory;
}

std::optional<uint64_t> SharedArena::OffsetOf(const void* memory) const {
  if (const std::optional<uint64_t> place = memory_.OffsetOf(memory)) return place;
  if (included_ == nullptr) return std::nullopt;
  const std::optional<uint64_t> place = included_->OffsetOf(memory);
  if (!place) return std::nullopt;
  return PlaceOfIncluded(memory_.bytes()) + *place;
}

void* SharedArena::do_allocate(size_t bytes, size_t alignment) {
  const uint64_t size = RoundUp(std::max<size_t>(bytes, 1));
  if (alignment <= kAlignment) {
    MutexLock lock(&mu_);
    const auto place = std::find_if(unused_.begin(), unused_.end(),
                                    [size](const auto& range) { return range.second >= size; });
    if (place != unused_.end()) {
      const auto [offset, available] = *place;
      unused_.erase(place);
      if (available > size) unused_.emplace(offset + size, available - size);
      return memory_.data() + offset;
    }
  }
  return std::pmr::new_delete_resource()->allocate(bytes, alignment);
}

void SharedArena::do_deallocate(void* memory, size_t bytes, size_t alignment) {
  const std::optional<uint64_t> place = OffsetOf(memory);
  if (!place) return std::pmr::new_delete_resource()->deallocate(memory, bytes, alignment);
  uint64_t offset = *place;
  uint64_t size = RoundUp(std::max<size_t>(bytes, 1));
  // Only complete pages are freed: the others may be used by neighbours.
  fallocate(memory_.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(size));
  MutexLock lock(&mu_);
  auto next = unused_.lower_bound(offset);
  if (next != unused_.end() && offset + size == next->first) {
    size += next->second;
    next = unused_.erase(next);
  }
  if (next != unused_.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      previous->second += size;
      return;
    }
  }
  unused_.emplace(offset, size);
}

// ---------------------------------------------------------------------------------------------- MappedArena

bool IsOfThisMachine(const v1::SharedMemory& offer) {
  return !offer.boot_id().empty() && offer.boot_id() == BootId();
}

absl::StatusOr<std::unique_ptr<MappedArena>> MappedArena::Open(const v1::SharedMemory& offer,
                                                               int64_t values) {
  if (!IsOfThisMachine(offer)) return Unusable("the peer is on another machine");
  const auto most = static_cast<uint64_t>(ReservedBytes(values));
  if (offer.nonce().size() != kNonceBytes || offer.bytes() <= kHeaderBytes || offer.bytes() > most ||
      (offer.has_more() && (offer.more().bytes() == 0 || offer.more().bytes() > most)))
    return Unusable("the offered memory has an impossible size");
  const uint64_t place = PlaceOfIncluded(offer.bytes());
  const uint64_t bytes = offer.has_more() ? place + offer.more().bytes() : offer.bytes();
  void* const data = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED)
    return Unusable(absl::ErrnoToStatus(errno, absl::StrCat("reserving ", bytes, " bytes")).message());
  std::unique_ptr<MappedArena> arena(new MappedArena(static_cast<const char*>(data), bytes));
  ASSIGN_OR_RETURN(const int first, OpenMemory(offer.process(), offer.descriptor_number(), offer.bytes()));
  RETURN_IF_ERROR(arena->Map(first, 0, offer.bytes()));
  if (std::memcmp(data, offer.nonce().data(), kNonceBytes) != 0)
    return Unusable("the memory at the offered place is not the peer's");
  if (!offer.has_more()) return arena;
  ASSIGN_OR_RETURN(const int more,
                   OpenMemory(offer.process(), offer.more().descriptor_number(), offer.more().bytes()));
  RETURN_IF_ERROR(arena->Map(more, place, offer.more().bytes()));
  return arena;
}

absl::Status MappedArena::Map(int fd, uint64_t offset, uint64_t bytes) {
  void* const place = const_cast<char*>(data_) + offset;
  const bool mapped =
      mmap(place, bytes, PROT_READ, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0) != MAP_FAILED;
  const int error = errno;
  close(fd);
  if (!mapped)
    return Unusable(absl::ErrnoToStatus(error, absl::StrCat("mapping ", bytes, " bytes")).message());
  madvise(place, bytes, MADV_DONTDUMP);
  return absl::OkStatus();
}

MappedArena::~MappedArena() { munmap(const_cast<char*>(data_), bytes_); }

const char* MappedArena::At(uint64_t offset, uint64_t bytes) const {
  return bytes <= bytes_ && offset <= bytes_ - bytes ? data_ + offset : nullptr;
}

std::optional<uint64_t> MappedArena::Counter(uint64_t offset) const {
  const char* const place = At(offset, sizeof(uint64_t));
  if (place == nullptr || offset % sizeof(uint64_t) != 0) return std::nullopt;
  std::atomic_thread_fence(std::memory_order_acquire);
  return __atomic_load_n(reinterpret_cast<const uint64_t*>(place), __ATOMIC_ACQUIRE);
}

}  // namespace catchment
