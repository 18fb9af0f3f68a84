#include "server/edge/listener.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/rpc.h"

namespace catchment {
namespace {

// The largest number of streams in one connection. A worker has one stream to a server.
constexpr int kMostStreams = 100;
// The interval of keepalive pings, which detect a peer whose machine has failed.
constexpr int kKeepaliveMs = 30'000;
// The time in which a new connection must begin TLS and HTTP/2; a silent one is closed.
constexpr int kHandshakeMs = 20'000;

void LimitConnections(grpc::ServerBuilder* builder) {
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostStreams);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  // Compressed messages are refused: they would be unpacked before their size is checked.
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder->SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
}

// Returns the reason of a failure, which gRPC does not report, from the operating system.
std::string ExplainListenFailure(const std::string& host, const std::string& port) {
  if (host == "unix") return "is its directory there and writable, and does its path have at most 107 bytes?";
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
  const std::string why = bound ? "it may be in use" : std::strerror(errno);
  if (fd >= 0) close(fd);
  freeaddrinfo(found);
  return why;
}

}  // namespace

absl::StatusOr<Listener> Listener::Open(const std::string& address,
                                        const std::shared_ptr<grpc::ServerCredentials>& credentials,
                                        const std::vector<CallService*>& services, const Options& options) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon + 1 == address.size()) {
    return absl::InvalidArgumentError(absl::StrCat("'", address, "' is not HOST:PORT"));
  }
  const std::string host = address.substr(0, colon);
  const std::string port = address.substr(colon + 1);
  grpc::ServerBuilder builder;
  SetTrainingOptions(&builder);
  LimitConnections(&builder);
  builder.SetMaxReceiveMessageSize(options.max_message_bytes);
  if (options.memory_quota_bytes > 0) {
    builder.SetResourceQuota(grpc::ResourceQuota("server").Resize(options.memory_quota_bytes));
  }
  int picked = 0;
  builder.AddListeningPort(address, credentials, &picked);
  Listener listener;
  builder.RegisterService(listener.health_->grpc_service());
  for (CallService* service : services) builder.RegisterService(service->grpc_service());
  std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues;
  for (int i = 0; i < options.threads; ++i) queues.push_back(builder.AddCompletionQueue());
  listener.server_ = builder.BuildAndStart();
  if (listener.server_ == nullptr || picked == 0) {
    for (const auto& queue : queues) queue->Shutdown();
    return absl::UnavailableError(absl::StrCat("cannot listen on ", address, ": ",
                                               ExplainListenFailure(host, port),
                                               "; choose another port, or 0 for a free one"));
  }
  listener.address_ = host == "unix" ? address : absl::StrCat(host, ":", picked);
  listener.Serve(services, std::move(queues));
  return listener;
}

void Listener::Serve(const std::vector<CallService*>& services,
                     std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues) {
  for (std::unique_ptr<grpc::ServerCompletionQueue>& queue : queues) {
    queues_.push_back(std::make_unique<CallQueue>(queue.get(), nullptr));
    health_->Accept(queues_.back().get());
    queues_.push_back(std::make_unique<CallQueue>(queue.get(), runs_.get()));
    for (CallService* service : services) service->Accept(queues_.back().get());
    threads_.push_back(std::make_unique<CompletionThread>(std::move(queue), "listener"));
  }
}

void Listener::Shutdown(double grace_seconds) {
  if (server_ == nullptr) return;
  server_->Shutdown(std::chrono::system_clock::now() +
                    std::chrono::microseconds(static_cast<int64_t>(grace_seconds * 1e6)));
  for (const auto& queue : queues_) queue->WaitUntilEmpty();
  threads_.clear();
  queues_.clear();
  server_.reset();
}

int DefaultListenerThreads(int processors) { return std::clamp(processors / 4, 1, 4); }

}  // namespace catchment
