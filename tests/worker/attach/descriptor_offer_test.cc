#include "worker/attach/descriptor_offer.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

// Connects to an abstract address; -1: refused.
int Connect(const std::string& name) {
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const socklen_t size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address), size) == 0) return fd;
  close(fd);
  return -1;
}

// Returns the descriptors of the next message.
std::vector<int> ReceiveDescriptors(int connection) {
  char byte = 0;
  iovec data = {&byte, 1};
  char control[256];
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  EXPECT_EQ(recvmsg(connection, &message, 0), 1);
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header == nullptr) return {};
  std::vector<int> fds((header->cmsg_len - CMSG_LEN(0)) / sizeof(int));
  std::memcpy(fds.data(), CMSG_DATA(header), fds.size() * sizeof(int));
  return fds;
}

class DescriptorOfferTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(pipe(first_), 0);
    ASSERT_EQ(pipe(second_), 0);
    auto offer = DescriptorOffer::Create({first_[1], second_[1]});
    ASSERT_TRUE(offer.ok()) << offer.status();
    offer_ = *std::move(offer);
  }
  void TearDown() override {
    for (const int fd : {first_[0], second_[0], second_[1]}) close(fd);
  }

  int first_[2], second_[2];  // pipes, whose ends to write to are offered
  std::unique_ptr<DescriptorOffer> offer_;
};

TEST_F(DescriptorOfferTest, GivesTheDescriptorsToOneProcess) {
  offer_->Serve();  // does not wait
  const int connection = Connect(offer_->address());
  ASSERT_GE(connection, 0);
  offer_->Serve();
  const std::vector<int> fds = ReceiveDescriptors(connection);
  ASSERT_EQ(fds.size(), 2u);
  close(connection);
  const int pipes[] = {first_[0], second_[0]};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(write(fds[i], "xy", i + 1), i + 1);
    char bytes[3];
    EXPECT_EQ(read(pipes[i], bytes, sizeof(bytes)), i + 1);
    close(fds[i]);
  }
  EXPECT_EQ(Connect(offer_->address()), -1);
  offer_->Serve();
}

TEST_F(DescriptorOfferTest, GivesNothingToAnotherUser) {
  constexpr uid_t kOtherUser = 65534;
  int told[2];  // by the child, that it has connected
  ASSERT_EQ(pipe(told), 0);
  const std::string address = offer_->address();
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    if (setgid(kOtherUser) != 0 || setuid(kOtherUser) != 0) _exit(2);
    const int connection = Connect(address);
    char byte = 0;
    if (write(told[1], &byte, 1) != 1) _exit(1);
    // 0: the end of the connection.
    _exit(connection >= 0 && read(connection, &byte, 1) == 0 ? 0 : 1);
  }
  close(told[1]);
  char byte;
  if (read(told[0], &byte, 1) == 1) offer_->Serve();
  close(told[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 2) GTEST_SKIP() << "becoming another user needs root";
  EXPECT_EQ(status, 0);
  const int connection = Connect(address);
  ASSERT_GE(connection, 0) << "its own program is still awaited";
  close(connection);
}

// Otherwise the daemon would not notice that the program has closed its socket.
TEST_F(DescriptorOfferTest, ClosesTheFirstDescriptorAtTheEnd) {
  const std::string address = offer_->address();
  offer_.reset();
  char byte;
  EXPECT_EQ(read(first_[0], &byte, 1), 0);
  EXPECT_EQ(write(second_[1], "x", 1), 1);
  EXPECT_EQ(Connect(address), -1);
}

TEST_F(DescriptorOfferTest, SurvivesAProcessThatIsGone) {
  close(Connect(offer_->address()));
  offer_->Serve();
}

}  // namespace
}  // namespace catchment
