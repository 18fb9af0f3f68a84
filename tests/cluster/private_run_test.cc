// Other users of a machine cannot affect a run of `catchment train`.
#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "cli/live/job_control.h"
#include "cli/local/local_cluster.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

constexpr uid_t kOtherUser = 65534;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Returns true if a child process can become user `uid`. In a container root may lack the right.
bool CanBecome(uid_t uid) {
  const pid_t child = fork();
  if (child == 0) _exit(setgid(uid) == 0 && setuid(uid) == 0 ? 0 : 1);
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Connects to a Unix socket as user `uid`, in a child process. Returns 0 or the errno.
int ConnectAs(uid_t uid, const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return ENAMETOOLONG;
  std::memcpy(address.sun_path, path.data(), path.size());
  const pid_t child = fork();
  if (child == 0) {
    // Other threads of the parent may hold locks: system calls only.
    if (uid != getuid() && (setgid(uid) != 0 || setuid(uid) != 0)) _exit(255);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    _exit(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 ? 0 : errno);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WEXITSTATUS(status);
}

class PrivateRunTest : public testing::Test {
 protected:
  // Starts a run, and waits until it trains.
  void SetUp() override {
    const std::string job = TestDirectory() + "/job.textproto";
    std::ofstream(job) << SmallJob("downpour", "epochs: 1000000");
    absl::StatusOr<Process> train = Process::Start({"train",
                                                    {Runfile("cli/catchment"), "train", job, "--out=" + out_,
                                                     "--servers=2", "--workers=1", "--overwrite"},
                                                    TestDirectory() + "/train.log"});
    ASSERT_TRUE(train.ok()) << train.status();
    train_.emplace(*std::move(train));
    ASSERT_TRUE(Await([&] {
      address_ = ListeningAddress(ReadAll(out_ + "/logs/server-0.log"), 0);
      return !address_.empty() || train_->Poll().has_value();
    }));
    ASSERT_THAT(address_, testing::StartsWith("unix:/")) << train_->Output();
    ASSERT_TRUE(Await([&] {
      const absl::StatusOr<v1::JobStatus> status = JobControl::Create(address_, TlsFiles())->GetStatus();
      return status.ok() && status->samples() > 0;
    }));
  }

  void StopRun() {
    train_->Signal(SIGTERM);
    const std::optional<ProcessEnd> end = train_->WaitFor(kPatience);
    ASSERT_TRUE(end.has_value() && end->exit_code == 128 + SIGTERM) << train_->Output();
  }

  const std::string out_ = TestDirectory() + "/out";
  std::optional<Process> train_;
  std::string address_;
};

TEST_F(PrivateRunTest, AnotherUserCanNeitherReadItsStatusNorStopIt) {
  if (getuid() == kOtherUser || !CanBecome(kOtherUser)) GTEST_SKIP() << "becoming another user needs root";
  const std::string master = address_.substr(std::strlen("unix:"));
  const std::filesystem::path directory = std::filesystem::path(master).parent_path();
  for (const auto& socket : std::filesystem::directory_iterator(directory)) {
    if (!socket.is_socket()) continue;
    EXPECT_EQ(ConnectAs(getuid(), socket.path()), 0) << socket.path();
    EXPECT_EQ(ConnectAs(kOtherUser, socket.path()), EACCES) << socket.path();
  }
  struct stat found = {};
  ASSERT_EQ(stat(directory.c_str(), &found), 0);
  EXPECT_EQ(found.st_mode & 0777, 0700u);
  StopRun();
  EXPECT_FALSE(std::filesystem::exists(directory)) << "the sockets are left";
}

TEST_F(PrivateRunTest, ItsFilesAreClosedToOthers) {
  StopRun();
  int files = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(out_)) {
    struct stat found = {};
    ASSERT_EQ(stat(file.path().c_str(), &found), 0) << file.path();
    EXPECT_EQ(found.st_mode & 0027, 0u) << file.path();
    ++files;
  }
  EXPECT_GT(files, 5);
}

}  // namespace
}  // namespace catchment
