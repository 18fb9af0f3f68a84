#include "common/base/shared_arena.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace catchment {
namespace {

using testing::HasSubstr;

constexpr int64_t kBytes = 1 << 20;

std::shared_ptr<SharedArena> MakeArena() { return *SharedArena::Create("test", kBytes); }

// Returns the exit code of `child` in a process of its own.
int RunInChild(const std::function<int()>& child) {
  const pid_t pid = fork();
  if (pid == 0) _exit(child());
  int status = 0;
  waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(SharedArenaTest, AnotherProcessReadsWhatIsWrittenAfterItMappedTheMemory) {
  const auto arena = MakeArena();
  std::pmr::vector<float> values(100, arena.get());
  const uint64_t offset = *arena->OffsetOf(values.data());
  int to_child[2], to_parent[2];
  ASSERT_EQ(pipe(to_child), 0);
  ASSERT_EQ(pipe(to_parent), 0);
  const v1::SharedMemory offer = arena->Offer();
  const pid_t child = fork();
  if (child == 0) {
    const auto mapped = MappedArena::Open(offer, 0);
    char byte = mapped.ok() ? 'y' : 'n';
    if (write(to_parent[1], &byte, 1) != 1 || read(to_child[0], &byte, 1) != 1 || !mapped.ok()) _exit(1);
    float value;
    std::memcpy(&value, (*mapped)->At(offset + 40, 4), 4);
    _exit(value == 7.0f ? 0 : 2);
  }
  char byte = 0;
  ASSERT_EQ(read(to_parent[0], &byte, 1), 1);
  EXPECT_EQ(byte, 'y');
  values[10] = 7.0f;
  ASSERT_EQ(write(to_child[1], &byte, 1), 1);
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST(SharedArenaTest, ReaderCannotWrite) {
  const auto arena = MakeArena();
  const auto mapped = MappedArena::Open(arena->Offer(), 0);
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  char* const place = const_cast<char*>((*mapped)->At(100, 1));
  EXPECT_NE(mprotect(reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(place) & ~uintptr_t{4095}), 4096,
                     PROT_READ | PROT_WRITE),
            0);
}

TEST(SharedArenaTest, ReusesFreedMemoryWhichIsZeroAgain) {
  const auto arena = MakeArena();
  std::vector<void*> parts;
  for (int i = 0; i < 8; ++i) parts.push_back(arena->allocate(100'000, 64));
  void* const first = parts[0];
  for (void* part : parts) {
    ASSERT_TRUE(arena->OffsetOf(part));
    EXPECT_EQ(reinterpret_cast<uintptr_t>(part) % 64, 0u);
    std::memset(part, 1, 100'000);
  }
  // In another order than they were allocated in: neighbours become one part again.
  for (int i : {1, 3, 2, 0, 7, 5, 6, 4}) arena->deallocate(parts[i], 100'000, 64);
  char* const all = static_cast<char*>(arena->allocate(800'000, 64));
  EXPECT_EQ(all, first);
  EXPECT_TRUE(std::all_of(all, all + 800'000, [](char byte) { return byte == 0; }));
  arena->deallocate(all, 800'000, 64);
}

TEST(SharedArenaTest, FreesNothingOfItsNeighbours) {
  const auto arena = MakeArena();
  std::vector<char*> parts;
  for (int i = 0; i < 100; ++i) {
    parts.push_back(static_cast<char*>(arena->allocate(1000, 64)));
    std::memset(parts[i], i, 1000);
  }
  for (int i = 0; i < 100; i += 2) arena->deallocate(parts[i], 1000, 64);
  for (int i = 1; i < 100; i += 2)
    EXPECT_TRUE(std::all_of(parts[i], parts[i] + 1000, [i](char byte) { return byte == i; })) << i;
}

TEST(SharedArenaTest, AllocatesFromTheHeapWhenItIsFull) {
  const auto arena = MakeArena();
  std::pmr::vector<char> most(kBytes - 4096, arena.get()), more(kBytes, arena.get());
  EXPECT_TRUE(arena->OffsetOf(most.data()));
  EXPECT_FALSE(arena->OffsetOf(more.data()));
  more[kBytes - 1] = 1;
}

TEST(SharedArenaTest, LimitOfTheSizeOfFilesIsAnError) {
  const auto create = [] {
    const rlimit limit{kBytes, kBytes};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return 1;
    if (!SharedArena::Create("small", kBytes).ok()) return 2;
    return absl::IsResourceExhausted(SharedArena::Create("large", kBytes + 1).status()) ? 0 : 3;
  };
  EXPECT_EQ(RunInChild(create), 0);
}

TEST(MappedArenaTest, KnowsItsBounds) {
  const auto arena = MakeArena();
  const auto mapped = *MappedArena::Open(arena->Offer(), 0);
  EXPECT_NE(mapped->At(0, kBytes), nullptr);
  EXPECT_NE(mapped->At(kBytes, 0), nullptr);
  EXPECT_EQ(mapped->At(1, kBytes), nullptr);
  EXPECT_EQ(mapped->At(kBytes + 1, 0), nullptr);
  EXPECT_EQ(mapped->At(UINT64_MAX, 2), nullptr);
  EXPECT_EQ(mapped->At(2, UINT64_MAX), nullptr);
  EXPECT_TRUE(mapped->Counter(kBytes - 8));
  EXPECT_FALSE(mapped->Counter(kBytes - 7));
  EXPECT_FALSE(mapped->Counter(65)) << "not aligned";
}

TEST(MappedArenaTest, HasTheMemoryThatTheArenaIncludes) {
  const auto arena = *SharedArena::Create("test", kBytes + 100);  // not whole pages
  const auto program = *SharedMemory::Create("gradient", 5000);
  EXPECT_FALSE(arena->OffsetOf(program.data()));
  arena->Include(program);
  program.data()[4999] = 'x';
  const v1::SharedMemory offer = arena->Offer();
  const auto mapped = *MappedArena::Open(offer, 0);
  const std::optional<uint64_t> place = arena->OffsetOf(program.data());
  ASSERT_TRUE(place);
  EXPECT_EQ(*arena->OffsetOf(program.data() + 4999), *place + 4999);
  EXPECT_FALSE(arena->OffsetOf(program.data() + 5000));
  EXPECT_EQ(*mapped->At(*place + 4999, 1), 'x');
  EXPECT_EQ(mapped->At(*place, 5001), nullptr);
  std::pmr::vector<char> own(1, 'y', arena.get());
  EXPECT_EQ(*mapped->At(*arena->OffsetOf(own.data()), 1), 'y');

  const auto refusal = [&](const std::function<void(v1::SharedMemory::More*)>& change) {
    v1::SharedMemory wrong = offer;
    change(wrong.mutable_more());
    return std::string(MappedArena::Open(wrong, 0).status().message());
  };
  EXPECT_THAT(refusal([](auto* more) { more->set_bytes(4999); }), HasSubstr("not sealed memory"));
  EXPECT_THAT(refusal([](auto* more) { more->set_bytes(UINT64_MAX); }), HasSubstr("impossible size"));
  EXPECT_THAT(refusal([](auto* more) { more->set_bytes(0); }), HasSubstr("impossible size"));
  EXPECT_THAT(refusal([](auto* more) { more->set_descriptor_number(0); }),
              HasSubstr("not shared memory of Catchment"));
}

TEST(MappedArenaTest, RefusesWhatIsNotTheOfferedMemory) {
  const auto arena = MakeArena();
  const auto refusal = [&](const std::function<void(v1::SharedMemory*)>& change) {
    v1::SharedMemory offer = arena->Offer();
    change(&offer);
    const auto mapped = MappedArena::Open(offer, 0);
    EXPECT_EQ(mapped.status().code(), absl::StatusCode::kFailedPrecondition);
    return std::string(mapped.status().message());
  };
  EXPECT_THAT(refusal([](v1::SharedMemory* m) { m->set_boot_id("0"); }), HasSubstr("another machine"));
  EXPECT_THAT(refusal([](v1::SharedMemory* m) { m->clear_boot_id(); }), HasSubstr("another machine"));
  EXPECT_THAT(refusal([](v1::SharedMemory* m) { m->mutable_nonce()->back() ^= 1; }),
              HasSubstr("not the peer's"));
  EXPECT_THAT(refusal([](v1::SharedMemory* m) { m->mutable_nonce()->clear(); }),
              HasSubstr("impossible size"));
  EXPECT_THAT(refusal([](v1::SharedMemory* m) { m->set_bytes(UINT64_MAX); }), HasSubstr("impossible size"));
  EXPECT_THAT(refusal([](v1::SharedMemory* m) { m->set_bytes(m->bytes() + 1); }),
              HasSubstr("is not sealed memory"));
  EXPECT_THAT(refusal([](v1::SharedMemory* m) { m->set_process(UINT32_MAX); }),
              HasSubstr("/proc/4294967295/fd/"));
  EXPECT_THAT(refusal([](v1::SharedMemory* m) { m->set_descriptor_number(0); }),
              HasSubstr("is not shared memory of Catchment"));
}

TEST(MappedArenaTest, RefusesMemoryThatCouldBeShortened) {
  const auto arena = MakeArena();
  const int fd = memfd_create("catchment-unsealed", MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(fd, kBytes), 0);
  v1::SharedMemory offer = arena->Offer();
  offer.set_descriptor_number(fd);
  EXPECT_THAT(MappedArena::Open(offer, 0).status().message(), HasSubstr("is not sealed memory"));
  close(fd);
}

// The sealed memory of a size that the peer may have reserved, whose pages may not exist.
TEST(MappedArenaTest, RefusesHugePages) {
  const auto arena = MakeArena();
  const int fd = memfd_create("catchment-huge", MFD_ALLOW_SEALING | MFD_HUGETLB);
  if (fd < 0) GTEST_SKIP() << "this system has no huge pages";
  constexpr int64_t kHuge = 32 << 20;  // a multiple of the sizes of huge pages
  v1::SharedMemory offer = arena->Offer();
  offer.set_descriptor_number(fd);
  offer.set_bytes(kHuge);
  ASSERT_EQ(ftruncate(fd, kHuge), 0);
  ASSERT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_THAT(MappedArena::Open(offer, 0).status().message(), HasSubstr("is not sealed memory"));
  close(fd);
}

TEST(MappedArenaTest, MapsWhatThePeerMayReserveAndNoMore) {
  constexpr int64_t kValues = 20 << 20;  // 80 MiB
  const auto arena = SharedArena::Reserve("large", kValues, "peers");
  ASSERT_NE(arena, nullptr);
  EXPECT_TRUE(MappedArena::Open(arena->Offer(), kValues).ok());
  EXPECT_THAT(MappedArena::Open(arena->Offer(), kValues - 1).status().message(),
              HasSubstr("impossible size"));
  const auto small = SharedArena::Reserve("small", 1, "peers");
  ASSERT_NE(small, nullptr);
  EXPECT_TRUE(MappedArena::Open(small->Offer(), 1).ok());
}

TEST(MappedArenaTest, RefusesMemoryOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  const auto arena = MakeArena();
  const v1::SharedMemory offer = arena->Offer();
  const int as_other = RunInChild([&] { return setuid(65534) != 0 ? 2 : MappedArena::Open(offer, 0).ok(); });
  if (as_other == 2) GTEST_SKIP() << "this container has no other user";
  EXPECT_EQ(as_other, 0);
  // Root may open the descriptors of others, but does not use their memory.
  ASSERT_EQ(fchown(offer.descriptor_number(), 65534, -1), 0);
  EXPECT_THAT(MappedArena::Open(offer, 0).status().message(), HasSubstr("is not sealed memory of this user"));
}

TEST(MappedArenaTest, OutlivesItsOwner) {
  auto arena = MakeArena();
  auto* const values = static_cast<int*>(arena->allocate(4000, 64));
  std::fill(values, values + 1000, 7);
  const uint64_t offset = *arena->OffsetOf(values);
  const auto mapped = *MappedArena::Open(arena->Offer(), 0);
  int copy[1000];
  std::memcpy(copy, mapped->At(offset, sizeof(copy)), sizeof(copy));
  arena.reset();
  std::memset(copy, 0, sizeof(copy));
  std::memcpy(copy, mapped->At(offset, sizeof(copy)), sizeof(copy));
  EXPECT_EQ(copy[999], 7);
}

TEST(SharedCounterTest, AdvancesAndIsReadByOthers) {
  const auto arena = MakeArena();
  void* const memory = arena->allocate(8, 8);
  std::memset(memory, 0, 8);
  const auto mapped = *MappedArena::Open(arena->Offer(), 0);
  SharedCounter counter(memory);
  counter.AdvanceTo(2);
  EXPECT_EQ(mapped->Counter(*arena->OffsetOf(memory)), 2u);
  counter.Set(9);
  EXPECT_EQ(mapped->Counter(*arena->OffsetOf(memory)), 9u);
}

}  // namespace
}  // namespace catchment
