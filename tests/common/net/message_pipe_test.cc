// Both ends of a pair of pipes, each on a thread of its own.
#include "common/net/message_pipe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "tests/common/net/awaited_completion.h"

namespace catchment {
namespace {

using testing::HasSubstr;

constexpr uint32_t kMostBytes = 1 << 20;

// In pieces, as headers and payloads are.
grpc::ByteBuffer BufferOf(const std::string& bytes) {
  const size_t first = bytes.size() / 3;
  const grpc::Slice slices[] = {grpc::Slice(bytes.substr(0, first)), grpc::Slice(bytes.substr(first))};
  return grpc::ByteBuffer(slices, 2);
}

std::string BytesOf(const grpc::ByteBuffer& buffer) {
  std::vector<grpc::Slice> slices;
  EXPECT_TRUE(buffer.Dump(&slices).ok());
  std::string bytes;
  for (const grpc::Slice& slice : slices)
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  return bytes;
}

std::string Pattern(size_t size) {
  std::string bytes(size, 0);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31 + size);
  return bytes;
}

int OpenFiles() {
  return static_cast<int>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

class MessagePipeTest : public testing::Test {
 protected:
  struct End {
    ~End() {
      if (pipe != nullptr) pipe->Leave();
    }
    // Sends a message; returns false if it is not in the pipe yet.
    bool Send(const std::string& bytes) { return pipe->Write(BufferOf(bytes), &written); }
    void Read() { pipe->Read(&message, &read); }
    std::string Receive() {
      Read();
      return read.Await() ? BytesOf(message) : "failed";
    }

    std::shared_ptr<MessagePipe> pipe;
    grpc::ByteBuffer message;
    AwaitedCompletion read, written;
  };

  void SetUp() override {
    absl::StatusOr<std::shared_ptr<MessagePipe>> server =
        MessagePipe::Make(&threads_[0], kMostBytes, &offer_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_.pipe = *server;
    absl::StatusOr<std::shared_ptr<MessagePipe>> client = MessagePipe::Open(&threads_[1], kMostBytes, offer_);
    ASSERT_TRUE(client.ok()) << client.status();
    client_.pipe = *client;
  }
  // Writes what no MessagePipe writes.
  void WriteRaw(const std::string& bytes) {
    ASSERT_EQ(write(static_cast<int>(offer_.to_server()), bytes.data(), bytes.size()),
              static_cast<ssize_t>(bytes.size()));
  }
  static std::string SizeOf(uint32_t size) {
    return std::string(reinterpret_cast<const char*>(&size), sizeof(size));
  }

  PipeThread threads_[2] = {PipeThread("server"), PipeThread("client")};
  v1::Pipes offer_;
  End server_, client_;
};

TEST_F(MessagePipeTest, MessagesOfAllSizesArriveInOrder) {
  // Around the sizes of a read and of a pipe.
  for (const size_t size : {0, 1, 23, 24, 64, 4091, 4092, 4093, 4096, 8192, 65531, 65532, 65536, 300'000}) {
    for (End* const from : {&client_, &server_}) {
      End* const to = from == &client_ ? &server_ : &client_;
      to->Read();
      const bool sent = from->Send(Pattern(size)) || from->written.Await();
      EXPECT_TRUE(sent);
      ASSERT_TRUE(to->read.Await()) << size;
      EXPECT_EQ(BytesOf(to->message), Pattern(size));
    }
  }
}

TEST_F(MessagePipeTest, MessagesWaitForAReader) {
  int sent = 0;
  while (client_.Send(Pattern(sent))) ++sent;
  EXPECT_GT(sent, 100);
  EXPECT_FALSE(client_.written.IsDone());
  for (int i = 0; i <= sent; ++i) ASSERT_EQ(server_.Receive(), Pattern(i));
  EXPECT_TRUE(client_.written.Await());
  EXPECT_TRUE(client_.Send("next"));
  EXPECT_EQ(server_.Receive(), "next");
}

TEST_F(MessagePipeTest, CloseFailsTheOperationsInProgress) {
  server_.Read();
  server_.pipe->Close();
  EXPECT_FALSE(server_.read.Await());
  EXPECT_EQ(server_.Receive(), "failed");
  while (client_.Send(Pattern(1000))) continue;
  client_.pipe->Close();
  EXPECT_FALSE(client_.written.Await());
}

TEST_F(MessagePipeTest, MessagesThatArrivedBeforeCloseAreReceived) {
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(client_.Send(Pattern(i)));
  server_.pipe->Close();
  for (int i = 0; i < 3; ++i) EXPECT_EQ(server_.Receive(), Pattern(i));
  EXPECT_EQ(server_.Receive(), "failed");
}

TEST_F(MessagePipeTest, PeerThatGoesOnSendingDoesNotKeepAClosedEnd) {
  server_.pipe->Close();
  int received = 0;
  while (true) {
    const bool sent = client_.Send(Pattern(1000)) || client_.written.Await();
    EXPECT_TRUE(sent);
    if (server_.Receive() == "failed") break;
    ASSERT_LT(++received, 100);
  }
}

TEST_F(MessagePipeTest, MessageThatIsTooLongFails) {
  WriteRaw(SizeOf(kMostBytes + 1));
  EXPECT_EQ(server_.Receive(), "failed");
}

TEST_F(MessagePipeTest, MessageArrivesByteByByte) {
  const std::string bytes = Pattern(5000);
  server_.Read();
  for (const char byte : SizeOf(bytes.size()) + bytes) {
    EXPECT_FALSE(server_.read.IsDone());
    WriteRaw(std::string(1, byte));
  }
  EXPECT_TRUE(server_.read.Await());
  EXPECT_EQ(BytesOf(server_.message), bytes);
}

TEST_F(MessagePipeTest, UnfinishedMessageFailsAtClose) {
  WriteRaw(SizeOf(10) + "12345");
  server_.Read();
  server_.pipe->Close();
  EXPECT_FALSE(server_.read.Await());
}

// A busy pipe does not keep the others of its thread waiting.
TEST_F(MessagePipeTest, PipesOfAThreadTakeTurns) {
  v1::Pipes offer;
  End other;
  other.pipe = *MessagePipe::Make(&threads_[0], kMostBytes, &offer);
  End of_other;
  of_other.pipe = *MessagePipe::Open(&threads_[1], kMostBytes, offer);

  // Reads again for as long as there are messages; the other pipe's message arrives during the first.
  class Busy final : public Completion {
   public:
    Busy(MessagePipe* pipe, End* of_other, int left) : pipe_(*pipe), of_other_(*of_other), left_(left) {}
    void Done(bool ok) override {
      EXPECT_TRUE(ok);
      if (received_++ == 0) {
        EXPECT_TRUE(of_other_.Send("other"));
      }
      if (received_ < left_) return pipe_.Read(&message_, this);
      done.Done(true);
    }
    int received() const { return received_; }
    grpc::ByteBuffer message_;
    AwaitedCompletion done;

   private:
    MessagePipe& pipe_;
    End& of_other_;
    const int left_;
    std::atomic<int> received_ = 0;
  };
  constexpr int kMessages = 20;
  for (int i = 0; i < kMessages; ++i) ASSERT_TRUE(client_.Send("busy"));
  Busy busy(server_.pipe.get(), &of_other, kMessages);
  // Records how far the busy pipe was when the other one's message arrived.
  class Note final : public Completion {
   public:
    explicit Note(const Busy* busy) : busy_(*busy) {}
    void Done(bool) override {
      at = busy_.received();
      done.Done(true);
    }
    int at = 0;
    AwaitedCompletion done;

   private:
    const Busy& busy_;
  } note(&busy);
  other.pipe->Read(&other.message, &note);
  server_.pipe->Read(&busy.message_, &busy);
  EXPECT_TRUE(busy.done.Await());
  EXPECT_TRUE(note.done.Await());
  EXPECT_LE(note.at, 2);
}

TEST_F(MessagePipeTest, OffersOfOtherFilesAreRefused) {
  const auto refusal = [this](const v1::Pipes& offer) {
    return std::string(MessagePipe::Open(&threads_[1], kMostBytes, offer).status().message());
  };
  v1::Pipes wrong = offer_;
  wrong.set_to_client_inode(offer_.to_server_inode());
  EXPECT_THAT(refusal(wrong), HasSubstr("is not the peer's pipe; the peer may be in another container"));
  wrong = offer_;
  wrong.set_to_server(static_cast<uint32_t>(STDIN_FILENO));
  EXPECT_THAT(refusal(wrong), HasSubstr("is not the peer's pipe"));
  wrong.set_to_server(100'000);
  EXPECT_THAT(refusal(wrong), HasSubstr("No such file"));
  wrong = offer_;
  wrong.set_process(0);
  EXPECT_THAT(refusal(wrong), HasSubstr("/proc/0/fd/"));
}

TEST_F(MessagePipeTest, NoneIsMadeWithHalfOfTheFilesInUse) {
  rlimit usual;
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &usual), 0);
  rlimit low = usual;
  low.rlim_cur = OpenFiles() + 8;
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &low), 0);
  v1::Pipes offer;
  EXPECT_TRUE(absl::IsResourceExhausted(MessagePipe::Make(&threads_[0], kMostBytes, &offer).status()));
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &usual), 0);
}

TEST_F(MessagePipeTest, FilesAreClosedWithTheLastEnd) {
  const int before = OpenFiles();
  for (int i = 0; i < 20; ++i) {
    v1::Pipes offer;
    End server, client;
    server.pipe = *MessagePipe::Make(&threads_[0], kMostBytes, &offer);
    client.pipe = *MessagePipe::Open(&threads_[1], kMostBytes, offer);
    ASSERT_TRUE(client.Send("message"));
    EXPECT_EQ(server.Receive(), "message");
  }
  // The threads may still hold the last ones.
  while (OpenFiles() > before + 4) continue;
}

}  // namespace
}  // namespace catchment
