#include "common/base/atomic_file.h"

#include <filesystem>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/checkpoint/test_files.h"

namespace catchment {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

bool IsThere(const std::string& path) {
  return std::filesystem::exists(std::filesystem::symlink_status(path));
}

// The temporary files that are in the directory.
std::vector<std::string> Temporaries(const std::string& directory) {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() == ".tmp") found.push_back(entry.path().filename().string());
  }
  return found;
}

TEST(AtomicFile, AppearsOnlyWithCommit) {
  const std::string path = FreshDirectory() + "/f";
  const auto file = AtomicFile::Create(path, 5);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE((*file)->Write("ab", 2).ok());
  ASSERT_TRUE((*file)->Write("cde", 3).ok());
  EXPECT_FALSE(IsThere(path));
  ASSERT_TRUE((*file)->Commit().ok());
  EXPECT_EQ(FileBytes(path), "abcde");
  EXPECT_TRUE(Temporaries(std::filesystem::path(path).parent_path()).empty());
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
  EXPECT_TRUE(Temporaries(std::filesystem::path(path).parent_path()).empty());
}

TEST(AtomicFile, FullDiskNamesTheFileAndItsNeedAndLeavesNothing) {
  const std::string path = FreshDirectory() + "/f";
  {
    const FileSizeLimit limit(0);
    const auto file = AtomicFile::Create(path, 123456);
    ASSERT_TRUE(file.ok()) << file.status();
    const absl::Status status = (*file)->Write("x", 1);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(path), HasSubstr("needs 123456 bytes"), HasSubstr("File too large")));
  }
  EXPECT_FALSE(IsThere(path));
  EXPECT_TRUE(Temporaries(std::filesystem::path(path).parent_path()).empty());
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
  EXPECT_TRUE(Temporaries(std::filesystem::path(path).parent_path()).empty());
}

TEST(AtomicFile, NoTwoFilesHaveTheSameTemporaryName) {
  const std::string directory = FreshDirectory();
  const auto file = AtomicFile::Create(directory + "/f", 1);
  const auto another = AtomicFile::Create(directory + "/f", 1);
  ASSERT_TRUE(file.ok() && another.ok());
  const std::vector<std::string> names = Temporaries(directory);
  EXPECT_EQ(names.size(), 2u);
  EXPECT_THAT(names, Each(MatchesRegex("f\\.[0-9a-f]+\\.tmp")));
}

// Others who may write to the directory see the name of one file, but cannot take the place of the next.
TEST(AtomicFile, ANameThatWasSeenDoesNotRevealTheNext) {
  const std::string directory = FreshDirectory();
  SetFileBytes(directory + "/victim", "mine");
  std::string ids[2];
  for (std::string& id : ids) {
    const auto file = AtomicFile::Create(directory + "/f", 1);
    ASSERT_TRUE(file.ok());
    id = Temporaries(directory).at(0);
    std::filesystem::create_symlink("victim", directory + "/g" + id.substr(1));
    ASSERT_TRUE(WriteAtomically(directory + "/g", "new").ok());
    std::filesystem::remove(directory + "/g" + id.substr(1));
  }
  EXPECT_NE(ids[0], ids[1]);
  EXPECT_EQ(FileBytes(directory + "/victim"), "mine");
  EXPECT_FALSE(std::filesystem::is_symlink(directory + "/g"));
}

TEST(AtomicFile, NothingThatIsThereIsUsedAsTheTemporaryFile) {
  const std::string directory = FreshDirectory();
  const std::string victim = directory + "/victim", temporary = directory + "/t";
  SetFileBytes(victim, "mine");
  const auto refused = [&] {
    const absl::Status status = AtomicFile::CreateAt(directory + "/f", temporary, 1).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists) << status;
    EXPECT_TRUE(IsThere(temporary));
    std::filesystem::remove(temporary);
  };
  std::filesystem::create_symlink(victim, temporary);
  refused();
  std::filesystem::create_symlink(directory + "/new", temporary);
  refused();
  std::filesystem::create_hard_link(victim, temporary);
  refused();
  EXPECT_EQ(FileBytes(victim), "mine");
  EXPECT_FALSE(IsThere(directory + "/new"));
}

TEST(CopyAtomically, ReplacesALinkInsteadOfWritingThroughIt) {
  const std::string directory = FreshDirectory();
  const std::string content(3 << 20, 'x');
  SetFileBytes(directory + "/from", content);
  SetFileBytes(directory + "/victim", "mine");
  std::filesystem::create_symlink("victim", directory + "/to");
  ASSERT_TRUE(CopyAtomically(directory + "/from", directory + "/to").ok());
  EXPECT_TRUE(FileBytes(directory + "/to") == content);
  EXPECT_EQ(FileBytes(directory + "/victim"), "mine");
  EXPECT_EQ(Temporaries(directory).size(), 0u);
  EXPECT_TRUE(absl::IsNotFound(CopyAtomically(directory + "/nothing", directory + "/to")));
  EXPECT_TRUE(FileBytes(directory + "/to") == content);
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

TEST(CreateDirectories, MakesAllOfThemAndAcceptsThoseThatExist) {
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
