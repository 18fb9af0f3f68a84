#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/base/machine.h"

namespace catchment {
namespace {

class MemoryTest : public testing::Test {
 protected:
  MemoryTest() {
    root_ = std::string(std::getenv("TEST_TMPDIR")) + "/" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
    Write("/proc/meminfo", "MemTotal:       4000 kB\nMemAvailable:    3000 kB");
  }
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << '\n';
  }

  std::string root_;
};

TEST_F(MemoryTest, WithoutGroupsAllThatTheMachineHasAvailableIsFree) {
  EXPECT_EQ(FreeMemory(root_), 3000 * 1024);
  EXPECT_EQ(MemoryLimit(root_), INT64_MAX);
}

TEST_F(MemoryTest, NothingIsFreeIfNothingIsKnown) { EXPECT_EQ(FreeMemory(root_ + "/none"), 0); }

TEST_F(MemoryTest, LimitOfAGroupAboveIsOneOfVersion2) {
  Write("/proc/self/cgroup", "0::/a/b");
  Write("/sys/fs/cgroup/a/b/memory.max", "max");
  Write("/sys/fs/cgroup/a/memory.max", "1000000");
  Write("/sys/fs/cgroup/a/memory.current", "700000");
  Write("/sys/fs/cgroup/a/memory.stat", "anon 500000\ninactive_file 100000");
  EXPECT_EQ(MemoryLimit(root_), 1000000);
  EXPECT_EQ(FreeMemory(root_), 400000) << "cached pages of files are free";
}

TEST_F(MemoryTest, LimitOfVersion1) {
  Write("/proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/a");
  Write("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "9223372036854771712");
  EXPECT_EQ(MemoryLimit(root_), INT64_MAX);
  Write("/sys/fs/cgroup/memory/m/memory.limit_in_bytes", "2000000");
  Write("/sys/fs/cgroup/memory/m/memory.usage_in_bytes", "2500000");
  EXPECT_EQ(MemoryLimit(root_), 2000000);
  EXPECT_EQ(FreeMemory(root_), 0);
}

TEST_F(MemoryTest, LimitAboveWhatTheMachineHasDoesNotCount) {
  Write("/proc/self/cgroup", "0::/");
  Write("/sys/fs/cgroup/memory.max", "99000000000");
  Write("/sys/fs/cgroup/memory.current", "0");
  EXPECT_EQ(FreeMemory(root_), 3000 * 1024);
}

TEST(FreeMemoryTest, OfThisMachineIsKnown) { EXPECT_GT(FreeMemory(), 0); }

}  // namespace
}  // namespace catchment
