#include "cli/base/temporary_directory.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/machine.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

namespace fs = std::filesystem;

class TemporaryDirectoryTest : public ::testing::Test {
 protected:
  TemporaryDirectoryTest()
      : parent_(::testing::TempDir() + "/" +
                ::testing::UnitTest::GetInstance()->current_test_info()->name()) {
    fs::remove_all(parent_);
    fs::create_directories(parent_);
  }

  // Creates a directory with content in a process that ends without destructors.
  void CreateAndDie() const {
    const pid_t child = fork();
    if (child == 0) {
      const auto directory = TemporaryDirectory::CreateIn(parent_, "catchment-advise");
      if (!directory.ok()) _exit(1);
      fs::create_directories(directory->path() + "/a/b");
      std::ofstream(directory->path() + "/a/b/file") << "x";
      fs::create_symlink(parent_, directory->path() + "/link");
      _exit(0);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
  }

  // A directory as one that a killed process has left.
  std::string Left(const std::string& name, const std::string& owner) const {
    const std::string path = parent_ + "/" + name;
    fs::create_directory(path);
    fs::permissions(path, fs::perms::owner_all);
    std::ofstream(path + "/temporary.lock") << owner;
    return path;
  }

  void CreateAnother() const { ASSERT_TRUE(TemporaryDirectory::CreateIn(parent_, "catchment").ok()); }

  const std::string parent_;
  const std::string owner_ = HostName() + " 1\n";
};

TEST_F(TemporaryDirectoryTest, GoesWithItsObjectAndIsPrivate) {
  std::string path;
  {
    const auto directory = TemporaryDirectory::CreateIn(parent_, "catchment");
    ASSERT_TRUE(directory.ok()) << directory.status();
    path = directory->path();
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
    std::ofstream(path + "/file") << "x";
  }
  EXPECT_FALSE(fs::exists(path));
  EXPECT_TRUE(fs::is_empty(parent_));
}

TEST_F(TemporaryDirectoryTest, ThoseOfKilledProcessesGoWithTheNextOne) {
  CreateAndDie();
  CreateAndDie();
  EXPECT_EQ(std::distance(fs::directory_iterator(parent_), fs::directory_iterator()), 1);
  CreateAnother();
  EXPECT_TRUE(fs::is_empty(parent_));
}

TEST_F(TemporaryDirectoryTest, ThoseInUseStay) {
  const auto directory = TemporaryDirectory::CreateIn(parent_, "catchment");
  ASSERT_TRUE(directory.ok());
  CreateAnother();
  EXPECT_TRUE(fs::exists(directory->path() + "/temporary.lock"));
  TemporaryDirectory moved = *TemporaryDirectory::CreateIn(parent_, "catchment");
  const TemporaryDirectory again = std::move(moved);
  CreateAnother();
  EXPECT_TRUE(fs::exists(again.path()));
}

TEST_F(TemporaryDirectoryTest, NothingElseIsDeleted) {
  Left("catchment-AAAAAA", owner_);
  CreateAnother();
  ASSERT_TRUE(fs::is_empty(parent_)) << "what the others lack";

  Left("mine-AAAAAA", owner_);
  Left("catchment-of-another-host", "x" + owner_);
  Left("catchment-without-owner", "");
  fs::permissions(Left("catchment-not-private", owner_), fs::perms::owner_all | fs::perms::group_read);
  fs::remove(Left("catchment-without-lock", owner_) + "/temporary.lock");
  const std::string linked = Left("catchment-linked-lock", owner_);
  fs::rename(linked + "/temporary.lock", parent_ + "/lock");
  fs::create_symlink(parent_ + "/lock", linked + "/temporary.lock");
  fs::create_symlink(Left("private", owner_), parent_ + "/catchment-link");
  const std::string pipe = Left("catchment-pipe", owner_) + "/temporary.lock";
  fs::remove(pipe);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  std::ofstream(parent_ + "/catchment-file") << owner_;
  // Only root may give files away, and in a container not to everyone.
  for (const char* given : {"", "/temporary.lock"}) {
    const std::string path =
        Left(absl::StrCat("catchment-of-another-user", *given == 0 ? "" : "-lock"), owner_);
    if (chown((path + given).c_str(), 1, -1) != 0) fs::remove_all(path);
  }
  const auto count = [this] {
    return std::distance(fs::recursive_directory_iterator(parent_), fs::recursive_directory_iterator());
  };
  const auto before = count();
  CreateAnother();
  EXPECT_EQ(count(), before);
}

}  // namespace
}  // namespace catchment
