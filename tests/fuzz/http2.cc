// Frames of HTTP/2 over a connection to a live master, in any order and with any content. It goes on to
// answer others.
//
// Input: frames of type, flags, stream and content; the type and the stream are mostly those that HTTP/2 has.
// A frame may be cut off.
#include <glog/logging.h>
#include <poll.h>
#include <sys/socket.h>

#include <memory>
#include <string>

#include "common/net/rpc.h"
#include "proto/health.grpc.pb.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/job_server.h"
#include "tests/server/edge/http2_peer.h"

namespace catchment {
namespace {

constexpr const char* kMethods[] = {
    "/catchment.v1.ShardService/Train",     "/catchment.v1.ShardService/Snapshot",
    "/catchment.v1.MasterService/Register", "/catchment.v1.MasterService/GetStatus",
    "/grpc.health.v1.Health/Check",         "/no.such/Method"};
constexpr int kTypes = 10, kStreams = 8;
constexpr int kPatienceMs = 10;

class Connection {
 public:
  Connection()
      : server_(/*kind=*/1, "127.0.0.1:0"),
        health_(grpc::health::v1::Health::NewStub(
            Connect(server_.address(), grpc::InsecureChannelCredentials()))) {}

  void Test(FuzzInput in) {
    Http2Peer peer(server_.address());
    std::string bytes;
    while (!in.empty()) bytes += FrameOf(&in);
    peer.Flood([&] { return bytes; }, bytes.size());
    peer.ReadFor(kPatienceMs);
    grpc::health::v1::HealthCheckResponse response;
    const grpc::Status status = health_->Check(DeadlineContext(60).get(), {}, &response);
    CHECK(status.ok()) << status.error_message();
  }

 private:
  static std::string FrameOf(FuzzInput* in) {
    const uint8_t choice = in->Byte();
    const auto type = static_cast<Http2>(choice < 200 ? choice % kTypes : choice);
    const uint8_t flags = in->Byte();
    const uint8_t number = in->Byte();
    const uint32_t stream = number < 250 ? number % kStreams : static_cast<uint32_t>(in->Number(4));
    std::string content(in->Text());
    if (type == Http2::kHeaders && choice % 3 != 0)
      content = CallHeaders(kMethods[number % std::size(kMethods)], choice % 2 == 0) + content;
    std::string frame = Http2Frame(type, flags, stream, content);
    if (choice == 255) frame.resize(in->Byte() % frame.size());
    return frame;
  }

  JobServer server_;
  const std::unique_ptr<grpc::health::v1::Health::Stub> health_;
};

}  // namespace
}  // namespace catchment

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static auto* const connection = new catchment::Connection;
  connection->Test(catchment::FuzzInput(data, size));
  return 0;
}
