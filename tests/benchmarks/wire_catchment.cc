// Catchment itself: a real shard behind its service, and a worker's client.
#include <glog/logging.h>

#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/clock.h"
#include "common/wire/token.h"
#include "server/edge/listener.h"
#include "server/edge/shard_service.h"
#include "server/edge/standby_link.h"
#include "server/edge/standby_service.h"
#include "server/host/shard_host.h"
#include "server/shard/run_claim.h"
#include "tests/benchmarks/wire_peers.h"
#include "worker/client/parameter_client.h"

namespace catchment {
namespace {

constexpr uint64_t kRunId = 1;
constexpr int64_t kBlockValues = 1 << 18;  // a job's default of 1 MiB

v1::Job MakeJob(v1::Optimizer::Kind kind) {
  v1::Job job;
  job.set_name("wire");
  job.set_batch_size(1);
  job.mutable_algorithm()->mutable_consistency()->mutable_asynchronous();
  v1::AccruedGradient* const gradient = job.mutable_algorithm()->mutable_contribution()->mutable_gradient();
  gradient->set_push_period(1);
  gradient->set_fetch_period(1);
  v1::Optimizer* const optimizer = job.mutable_optimizer();
  optimizer->set_kind(kind);
  optimizer->set_learning_rate(kLearningRate);
  optimizer->set_beta1(0.9f);
  optimizer->set_beta2(0.999f);
  optimizer->set_epsilon(1e-8f);
  optimizer->mutable_schedule()->set_decay(v1::Schedule::CONSTANT);
  return job;
}

ParameterLayout MakeLayout(int64_t values) {
  return *ParameterLayout::Create({{"w", {values}}}, 1, kBlockValues);
}

class CatchmentServer final : public WireServer {
 public:
  explicit CatchmentServer(const PeerOptions& options)
      : layout_(MakeLayout(options.values)),
        has_standby_(options.standby),
        host_(MakeJob(options.optimizer), layout_, 0, Zeros(options.values), options.checkpoints,
              has_standby_ ? &log_ : nullptr),
        service_("wire", layout_, host_.shard(), &claim_,
                 [](const v1::ShardCommand&) { return v1::ShardReport(); },
                 {.log = has_standby_ ? &log_ : nullptr, .shared_memory = options.transport == "shm"}),
        store_(MakeJob(options.optimizer), layout_, 0),
        standby_service_(&store_) {
    command_.set_generation(1);
    command_.mutable_run()->set_id(kRunId);
    CHECK(claim_.Claim(command_.run()).ok());
    v1::Roster* const roster = command_.add_rosters();
    for (int w = 0; w < options.workers; ++w) {
      v1::Member* const member = roster->add_members();
      member->set_worker(w);
      member->set_incarnation(1);
    }
    host_.Control(command_, clock_.Now());
    listener_.emplace(
        Listen(options.transport == "unix" ? GrpcAddress(options) : "127.0.0.1:0", options, &service_));
    if (has_standby_) StartStandby(options);
  }

  std::string address() const override {
    return std::string(absl::StripPrefix(listener_->address(), "unix:"));
  }
  void SaveCheckpoint(uint64_t number) override {
    command_.set_checkpoint(number);
    command_.set_generation(1 + number);
    while (true) {
      const v1::ShardReport report = host_.Control(command_, clock_.Now());
      CHECK(report.save_error().empty()) << report.save_error();
      if (report.saved_size() > 0 && report.saved(report.saved_size() - 1).checkpoint() == number) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

 private:
  static Listener Listen(const std::string& address, const PeerOptions& options, CallService* service) {
    absl::StatusOr<Listener> listener =
        Listener::Open(address, *ServerCredentials(CertificateOf(options, "server")), {service}, {});
    CHECK(listener.ok()) << listener.status();
    return *std::move(listener);
  }

  void StartStandby(const PeerOptions& options) {
    standby_listener_.emplace(Listen("127.0.0.1:0", options, &standby_service_));
    store_.Join(kRunId, 1);
    link_.emplace(
        host_.shard(), &layout_, &log_, service_.arena(), [this] { return listener_->threads(); },
        *ClientCredentials(CertificateOf(options, "server")),
        [](const absl::Status& status) { LOG(FATAL) << status; });
    v1::ShardCommand::Standby standby;
    standby.set_address(standby_listener_->address());
    standby.set_epoch(1);
    link_->SetStandby(standby, kRunId);
  }

  static Shard::Contents Zeros(int64_t values) {
    Shard::Contents contents;
    contents.weights.assign(values, 0.0f);
    return contents;
  }

  const ParameterLayout layout_;
  const bool has_standby_;
  const SteadyClock clock_;
  StandbyLog log_;
  v1::ShardCommand command_;
  ShardHost host_;
  RunClaim claim_{/*server_instance=*/1};
  ShardService service_;
  StandbyStore store_;
  StandbyService standby_service_;
  std::optional<Listener> listener_;
  std::optional<Listener> standby_listener_;
  std::optional<StandbyLink> link_;
};

class CatchmentWorker final : public WireWorker {
 public:
  explicit CatchmentWorker(const PeerOptions& options)
      : layout_(MakeLayout(options.values)),
        client_({{GrpcAddress(options)},
                 *ClientCredentials(CertificateOf(options, "worker")),
                 "wire",
                 static_cast<uint32_t>(options.worker),
                 /*incarnation=*/1,
                 /*connect_timeout_seconds=*/60,
                 v1::Compression(),
                 kRunId,
                 RegistrationToken(/*key=*/"", /*incarnation=*/1),
                 /*shared_memory=*/options.transport == "shm"},
                &layout_, &clock_) {}

  void RoundTrip(absl::Span<const float> gradient, absl::Span<float> weights) override {
    const auto outcome = client_.PushPull(gradient, 1, weights, ++steps_);
    CHECK(outcome.ok()) << outcome.status();
    CHECK(!outcome->late && !outcome->non_finite);
  }

  std::pmr::memory_resource* memory() override { return client_.memory(); }

 private:
  const SteadyClock clock_;
  const ParameterLayout layout_;
  ParameterClient client_;
  uint64_t steps_ = 0;
};

}  // namespace

std::string GrpcAddress(const PeerOptions& options) {
  return options.transport == "unix" ? absl::StrCat("unix:", options.address) : options.address;
}

std::unique_ptr<WireServer> MakeCatchmentServer(const PeerOptions& options) {
  return std::make_unique<CatchmentServer>(options);
}

std::unique_ptr<WireWorker> MakeCatchmentWorker(const PeerOptions& options) {
  return std::make_unique<CatchmentWorker>(options);
}

}  // namespace catchment
