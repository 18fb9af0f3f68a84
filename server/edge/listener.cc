#include "server/edge/listener.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/rpc.h"

namespace catchment {
namespace {

// gRPC only says that it failed; the kernel says why.
std::string WhyNot(const std::string& host, const std::string& port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  const bool brackets = host.size() > 2 && host.front() == '[';  // an IPv6 address
  const std::string name = brackets ? host.substr(1, host.size() - 2) : host;
  if (const int error = getaddrinfo(name.c_str(), port.c_str(), &hints, &found); error != 0) {
    return gai_strerror(error);
  }
  const int fd = socket(found->ai_family, found->ai_socktype, 0);
  const bool bound = fd >= 0 && bind(fd, found->ai_addr, found->ai_addrlen) == 0;
  const std::string why =
      bound ? "it may be in use, or the certificate and key do not belong together" : std::strerror(errno);
  if (fd >= 0) close(fd);
  freeaddrinfo(found);
  return why;
}

}  // namespace

absl::StatusOr<Listener> Listen(const std::string& address,
                                const std::shared_ptr<grpc::ServerCredentials>& credentials,
                                const std::vector<grpc::Service*>& services, int max_message_bytes) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon + 1 == address.size()) {
    return absl::InvalidArgumentError(absl::StrCat("'", address, "' is not HOST:PORT"));
  }
  const std::string host = address.substr(0, colon);
  const std::string port = address.substr(colon + 1);
  grpc::ServerBuilder builder;
  SetTrainingOptions(&builder);
  builder.SetMaxReceiveMessageSize(max_message_bytes);
  int picked = 0;
  builder.AddListeningPort(address, credentials, &picked);
  for (grpc::Service* service : services) builder.RegisterService(service);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr || picked == 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", address, ": ", WhyNot(host, port),
                                               "; choose another port, or 0 for a free one"));
  }
  return Listener{std::move(server), absl::StrCat(host, ":", picked)};
}

}  // namespace catchment
