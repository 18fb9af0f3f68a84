#include "common/base/memory_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "common/base/shared_memory.h"
#include "tests/common/base/without_memfd.h"

namespace catchment {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Runs in a thread, whose end is that of the filter.
template <typename Body>
void WithoutMemfdDo(const Body& body) {
  bool forbidden = false;
  std::thread([&] {
    forbidden = ForbidMemfd();
    if (forbidden) body();
  }).join();
  if (!forbidden) GTEST_SKIP() << "this system allows no seccomp filter";
}

std::string TargetOf(int file) {
  char target[256];
  const ssize_t length = readlink(absl::StrCat("/proc/self/fd/", file).c_str(), target, sizeof target);
  return {target, static_cast<size_t>(std::max<ssize_t>(length, 0))};
}

TEST(MemoryFileTest, IsAnonymousMemoryWhereThereIsSome) {
  const auto memory = SharedMemory::Create("weights", 4096, WithoutMemfd::kUseFile);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_TRUE(IsMemfd(memory->fd()));
  EXPECT_LT(ftruncate(memory->fd(), 0), 0) << "sealed";
}

TEST(MemoryFileTest, WithoutMemfdADeletedFileTakesItsPlace) {
  WithoutMemfdDo([] {
    const auto memory = SharedMemory::Create("weights", 4096, WithoutMemfd::kUseFile);
    ASSERT_TRUE(memory.ok()) << memory.status();
    EXPECT_FALSE(IsMemfd(memory->fd()));
    EXPECT_THAT(TargetOf(memory->fd()), AllOf(HasSubstr("/catchment-weights-"), HasSubstr(" (deleted)")))
        << "_descriptors.py recognizes it";
    EXPECT_NE(fcntl(memory->fd(), F_GETFD) & FD_CLOEXEC, 0);
    struct stat about;
    ASSERT_EQ(fstat(memory->fd(), &about), 0);
    EXPECT_EQ(about.st_mode & 0777, 0600u);
    EXPECT_EQ(about.st_size, 4096);
    EXPECT_EQ(memory->floats()[1023], 0);
    memory->floats()[1023] = 5;
    float read = 0;
    EXPECT_EQ(pread(memory->fd(), &read, sizeof read, 4092), 4);
    EXPECT_EQ(read, 5);
    EXPECT_TRUE(ResizeMemoryFile(memory->fd(), 8192).ok());
  });
}

TEST(MemoryFileTest, WithoutMemfdAndAFileTheErrorNamesTheCause) {
  WithoutMemfdDo([] {
    const absl::Status status = SharedMemory::Create("gradients", 4096).status();
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr("no shared memory of 4096 bytes for the gradients: memfd_create failed ("),
                      HasSubstr("seccomp")));
  });
}

}  // namespace
}  // namespace catchment
