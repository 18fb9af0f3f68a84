#include "common/checkpoint/atomic_file.h"

#include <sys/resource.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/checkpoint/test_files.h"

namespace catchment {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

bool IsThere(const std::string& path) {
  return std::filesystem::exists(std::filesystem::symlink_status(path));
}

// No file of this process may grow beyond `bytes` while one of these lives.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    std::signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_;
};

TEST(AtomicFile, AppearsOnlyWithCommit) {
  const std::string path = FreshDirectory() + "/f";
  const auto file = AtomicFile::Create(path, 5);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Write("ab", 2).ok());
  ASSERT_TRUE((*file)->Write("cde", 3).ok());
  EXPECT_FALSE(IsThere(path));
  ASSERT_TRUE((*file)->Commit().ok());
  EXPECT_EQ(FileBytes(path), "abcde");
  EXPECT_FALSE(IsThere(AtomicFile::TemporaryPath(path)));
}

TEST(AtomicFile, WithoutCommitTheOldFileStays) {
  const std::string path = FreshDirectory() + "/f";
  SetFileBytes(path, "old");
  {
    const auto file = AtomicFile::Create(path, 3);
    ASSERT_TRUE(file.ok()) << file.status();
    ASSERT_TRUE((*file)->Write("new", 3).ok());
  }
  EXPECT_EQ(FileBytes(path), "old");
  EXPECT_FALSE(IsThere(AtomicFile::TemporaryPath(path)));
}

TEST(AtomicFile, FullDiskNamesTheFileAndItsNeedAndLeavesNothing) {
  const std::string path = FreshDirectory() + "/f";
  std::filesystem::create_symlink("/dev/full", AtomicFile::TemporaryPath(path));
  {
    const auto file = AtomicFile::Create(path, 123456);
    ASSERT_TRUE(file.ok()) << file.status();
    const absl::Status status = (*file)->Write("x", 1);
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(path), HasSubstr("needs 123456 bytes"), HasSubstr("No space left")));
  }
  EXPECT_FALSE(IsThere(path));
  EXPECT_FALSE(IsThere(AtomicFile::TemporaryPath(path)));
}

TEST(AtomicFile, WriteThatStopsHalfwayIsAnError) {
  const std::string path = FreshDirectory() + "/f";
  const std::vector<char> data(100000, 'x');
  {
    const FileSizeLimit limit(65536);
    const auto file = AtomicFile::Create(path, data.size());
    ASSERT_TRUE(file.ok()) << file.status();
    const absl::Status status = (*file)->Write(data.data(), data.size());
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path), HasSubstr("needs 100000 bytes")));
  }
  EXPECT_FALSE(IsThere(path));
  EXPECT_FALSE(IsThere(AtomicFile::TemporaryPath(path)));
}

// The child is a separate, newly started process.
TEST(AtomicFileDeathTest, NoTwoProcessesWriteToOneTemporaryFile) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  const auto print = [] {
    std::fputs(AtomicFile::TemporaryPath("f").c_str(), stderr);
    std::exit(0);
  };
  EXPECT_EXIT(print(), testing::ExitedWithCode(0), MatchesRegex("f\\.[0-9a-f]+\\.tmp"));
  EXPECT_EXIT(print(), testing::ExitedWithCode(0), Not(HasSubstr(AtomicFile::TemporaryPath("f"))));
}

TEST(AtomicFile, WhatKilledProcessesLeftIsRemovedAndNothingElse) {
  const std::string directory = FreshDirectory();
  const std::string left = directory + "/model.safetensors.0123456789abcdef.tmp";
  const std::string others[] = {directory + "/model.safetensors", directory + "/mine.tmp",
                                directory + "/0123456789abcdef.tmp", directory + "/x.0123456789abcdeg.tmp"};
  SetFileBytes(left, "half");
  for (const std::string& other : others) SetFileBytes(other, "whole");
  RemoveTemporaries(directory);
  EXPECT_FALSE(IsThere(left));
  for (const std::string& other : others) EXPECT_TRUE(IsThere(other)) << other;
  RemoveTemporaries("/nowhere");
}

TEST(AtomicFile, MissingDirectoryIsNamed) {
  const auto file = AtomicFile::Create("/nowhere/f", 1);
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("/nowhere/f"));
}

TEST(CreateDirectories, MakesAllOfThemAndMindsNoneThatIsThere) {
  const std::string path = FreshDirectory() + "/a/b/c";
  EXPECT_TRUE(CreateDirectories(path).ok());
  EXPECT_TRUE(CreateDirectories(path).ok());
  EXPECT_TRUE(std::filesystem::is_directory(path));
}

TEST(CreateDirectories, FileInTheWayIsNamed) {
  const std::string path = FreshDirectory() + "/f";
  SetFileBytes(path, "");
  EXPECT_THAT(std::string(CreateDirectories(path).message()), HasSubstr(path));
  EXPECT_THAT(std::string(CreateDirectories(path + "/d").message()), HasSubstr(path + "/d"));
}

}  // namespace
}  // namespace catchment
