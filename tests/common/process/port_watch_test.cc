#include "common/port_watch.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/open_files.h"

namespace catchment {
namespace {

using testing::HasSubstr;

// A gRPC server without services.
class Port {
 public:
  Port() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    queue_ = builder.AddCompletionQueue();
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
    thread_ = std::thread([this] {
      void* tag;
      for (bool ok; queue_->Next(&tag, &ok);) continue;
    });
  }
  ~Port() { Close(); }
  void Close() {
    if (server_ == nullptr) return;
    server_->Shutdown();
    queue_->Shutdown();
    thread_.join();
    server_.reset();
  }
  const std::string& address() const { return address_; }

 private:
  std::unique_ptr<grpc::ServerCompletionQueue> queue_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::thread thread_;
};

constexpr PortWatch::Options kQuick = {.check_seconds = 0.1, .connect_seconds = 0.5};

class PortWatchTest : public testing::Test {
 protected:
  std::unique_ptr<PortWatch> Watch(const std::string& address) {
    return std::make_unique<PortWatch>(address, grpc::InsecureChannelCredentials(), kQuick,
                                       [this](const absl::Status& status) {
                                         MutexLock lock(&mu_);
                                         lost_.push_back(status);
                                         changed_.Notify();
                                       });
  }

  Mutex mu_;
  CondVar changed_;
  std::vector<absl::Status> lost_ ABSL_GUARDED_BY(mu_);
};

TEST_F(PortWatchTest, SaysOnceThatThePortIsLostAndHowToAvoidIt) {
  Port port;
  const auto watch = Watch(port.address());
  while (!watch->reached()) std::this_thread::yield();
  port.Close();
  {
    MutexLock lock(&mu_);
    changed_.Wait(&mu_, [this] { return !lost_.empty(); });
  }
  const absl::Status status = watch->End();
  MutexLock lock(&mu_);
  ASSERT_EQ(lost_.size(), 1u);
  EXPECT_EQ(lost_[0], status);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr(port.address()));
  EXPECT_THAT(std::string(status.message()), HasSubstr(kOpenFilesRemedy));
}

TEST_F(PortWatchTest, EndsWhileThePortTakesConnections) {
  Port port;
  EXPECT_TRUE(Watch(port.address())->End().ok());
}

}  // namespace
}  // namespace catchment
