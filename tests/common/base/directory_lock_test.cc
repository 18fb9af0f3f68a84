#include "common/base/directory_lock.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using testing::HasSubstr;

std::string FreshDirectory() {
  const std::string path = absl::StrCat(std::getenv("TEST_TMPDIR"), "/",
                                        testing::UnitTest::GetInstance()->current_test_info()->name());
  std::filesystem::create_directories(path);
  return path;
}

std::string Content(const std::string& directory) {
  std::ifstream file(directory + "/master.lock");
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

std::string ThisHost() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

TEST(DirectoryLock, SecondOwnerIsRefusedByNameUntilTheFirstHasEnded) {
  const std::string directory = FreshDirectory();
  // Longer than what this process writes.
  std::ofstream(directory + "/master.lock") << std::string(300, 'x') << " 1234567\n";
  {
    const auto lock = DirectoryLock::Take(directory);
    ASSERT_TRUE(lock.ok()) << lock.status();
    EXPECT_EQ(Content(directory), absl::StrCat(ThisHost(), " ", getpid(), "\n"));
    const absl::Status second = DirectoryLock::Take(directory).status();
    EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(second.message()),
                HasSubstr(absl::StrCat(directory, " is in use by another master on host ", ThisHost(),
                                       " with pid ", getpid(), ": wait until it has ended")));
  }
  EXPECT_TRUE(DirectoryLock::Take(directory).ok());
}

TEST(DirectoryLock, EndsWithItsProcessHoweverThatEnds) {
  const std::string directory = FreshDirectory();
  int ready[2];
  ASSERT_EQ(pipe(ready), 0);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto lock = DirectoryLock::Take(directory);
    const char byte = lock.ok() ? 'y' : 'n';
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    while (true) pause();
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  ASSERT_EQ(byte, 'y');
  EXPECT_THAT(std::string(DirectoryLock::Take(directory).status().message()),
              HasSubstr(absl::StrCat("with pid ", child)));
  kill(child, SIGKILL);
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(DirectoryLock::Take(directory).ok());
}

TEST(DirectoryLock, LastsForACallerAsLongAsItsFileIsOpen) {
  const std::string directory = FreshDirectory();
  const int file = open((directory + "/command.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_GE(file, 0);
  const LockUser user = {"command.lock", "another run"};
  EXPECT_EQ(DirectoryLock::TakeForCaller(directory, file, user), absl::OkStatus());
  const absl::Status second = DirectoryLock::Take(directory, user).status();
  EXPECT_THAT(std::string(second.message()),
              HasSubstr(absl::StrCat("in use by another run on host ", ThisHost(), " with pid ", getppid())));
  // The descriptor is another file's.
  const int other = open((directory + "/command.lock").c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_EQ(DirectoryLock::TakeForCaller(directory, other, user), second);
  close(other);
  EXPECT_FALSE(DirectoryLock::Take(directory, user).ok()) << "a file that was refused has ended the lock";
  close(file);
  EXPECT_TRUE(DirectoryLock::Take(directory, user).ok());
  EXPECT_EQ(DirectoryLock::TakeForCaller(directory, file, user).code(), absl::StatusCode::kInvalidArgument);
}

mode_t ModeOf(const std::string& path) {
  struct stat about = {};
  EXPECT_EQ(stat(path.c_str(), &about), 0) << path;
  return about.st_mode & ALLPERMS;
}

// A lock for reading needs no more than a file that can be read, and keeps others from writing.
TEST(DirectoryLock, OnlyWritersOfTheDirectoryCanOpenTheFile) {
  const std::string directory = FreshDirectory(), file = directory + "/master.lock";
  for (const auto& [of_directory, of_file] :
       {std::pair<mode_t, mode_t>{0755, 0600}, {0750, 0600}, {02775, 0660}, {0777, 0666}, {01777, 0660}}) {
    ASSERT_EQ(chmod(directory.c_str(), of_directory), 0);
    const auto lock = DirectoryLock::Take(directory);
    ASSERT_TRUE(lock.ok()) << lock.status();
    EXPECT_EQ(ModeOf(file), of_file) << std::oct << of_directory;
    ASSERT_EQ(chmod(file.c_str(), 0644), 0) << "as an earlier version made it";
  }
}

TEST(DirectoryLock, LocksOfReadersAreNotInItsWay) {
  const std::string directory = FreshDirectory();
  ASSERT_TRUE(DirectoryLock::Take(directory).ok());
  std::vector<int> readers;
  for (const std::string& path : {directory, directory + "/master.lock"}) {
    readers.push_back(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    ASSERT_GE(readers.back(), 0);
    ASSERT_EQ(flock(readers.back(), LOCK_EX | LOCK_NB), 0);
  }
  EXPECT_TRUE(DirectoryLock::Take(directory).ok());
  for (int reader : readers) close(reader);
}

TEST(DirectoryLock, ALinkToAnotherFileIsRefusedAndTheFileIsLeftAlone) {
  const std::string directory = FreshDirectory(), other = directory + "-other";
  std::ofstream(other) << "mine";
  ASSERT_EQ(chmod(other.c_str(), 0644), 0);
  std::filesystem::create_symlink(other, directory + "/master.lock");
  EXPECT_EQ(DirectoryLock::Take(directory).status().message(),
            directory + "/master.lock: is not a regular file");
  EXPECT_EQ(Content(directory), "mine");
  EXPECT_EQ(ModeOf(other), 0644u);
}

TEST(DirectoryLock, AChildProcessDoesNotKeepIt) {
  const std::string directory = FreshDirectory();
  pid_t child = 0;
  {
    const auto lock = DirectoryLock::Take(directory);
    ASSERT_TRUE(lock.ok()) << lock.status();
    const char* const argv[] = {"sleep", "1000", nullptr};
    ASSERT_EQ(posix_spawn(&child, "/bin/sleep", nullptr, nullptr, const_cast<char**>(argv), environ), 0);
  }
  EXPECT_TRUE(DirectoryLock::Take(directory).ok());
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
}

TEST(DirectoryLock, FileSystemWithoutLocksIsOnlyWarnedOf) {
  const auto without = [](int) {
    errno = ENOLCK;
    return -1;
  };
  EXPECT_TRUE(DirectoryLock::Take(FreshDirectory(), {}, without).ok());
}

TEST(DirectoryLock, OtherErrorsNameTheFile) {
  const auto broken = [](int) {
    errno = EIO;
    return -1;
  };
  const std::string directory = FreshDirectory();
  EXPECT_THAT(std::string(DirectoryLock::Take(directory, {}, broken).status().message()),
              HasSubstr("cannot lock " + directory + "/master.lock"));
  EXPECT_THAT(std::string(DirectoryLock::Take("/nowhere").status().message()),
              HasSubstr("cannot open /nowhere/master.lock"));
}

}  // namespace
}  // namespace catchment
