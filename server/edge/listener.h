// A gRPC server that listens on an address. Each connection has an account (peer_account.h).
#ifndef CATCHMENT_SERVER_EDGE_LISTENER_H_
#define CATCHMENT_SERVER_EDGE_LISTENER_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/net/completion.h"
#include "common/net/message_pipe.h"
#include "server/edge/acceptor.h"
#include "server/edge/calls.h"
#include "server/edge/health_service.h"

namespace catchment {

class Listener {
 public:
  struct Options {
    bool everywhere = false;           // listens on all interfaces instead of the addresses of its host
    int max_message_bytes = 64 << 20;  // larger messages are refused
    // The most that the peers of streams send ahead of the server. gRPC reads as much.
    int64_t read_ahead_bytes = 16 << 20;
    // Limit on the bytes that gRPC buffers for incoming and outgoing messages. When it is exceeded, streams
    // and connections are closed. 0: no limit.
    size_t memory_quota_bytes = 0;
    // Threads that read requests and write answers; each connection stays with one. A server needs two: while
    // a peer floods one of them, the other counts the peer's calls (peer_account.h).
    int threads = 1;
    // Why callers must wait for the first run, which begins with BeginRun. Empty: it begins at once.
    std::string waits;
  };

  // Opens a listener. The gRPC services must outlive it. Errors: the reason of the operating system.
  static absl::StatusOr<Listener> Open(const std::string& address,
                                       const std::shared_ptr<grpc::ServerCredentials>& credentials,
                                       const std::vector<CallService*>& services, const Options& options);

  Listener(Listener&&) = default;
  // Shuts down at once everything that is still open.
  ~Listener() { Shutdown(0); }

  // Returns HOST:PORT, with the chosen port if PORT was 0, or unix:PATH.
  const std::string& address() const { return address_; }
  // Returns threads for the server's own calls, which must end before the listener.
  ConnectionThreads threads() const { return {threads_.front()->queue(), pipes_.front().get()}; }
  // Sets the answer of the listener's health service for this name.
  void SetServing(const std::string& name, bool serving) { health_->Set(name, serving); }
  // Ends the run, as Shutdown ends everything, and keeps the port. Calls are then answered Unavailable,
  // except those of the health service.
  void EndRun(double grace_seconds) { runs_->End(grace_seconds); }
  // Serves the first run, or the next one. The services have fronts (ShardService::Front, for example), which
  // lead to those of this run.
  void BeginRun() { runs_->Begin(); }
  // Takes no more calls, gives the calls in progress `grace_seconds` to end, and returns when all have ended.
  void Shutdown(double grace_seconds);

 private:
  Listener() = default;
  void Serve(const std::vector<CallService*>& services,
             std::vector<std::unique_ptr<grpc::ServerCompletionQueue>> queues, int max_message_bytes);

  std::unique_ptr<Clock> clock_ = std::make_unique<SteadyClock>();
  std::unique_ptr<PeerAccounts> accounts_ = std::make_unique<PeerAccounts>();
  std::unique_ptr<grpc::AsyncGenericService> unknown_ = std::make_unique<grpc::AsyncGenericService>();
  std::unique_ptr<RunCalls> runs_;
  std::unique_ptr<HealthService> health_ = std::make_unique<HealthService>();
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<Acceptor> acceptor_;  // null at a Unix socket, which only the user of the run can reach
  std::string address_;
  std::vector<std::unique_ptr<PipeThread>> pipes_;  // one for each of threads_
  std::vector<std::unique_ptr<CallQueue>> queues_;
  std::vector<std::unique_ptr<CompletionThread>> threads_;
};

// Returns the default number of threads for a machine with `processors`: a quarter of them, from 2 to 4.
int DefaultListenerThreads(int processors);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_LISTENER_H_
