#include "common/base/thread_limit.h"

#include <sys/resource.h>

#include <filesystem>
#include <fstream>
#include <new>
#include <string>
#include <system_error>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// A machine's files.
class ThreadRoomTest : public ::testing::Test {
 protected:
  ThreadRoomTest() {
    std::filesystem::remove_all(root_);
    // With the capabilities of root, which RLIMIT_NPROC does not concern.
    Put("proc/self/status", "Name:\ttest\nCapEff:\t000001ffffffffff\n");
    Put("proc/self/cgroup", "0::/system.slice/job.scope\n");
  }
  void Put(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = root_ + "/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  void Limit(const std::string& group, const std::string& most, const std::string& used) const {
    Put("sys/fs/cgroup" + group + "/pids.max", most + "\n");
    Put("sys/fs/cgroup" + group + "/pids.current", used + "\n");
  }

  const std::string root_ =
      ::testing::TempDir() + "/" + ::testing::UnitTest::GetInstance()->current_test_info()->name();
};

TEST_F(ThreadRoomTest, WithoutALimitEverythingFits) {
  Limit("/system.slice", "max", "10");
  const ThreadRoom room = FindThreadRoom(root_);
  EXPECT_EQ(room.source, "");
  EXPECT_TRUE(CheckThreads(room, "the job", 1'000'000).ok());
}

TEST_F(ThreadRoomTest, TheLevelThatLeavesTheFewestDecides) {
  Limit("", "100", "10");
  Limit("/system.slice", "200", "150");
  Limit("/system.slice/job.scope", "90", "10");
  const ThreadRoom room = FindThreadRoom(root_);
  EXPECT_EQ(room.left(), 50);
  EXPECT_EQ(room.source, root_ + "/sys/fs/cgroup/system.slice/pids.max");
  EXPECT_TRUE(CheckThreads(room, "the job", 50).ok());
  EXPECT_THAT(std::string(CheckThreads(room, "the job", 51).message()),
              AllOf(HasSubstr("about 51 threads are needed"), HasSubstr("processes and threads, 200"),
                    HasSubstr("leaves 50"), HasSubstr("pids.max"), HasSubstr("ulimit -u")));
}

TEST_F(ThreadRoomTest, AFullGroupLeavesNone) {
  Limit("/system.slice", "20", "25");
  EXPECT_THAT(std::string(CheckThreads(FindThreadRoom(root_), "the job", 1).message()),
              HasSubstr("leaves 0"));
}

// As the constructor of std::thread does, where nothing catches it.
void FailToStartThread(std::errc error) {
  std::thread([error] { throw std::system_error(std::make_error_code(error)); }).join();
}

TEST(MissingResourcesDeathTest, AreExplainedInsteadOfAborting) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(
      {
        ExplainMissingResources("catchment_test");
        FailToStartThread(std::errc::resource_unavailable_try_again);
      },
      ::testing::ExitedWithCode(1), "catchment_test: .*cannot start a thread.*ulimit -u");
  EXPECT_DEATH(
      {
        ExplainMissingResources("catchment_test");
        FailToStartThread(std::errc::io_error);
      },
      "catchment_test: ");
}

TEST(MissingResourcesDeathTest, MemoryIsNamed) {
  ::testing::FLAGS_gtest_death_test_style = "threadsafe";
  // Finite, and more than sanitizers reserve.
  const auto limit = [](int resource) {
    const rlimit finite{rlim_t{1} << 60, rlim_t{1} << 60};
    setrlimit(resource, &finite);
  };
  EXPECT_EXIT(
      {
        ExplainMissingResources("catchment_test");
        std::thread([] { throw std::bad_alloc(); }).join();
      },
      ::testing::ExitedWithCode(1), "catchment_test: cannot allocate memory: .*fewer processes");
  for (const int resource : {RLIMIT_AS, RLIMIT_DATA}) {
    EXPECT_EXIT(
        {
          limit(resource);
          ExplainMissingResources("catchment_test");
          std::thread([] { throw std::bad_alloc(); }).join();
        },
        ::testing::ExitedWithCode(1),
        "catchment_test: cannot allocate memory: .* 1152921504606 MB .*ulimit -v");
    EXPECT_EXIT(
        {
          limit(resource);
          ExplainMissingResources("catchment_test");
          FailToStartThread(std::errc::resource_unavailable_try_again);
        },
        ::testing::ExitedWithCode(1),
        "catchment_test: cannot start a thread: .* 1152921504606 MB .*ulimit -v");
  }
}

}  // namespace
}  // namespace catchment
