#include "worker/attach/program_link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <string>

namespace catchment {
namespace {

using testing::HasSubstr;

// A program that fails sends the reason and closes its end, at any point of the exchange.
class ProgramLinkTest : public testing::Test {
 protected:
  ProgramLinkTest() {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    program_ = ends[1];
    link_.emplace(ends[0], [](bool) { return absl::OkStatus(); });
  }

  void FailAndClose() const {
    v1::FromProgram message;
    message.mutable_failed()->set_why("ValueError: w");
    const std::string bytes = message.SerializeAsString();
    EXPECT_EQ(send(program_, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
    close(program_);
  }
  static v1::ToProgram Begin() {
    v1::ToProgram message;
    message.mutable_begin()->set_step(1);
    return message;
  }

  int program_ = -1;
  std::optional<ProgramLink> link_;
};

TEST_F(ProgramLinkTest, ReasonArrivesAfterTheSocketIsClosed) {
  FailAndClose();
  EXPECT_THAT(std::string(link_->Receive().status().message()), HasSubstr("ValueError: w"));
}

// Linux then reports ECONNRESET before the messages in the queue.
TEST_F(ProgramLinkTest, ReasonArrivesIfTheProgramHasLeftMessagesUnread) {
  ASSERT_TRUE(link_->Send(Begin()).ok());
  FailAndClose();
  EXPECT_THAT(std::string(link_->Receive().status().message()), HasSubstr("ValueError: w"));
}

TEST_F(ProgramLinkTest, ReasonArrivesIfTheWorkerSends) {
  ASSERT_TRUE(link_->Send(Begin()).ok());
  FailAndClose();
  EXPECT_THAT(std::string(link_->Send(Begin()).message()), HasSubstr("ValueError: w"));
}

TEST_F(ProgramLinkTest, ClosedSocketWithoutReasonIsNamed) {
  close(program_);
  EXPECT_THAT(std::string(link_->Send(Begin()).message()), HasSubstr("has closed its socket"));
}

}  // namespace
}  // namespace catchment
