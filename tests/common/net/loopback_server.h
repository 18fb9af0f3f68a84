// Serves one service over loopback, for tests of its clients.
#ifndef CATCHMENT_TESTS_COMMON_NET_LOOPBACK_SERVER_H_
#define CATCHMENT_TESTS_COMMON_NET_LOOPBACK_SERVER_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

namespace catchment {

// Threads: safe. `service` outlives the server.
class LoopbackServer {
 public:
  explicit LoopbackServer(grpc::Service* service) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(service);
    server_ = builder.BuildAndStart();
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  void Shutdown() { server_->Shutdown(); }

 private:
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_COMMON_NET_LOOPBACK_SERVER_H_
