// A gRPC server on an address, with an error that says why where there is none.
#ifndef CATCHMENT_SERVER_EDGE_LISTENER_H_
#define CATCHMENT_SERVER_EDGE_LISTENER_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace catchment {

struct Listener {
  std::unique_ptr<grpc::Server> server;
  std::string address;  // HOST:PORT, with the port that was picked where PORT was 0
};

// Messages of more than max_message_bytes are refused. The services outlive the server.
absl::StatusOr<Listener> Listen(const std::string& address,
                                const std::shared_ptr<grpc::ServerCredentials>& credentials,
                                const std::vector<grpc::Service*>& services, int max_message_bytes);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_LISTENER_H_
