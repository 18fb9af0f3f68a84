// A peer that may violate every rule of the wire protocol: it sends arbitrary bytes over ShardService.Train.
#ifndef CATCHMENT_TESTS_SERVER_RAW_STREAM_H_
#define CATCHMENT_TESTS_SERVER_RAW_STREAM_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

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
    context_.TryCancel();
    if (!finished_) Finish();
    queue_.Shutdown();
    void* tag;
    bool ok;
    while (queue_.Next(&tag, &ok)) {
    }
  }

  // False when the server has ended the stream.
  bool Write(const std::string& bytes) {
    const grpc::Slice slice(bytes);
    call_->Write(grpc::ByteBuffer(&slice, 1), nullptr);
    return Wait();
  }
  bool Write(const v1::Block& block) { return Write(block.SerializeAsString()); }
  // False when the stream has ended.
  bool Read(v1::Block* block) {
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
    return queue_.Next(&tag, &ok) && ok;
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> call_;
  bool finished_ = false;
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_SERVER_RAW_STREAM_H_
