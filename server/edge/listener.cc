#include "server/edge/listener.h"

#include <glog/logging.h>
#include <grpcpp/generic/async_generic_service.h>

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/open_files.h"
#include "common/net/address.h"
#include "common/net/rpc.h"

namespace catchment {
namespace {

// The largest number of streams in one connection. A worker has one stream to a server.
constexpr int kMaxStreams = 100;
// The interval of keepalive pings, which detect a peer whose machine has failed.
constexpr int kKeepaliveMs = 30'000;
// The time in which a new connection must begin TLS and HTTP/2; a silent one is closed.
constexpr int kHandshakeMs = 20'000;

void LimitConnections(grpc::ServerBuilder* builder) {
  builder->AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreams);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
  // Compressed messages are refused: they would be unpacked before their size is checked.
  for (const grpc_compression_algorithm algorithm : {GRPC_COMPRESS_DEFLATE, GRPC_COMPRESS_GZIP}) {
    builder->SetCompressionAlgorithmSupportStatus(algorithm, false);
  }
}

// Returns the address on which to listen for HOST:PORT, and logs it if it is not one of HOST's addresses.
std::string WhereToListen(const std::string& address) {
  const std::vector<std::string> addresses = Resolve(HostOf(address));
  std::string at = AddressToListenOn(address, addresses);
  LOG_IF(WARNING, at != address)
      << HostOf(address) << " is " << absl::StrJoin(addresses, ", ")
      << " on this machine (see /etc/hosts), which other machines cannot reach: listening on all interfaces";
  return at;
}

// A call of a method that the server does not have.
class UnknownCall final : public Completion {
 public:
  // Begins to take calls.
  static void Accept(CallQueue* queue, grpc::AsyncGenericService* service) {
    new UnknownCall(queue, service);
  }

  void Done(bool ok) override {
    if (answered_) accounted_.OnFinish(ok);
    if (!ok || answered_) {
      delete this;
      return;
    }
    answered_ = true;
    Accept(&queue_, &service_);
    accounted_.Begin(queue_.accounts(), context_);
    stream_.Finish(
        grpc::Status(grpc::StatusCode::UNIMPLEMENTED,
                     "this server does not answer such calls; the master is the server with --index=0"),
        Tag());
  }

 private:
  UnknownCall(CallQueue* queue, grpc::AsyncGenericService* service) : queue_(*queue), service_(*service) {
    queue_.Enter();
    service_.RequestCall(&context_, &stream_, queue_.get(), queue_.get(), Tag());
  }
  ~UnknownCall() { queue_.Leave(); }

  CallQueue& queue_;
  grpc::AsyncGenericService& service_;
  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  AccountedCall accounted_;
  bool answered_ = false;
};

Acceptor::Options AcceptorOptions(const Listener::Options& of_listener) {
  // Parts of the open files: one eighth, and one quarter.
  constexpr int64_t kFilesOfStrangers = 8, kFilesOfIdle = 4;
  Acceptor::Options options;
  options.limits.stream_bytes = of_listener.read_ahead_bytes + of_listener.max_message_bytes;
  constexpr double kPartWithoutStream = 0.25;
  if (of_listener.memory_quota_bytes > 0)
    options.bytes_without_stream = kPartWithoutStream * static_cast<double>(of_listener.memory_quota_bytes);
  options.strangers = std::min<size_t>(options.strangers, OpenFilesLimit() / kFilesOfStrangers);
  options.idle_connections = std::min<size_t>(options.idle_connections, OpenFilesLimit() / kFilesOfIdle);
  return options;
}

}  // namespace

absl::StatusOr<Listener> Listener::Open(const std::string& address,
                                        const std::shared_ptr<grpc::ServerCredentials>& credentials,
                                        const std::vector<CallService*>& services, const Options& options) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon + 1 == address.size()) {
    return absl::InvalidArgumentError(absl::StrCat("'", address, "' is not HOST:PORT"));
  }
  Listener listener;
  listener.runs_ = std::make_unique<RunCalls>(options.waits);
  grpc::ServerBuilder builder;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections;
  const bool is_unix = absl::StartsWith(address, "unix:");
  int picked = 0;
  if (is_unix) {
    builder.AddListeningPort(address, credentials, &picked);
  } else {
    const std::string host = options.everywhere ? "::" : HostOf(WhereToListen(address));
    absl::StatusOr<ListeningSockets> sockets = ListenAt(host, address.substr(colon + 1));
    if (!sockets.ok()) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", address, ": ", sockets.status().message()));
    }
    listener.acceptor_ = std::make_unique<Acceptor>(*std::move(sockets), AcceptorOptions(options),
                                                    listener.accounts_.get(), listener.clock_.get());
    picked = listener.acceptor_->port();
    connections = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, credentials);
  }
  SetTrainingOptions(&builder);
  LimitConnections(&builder);
  builder.SetMaxReceiveMessageSize(options.max_message_bytes);
  if (options.memory_quota_bytes > 0) {
    builder.SetResourceQuota(grpc::ResourceQuota("server").Resize(options.memory_quota_bytes));
  }
  builder.RegisterService(listener.health_->grpc_service());
  for (CallService* service : services) builder.RegisterService(service->grpc_service());
  builder.RegisterAsyncGenericService(listener.unknown_.get());
  std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues;
  for (int i = 0; i < options.threads; ++i) queues.push_back(builder.AddCompletionQueue());
  listener.server_ = builder.BuildAndStart();
  if (listener.server_ == nullptr || (is_unix && picked == 0)) {
    for (const auto& queue : queues) queue->Shutdown();
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", address, ": ",
                     is_unix ? "is its directory writable, and is its path at most 107 bytes long?"
                             : "gRPC does not start"));
  }
  listener.address_ = is_unix ? address : absl::StrCat(address.substr(0, colon), ":", picked);
  listener.Serve(services, std::move(queues), options.max_message_bytes);
  if (!is_unix) {
    listener.acceptor_->Start([connections = std::shared_ptr(std::move(connections))](int fd) {
      grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
      parameters.fd = fd;
      connections->HandleNewConnection(&parameters);
    });
  }
  return listener;
}

void Listener::Serve(const std::vector<CallService*>& services,
                     std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues,
                     int max_message_bytes) {
  for (std::unique_ptr<grpc::ServerCompletionQueue>& queue : queues) {
    PipeThread* const pipes = pipes_.emplace_back(std::make_unique<PipeThread>("pipes")).get();
    const auto add = [&](RunCalls* runs) {
      return queues_
          .emplace_back(
              std::make_unique<CallQueue>(queue.get(), runs, accounts_.get(), pipes, max_message_bytes))
          .get();
    };
    CallQueue* const of_process = add(nullptr);
    CallQueue* const of_runs = add(runs_.get());
    health_->Accept(of_process);
    UnknownCall::Accept(of_process, unknown_.get());
    for (CallService* service : services) service->Accept(service->is_of_runs() ? of_runs : of_process);
    threads_.push_back(std::make_unique<CompletionThread>(std::move(queue), "listener"));
  }
}

void Listener::Shutdown(double grace_seconds) {
  if (acceptor_ != nullptr) acceptor_->Stop();
  if (server_ == nullptr) return;
  server_->Shutdown(TimeIn(grace_seconds));
  for (const auto& queue : queues_) queue->WaitUntilEmpty();
  threads_.clear();
  queues_.clear();
  server_.reset();
}

int DefaultListenerThreads(int processors) { return std::clamp(processors / 4, 2, 4); }

}  // namespace catchment
