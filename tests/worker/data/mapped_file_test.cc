#include "worker/data/mapped_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <numeric>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/data/idx_files.h"

namespace catchment {
namespace {

constexpr int64_t kSize = 1 << 20;

std::shared_ptr<const MappedFile> Map(const std::string& path) {
  auto file = MappedFile::Open(path);
  EXPECT_TRUE(file.ok()) << file.status();
  return *std::move(file);
}

int Sum(const MappedFile& file) { return std::accumulate(file.data(), file.data() + file.size(), 0); }

void ReadAll(const MappedFile& file) {
  volatile int sum = Sum(file);
  static_cast<void>(sum);
}

class MappedFileDeathTest : public ::testing::Test {
 protected:
  MappedFileDeathTest() { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }

  std::string Write(const std::string& name) const {
    return WriteFile(TestDirectory(), name, std::string(kSize, 'x'));
  }
};

TEST_F(MappedFileDeathTest, AFileThatBecomesShorterIsNamed) {
  const std::string path = Write("a\nb");
  EXPECT_EXIT(
      {
        const auto before = Map(Write("before"));
        const auto file = Map(path);
        const auto after = Map(Write("after"));
        if (truncate(path.c_str(), 100) == 0) ReadAll(*file);
      },
      ::testing::ExitedWithCode(1), "mapped_file_test: the data file .*/a.nb has become shorter .*rename");
}

TEST_F(MappedFileDeathTest, InAnyThreadAndAfterOtherFilesWereClosed) {
  const std::string path = Write("shorter");
  EXPECT_EXIT(
      {
        for (int i = 0; i < 3; ++i) Map(Write("closed"));
        const auto file = Map(path);
        std::thread([&] {
          if (truncate(path.c_str(), 0) == 0 && unlink(path.c_str()) == 0) ReadAll(*file);
        }).join();
      },
      ::testing::ExitedWithCode(1), "the data file .*/shorter has become shorter");
}

TEST_F(MappedFileDeathTest, OtherMemoryEndsTheProcessAsBefore) {
  EXPECT_DEATH(
      {
        const auto file = Map(Write("mine"));
        const int memory = memfd_create("test", 0);
        if (memory >= 0 && ftruncate(memory, kSize) == 0) {
          auto* const data =
              static_cast<volatile char*>(mmap(nullptr, kSize, PROT_READ, MAP_SHARED, memory, 0));
          if (ftruncate(memory, 0) == 0) static_cast<void>(data[100]);
        }
      },
      "");
}

TEST(MappedFileTest, ManyFilesAreMappedAtATime) {
  std::vector<std::shared_ptr<const MappedFile>> files;
  for (int i = 0; i < 100; ++i) {
    files.push_back(Map(WriteFile(TestDirectory(), std::to_string(i), std::string(i, 1))));
    if (i % 3 == 0) files.erase(files.begin());
  }
  for (const auto& file : files) EXPECT_EQ(Sum(*file), file->size());
}

}  // namespace
}  // namespace catchment
