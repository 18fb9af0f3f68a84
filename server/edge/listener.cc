#include "server/edge/listener.h"

#include <glog/logging.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/address.h"
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

// Returns the system's reason for an address that a process cannot listen on, and what to do. gRPC would only log it.
std::string ExplainListenFailure(int error) {
  const std::string why = std::strerror(error);
  if (error == EADDRNOTAVAIL) {
    return why + "; it is not an address of this machine: is --index that of the server on this machine?";
  }
  if (error == EACCES) return why + "; choose a port of at least 1024";
  return why + "; choose another port, or 0 for a free one";
}

// Returns why no socket can be bound to an address, or an empty text. gRPC needs one that can.
std::string TryToBind(const std::string& host, const std::string& port) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host.c_str(), port.c_str(), &hints, &found); error != 0) {
    return gai_strerror(error);
  }
  int first_error = 0;
  bool bound = false;
  for (const addrinfo* at = found; at != nullptr && !bound; at = at->ai_next) {
    const int fd = socket(at->ai_family, at->ai_socktype, 0);
    const int reuse = 1;
    if (fd >= 0) setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &reuse, sizeof(reuse));
    bound = fd >= 0 && bind(fd, at->ai_addr, at->ai_addrlen) == 0;
    if (!bound && first_error == 0) first_error = errno;
    if (fd >= 0) close(fd);
  }
  freeaddrinfo(found);
  return bound ? "" : ExplainListenFailure(first_error);
}

// Returns where to listen for HOST:PORT, and says so if it is elsewhere than at HOST's addresses.
std::string WhereToListen(const std::string& address) {
  const std::vector<std::string> addresses = Resolve(HostOf(address));
  std::string at = AddressToListenOn(address, addresses);
  LOG_IF(WARNING, at != address) << HostOf(address) << " is " << absl::StrJoin(addresses, ", ")
                                 << " on this machine (see /etc/hosts), which other machines do not reach: "
                                    "listening on all interfaces";
  return at;
}

}  // namespace

absl::StatusOr<Listener> Listener::Open(const std::string& address,
                                        const std::shared_ptr<grpc::ServerCredentials>& credentials,
                                        const std::vector<CallService*>& services, const Options& options) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon + 1 == address.size()) {
    return absl::InvalidArgumentError(absl::StrCat("'", address, "' is not HOST:PORT"));
  }
  const bool is_unix = absl::StartsWith(address, "unix:");
  const std::string listen_on = is_unix ? address : WhereToListen(address);
  if (!is_unix) {
    const std::string why = TryToBind(HostOf(listen_on), address.substr(colon + 1));
    if (!why.empty()) return absl::UnavailableError(absl::StrCat("cannot listen on ", address, ": ", why));
  }
  grpc::ServerBuilder builder;
  SetTrainingOptions(&builder);
  LimitConnections(&builder);
  builder.SetMaxReceiveMessageSize(options.max_message_bytes);
  if (options.memory_quota_bytes > 0) {
    builder.SetResourceQuota(grpc::ResourceQuota("server").Resize(options.memory_quota_bytes));
  }
  int picked = 0;
  builder.AddListeningPort(listen_on, credentials, &picked);
  Listener listener;
  builder.RegisterService(listener.health_->grpc_service());
  for (CallService* service : services) builder.RegisterService(service->grpc_service());
  std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues;
  for (int i = 0; i < options.threads; ++i) queues.push_back(builder.AddCompletionQueue());
  listener.server_ = builder.BuildAndStart();
  if (listener.server_ == nullptr || picked == 0) {
    for (const auto& queue : queues) queue->Shutdown();
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on ", address, ": ",
        is_unix ? "is its directory there and writable, and does its path have at most 107 bytes?"
                : ExplainListenFailure(EADDRINUSE)));
  }
  listener.address_ = is_unix ? address : absl::StrCat(address.substr(0, colon), ":", picked);
  listener.Serve(services, std::move(queues));
  return listener;
}

void Listener::Serve(const std::vector<CallService*>& services,
                     std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues) {
  for (std::unique_ptr<grpc::ServerCompletionQueue>& queue : queues) {
    CallQueue* const of_process =
        queues_.emplace_back(std::make_unique<CallQueue>(queue.get(), nullptr)).get();
    CallQueue* const of_runs =
        queues_.emplace_back(std::make_unique<CallQueue>(queue.get(), runs_.get())).get();
    health_->Accept(of_process);
    for (CallService* service : services) service->Accept(service->is_of_runs() ? of_runs : of_process);
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
