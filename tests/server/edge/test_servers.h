// Shards behind real sockets on this machine, as daemons serve them.
#ifndef CATCHMENT_TESTS_SERVER_EDGE_TEST_SERVERS_H_
#define CATCHMENT_TESTS_SERVER_EDGE_TEST_SERVERS_H_

#include <glog/logging.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/wire/token.h"
#include "server/edge/listener.h"
#include "server/edge/shard_service.h"
#include "server/host/shard_host.h"
#include "server/shard/run_claim.h"

namespace catchment {

// The run that TestServers belong to, and the instance of each.
inline constexpr uint64_t kRunId = 71;
inline constexpr uint64_t kServerInstance = 1009;

// The key of the tokens of TestServers, and the token of a registration.
inline constexpr char kTestTokenKey[] = "the key of a test";
inline std::string TestToken(uint64_t incarnation) { return RegistrationToken(kTestTokenKey, incarnation); }

inline v1::Run TestRun(const std::string& job) {
  v1::Run run;
  run.set_id(kRunId);
  run.set_token_key(kTestTokenKey);
  run.set_job(job);
  run.set_master("here:7000");
  return run;
}

// A command that TestServers take.
inline v1::ShardCommand TestCommand() {
  v1::ShardCommand command;
  *command.mutable_run() = TestRun("test");
  command.set_server_instance(kServerInstance);
  return command;
}

class TestServers {
 public:
  struct Options {
    std::shared_ptr<grpc::ServerCredentials> credentials = grpc::InsecureServerCredentials();
    int max_message_bytes = 64 << 20;
    ShardService::Options service;
  };

  // One server per shard of the layout, which is copied; weights begin at zero.
  TestServers(const v1::Job& job, const ParameterLayout& layout) : TestServers(job, layout, Options()) {}
  TestServers(const v1::Job& job, const ParameterLayout& layout, Options options)
      : job_(job.name()), layout_(layout), options_(std::move(options)) {
    for (int s = 0; s < layout_.num_shards(); ++s) {
      auto server = std::make_unique<Server>();
      Shard::Contents contents;
      contents.weights.assign(layout_.shard(s).size(), 0.0f);
      server->host =
          std::make_unique<ShardHost>(job, layout_, s, std::move(contents), "", options_.service.log);
      CHECK(server->claim.Claim(TestRun(job.name())).ok());
      servers_.push_back(std::move(server));
      addresses_.push_back("127.0.0.1:0");
      Start(s);
    }
  }
  ~TestServers() {
    for (int s = 0; s < layout_.num_shards(); ++s) Stop(s);
  }

  // Listens again, at the same address.
  void Start(int s) {
    ShardHost* const host = servers_[s]->host.get();
    // gRPC registers a service once in its life.
    servers_[s]->service = std::make_unique<ShardService>(
        job_, layout_, host->shard(), &servers_[s]->claim,
        [host](const v1::ShardCommand& command) { return host->Control(command, SteadyClock().Now()); },
        options_.service);
    absl::StatusOr<Listener> listener =
        Listener::Open(addresses_[s], options_.credentials, {servers_[s]->service.get()},
                       {.max_message_bytes = options_.max_message_bytes});
    CHECK(listener.ok()) << listener.status();
    addresses_[s] = listener->address();
    servers_[s]->listener.emplace(*std::move(listener));
  }
  // Connections end; the shard stays as it is.
  void Stop(int s) { servers_[s]->listener.reset(); }

  void SetRosters(const std::vector<v1::Roster>& rosters) {
    v1::ShardCommand command;
    command.set_generation(++generation_);
    for (const v1::Roster& roster : rosters) *command.add_rosters() = roster;
    for (const auto& server : servers_) server->host->Control(command, SteadyClock().Now());
  }

  // Does the work that a daemon does once a second.
  void Sweep(double now) {
    for (const auto& server : servers_) server->service->Sweep(now);
  }

  const ParameterLayout& layout() const { return layout_; }
  const std::vector<std::string>& addresses() const { return addresses_; }
  Shard& shard(int s) { return *servers_[s]->host->shard(); }

  std::vector<float> Weights() {
    std::vector<float> weights;
    for (const auto& server : servers_) {
      const std::vector<float> part = server->host->shard()->Weights();
      weights.insert(weights.end(), part.begin(), part.end());
    }
    return weights;
  }

 private:
  struct Server {
    RunClaim claim{kServerInstance};
    std::unique_ptr<ShardHost> host;
    std::unique_ptr<ShardService> service;
    std::optional<Listener> listener;
  };

  const std::string job_;
  const ParameterLayout layout_;
  const Options options_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<std::string> addresses_;
  uint64_t generation_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_SERVER_EDGE_TEST_SERVERS_H_
