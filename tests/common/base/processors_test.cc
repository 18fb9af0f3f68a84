#include <gtest/gtest.h>
#include <sched.h>

#include <climits>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/base/machine.h"

namespace catchment {
namespace {

class ProcessorsTest : public testing::Test {
 protected:
  ProcessorsTest() {
    root_ = std::string(std::getenv("TEST_TMPDIR")) + "/" +
            testing::UnitTest::GetInstance()->current_test_info()->name();
  }
  void Write(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text << '\n';
  }

  std::string root_;
};

TEST_F(ProcessorsTest, NoFilesMeanNoQuota) { EXPECT_EQ(ProcessorQuota(root_), INT_MAX); }

TEST_F(ProcessorsTest, QuotaOfVersion2IsRoundedUp) {
  Write("/proc/self/cgroup", "0::/system.slice/job.service");
  Write("/sys/fs/cgroup/system.slice/job.service/cpu.max", "150000 100000");
  EXPECT_EQ(ProcessorQuota(root_), 2);
}

TEST_F(ProcessorsTest, SmallestQuotaOfTheGroupsAboveCounts) {
  Write("/proc/self/cgroup", "0::/a/b");
  Write("/sys/fs/cgroup/a/b/cpu.max", "max 100000");
  Write("/sys/fs/cgroup/a/cpu.max", "300000 100000");
  EXPECT_EQ(ProcessorQuota(root_), 3);
  Write("/sys/fs/cgroup/cpu.max", "50000 100000");
  EXPECT_EQ(ProcessorQuota(root_), 1);
}

TEST_F(ProcessorsTest, MaxMeansNoQuota) {
  Write("/proc/self/cgroup", "0::/");
  Write("/sys/fs/cgroup/cpu.max", "max 100000");
  EXPECT_EQ(ProcessorQuota(root_), INT_MAX);
}

TEST_F(ProcessorsTest, QuotaOfVersion1) {
  Write("/proc/self/cgroup", "5:memory:/m\n4:cpu,cpuacct:/a\n0::/");
  Write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "400000");
  Write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000");
  EXPECT_EQ(ProcessorQuota(root_), 4);
  Write("/sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "-1");
  EXPECT_EQ(ProcessorQuota(root_), INT_MAX);
}

// A container sees its own group as the root of the mount, under the path that it has outside.
TEST_F(ProcessorsTest, GroupOfAContainerIsTheRootOfItsMount) {
  Write("/proc/self/cgroup", "4:cpu,cpuacct:/docker/0123\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "200000");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(ProcessorQuota(root_), 2);
}

TEST_F(ProcessorsTest, AffinityLimits) {
  cpu_set_t before, one;
  CPU_ZERO(&before);
  CPU_ZERO(&one);
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu) {
    if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(AvailableProcessors(), 1);
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

}  // namespace
}  // namespace catchment
