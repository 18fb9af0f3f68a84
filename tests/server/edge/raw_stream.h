// A peer that may violate every rule of the wire protocol: it sends arbitrary bytes over ShardService.Train,
// or over the stream's pipes.
#ifndef CATCHMENT_TESTS_SERVER_EDGE_RAW_STREAM_H_
#define CATCHMENT_TESTS_SERVER_EDGE_RAW_STREAM_H_

#include <fcntl.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <unistd.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "proto/wire.pb.h"

namespace catchment {

class RawStream {
 public:
  // `hello`: the metadata's bytes; null: none. The stream has a separate connection.
  RawStream(const std::string& address, const std::string* hello)
      : stub_(grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), Arguments())) {
    if (hello != nullptr) context_.AddMetadata("catchment-hello-bin", *hello);
    call_ = stub_.PrepareCall(&context_, "/catchment.v1.ShardService/Train", &queue_);
    call_->StartCall(nullptr);
    Wait();
  }
  ~RawStream() {
    for (const int pipe : {to_server_, to_client_}) {
      if (pipe >= 0) close(pipe);
    }
    context_.TryCancel();
    if (!finished_) Finish();
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  // Moves to the pipes that the server has offered with its first message, which has been read.
  void MoveToPipes() {
    const auto found = context_.GetServerInitialMetadata().find("catchment-pipes-bin");
    v1::Pipes pipes;
    ASSERT_TRUE(found != context_.GetServerInitialMetadata().end() &&
                pipes.ParseFromArray(found->second.data(), static_cast<int>(found->second.size())));
    ASSERT_TRUE(Write(std::string()));
    const auto open_end = [&](uint32_t descriptor) {
      return open(absl::StrCat("/proc/", pipes.process(), "/fd/", descriptor).c_str(), O_RDWR | O_CLOEXEC);
    };
    to_server_ = open_end(pipes.to_server());
    to_client_ = open_end(pipes.to_client());
    ASSERT_TRUE(to_server_ >= 0 && to_client_ >= 0);
    call_->Read(&unexpected_, &ended_);
  }
  // Writes bytes to the pipe, as they are.
  void WriteToPipe(const std::string& bytes) {
    EXPECT_EQ(write(to_server_, bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  }
  bool WriteToStream(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    call_->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    return Wait();
  }

  // False when the server has ended the stream.
  bool Write(const std::string& bytes) {
    if (to_server_ < 0) return WriteToStream(bytes);
    const auto size = static_cast<uint32_t>(bytes.size());
    WriteToPipe(std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + bytes);
    return true;
  }
  bool Write(const v1::Block& block) { return Write(block.SerializeAsString()); }
  // False when the stream has ended.
  bool Read(v1::Block* block) {
    if (to_client_ >= 0) return ReadFromPipe(block);
    grpc::ByteBuffer bytes;
    call_->Read(&bytes, nullptr);
    if (!Wait()) return false;
    std::vector<grpc::Slice> slices;
    std::string joined;
    if (!bytes.Dump(&slices).ok()) return false;
    for (const grpc::Slice& slice : slices)
      joined.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
    return block->ParseFromString(joined);
  }
  // Waits for the server's last word.
  grpc::Status Finish() {
    grpc::Status status;
    call_->Finish(&status, nullptr);
    Wait();
    finished_ = true;
    return status;
  }
  void Cancel() { context_.TryCancel(); }

 private:
  static grpc::ChannelArguments Arguments() {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    arguments.SetMaxReceiveMessageSize(-1);
    return arguments;
  }
  bool Wait() {
    void* tag;
    bool ok = false;
    while (queue_.Next(&tag, &ok) && tag != nullptr) has_ended_ = true;
    return ok;
  }
  bool ReadFromPipe(v1::Block* block) {
    uint32_t size;
    if (!ReadFromPipe(&size, sizeof(size))) return false;
    std::string bytes(size, 0);
    return ReadFromPipe(bytes.data(), size) && block->ParseFromString(bytes);
  }
  // Reads all of `size` bytes; false when the stream has ended.
  bool ReadFromPipe(void* to, size_t size) {
    for (size_t done = 0; done < size;) {
      pollfd arrived = {to_client_, POLLIN, 0};
      if (poll(&arrived, 1, /*milliseconds=*/5) == 1) {
        done += read(to_client_, static_cast<char*>(to) + done, size - done);
        continue;
      }
      void* tag;
      bool ok;
      if (queue_.AsyncNext(&tag, &ok, gpr_time_0(GPR_CLOCK_MONOTONIC)) == grpc::CompletionQueue::GOT_EVENT)
        has_ended_ = true;
      if (has_ended_) return false;
    }
    return true;
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  bool finished_ = false;
  int to_server_ = -1, to_client_ = -1;  // pipes
  grpc::ByteBuffer unexpected_;
  char ended_ = 0;          // its address is the tag of the read of MoveToPipes
  bool has_ended_ = false;  // this read has completed
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_SERVER_EDGE_RAW_STREAM_H_
