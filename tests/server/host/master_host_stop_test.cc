// Servers learn of the end of a job even if commands are lost.
#include "tests/server/host/master_host_fixture.h"

namespace catchment {
namespace {

using testing::HasSubstr;

// Server 1's shard behind a network that loses the first commands to stop.
class LossyServer final : public CallService {
 public:
  LossyServer(ShardHost* host, int lost_stops) : host_(*host), lost_stops_(lost_stops) {}

  grpc::Service* grpc_service() override { return &service_; }
  void Accept(CallQueue* queue) override {
    DeferredCall<Async, v1::ShardCommand, v1::ShardReport>::Accept(
        queue, Permission("catchment.v1.ShardService.Control"), {&service_, &Async::RequestControl},
        [this](const v1::ShardCommand& command, const auto& respond) {
          if (command.stop() && ++stops_ <= lost_stops_) return respond(absl::UnavailableError("lost"));
          v1::ShardReport report = host_.Control(command, SteadyClock().Now());
          report.set_server_instance(kInstance + 1);
          report.set_run_id(kRunId);
          report.set_non_finite_version(non_finite_version_);
          respond(std::move(report));
        });
  }

  int stops() const { return stops_; }
  void Diverge() { non_finite_version_ = 1; }

 private:
  using Async = v1::ShardService::WithAsyncMethod_Control<v1::ShardService::Service>;

  // The master reads the final weights.
  class Service final : public Async {
   public:
    explicit Service(Shard* shard) : shard_(*shard) {}
    grpc::Status Snapshot(grpc::ServerContext*, const v1::SnapshotRequest*,
                          grpc::ServerWriter<v1::Block>* writer) override {
      const std::vector<float> weights = shard_.Weights();
      for (int b = 0; b < shard_.num_blocks(); ++b) {
        const Range range = shard_.block_range(b);
        const int64_t local = range.begin - shard_.block_range(0).begin;
        v1::Block block;
        block.set_block(b);
        block.set_payload(reinterpret_cast<const char*>(weights.data() + local),
                          range.size() * sizeof(float));
        writer->Write(block);
      }
      return grpc::Status::OK;
    }

   private:
    Shard& shard_;
  };

  ShardHost& host_;
  Service service_{host_.shard()};
  const int lost_stops_;
  std::atomic<int> stops_ = 0;
  std::atomic<uint64_t> non_finite_version_ = 0;
};

class LostStopTest : public MasterHostTest {
 protected:
  static constexpr int kLost = 2;

  LostStopTest() {
    listeners_[1].Shutdown(0);
    listeners_.pop_back();
    listeners_.push_back(*Listener::Open("127.0.0.1:0", grpc::InsecureServerCredentials(), {&server_}, {}));
    EXPECT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  }
  // The services end before the fixture's.
  ~LostStopTest() override {
    master_.reset();
    listeners_.back().Shutdown(0);
    listeners_.pop_back();
  }

  LossyServer server_{hosts_[1].get(), kLost};
};

TEST_F(LostStopTest, StopIsRepeatedUntilTheServerAnswersIt) {
  v1::RegisterServerRequest leaving = Server1();
  leaving.set_leaving(true);
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(leaving).ok());
  EXPECT_TRUE(master_->Wait().ok());
  EXPECT_EQ(server_.stops(), kLost + 1) << "no more once it is answered";
  EXPECT_TRUE(hosts_[1]->WaitForStop(0));
  EXPECT_TRUE(hosts_[1]->result().ok()) << "a server ends as its job does";
}

TEST_F(LostStopTest, ServerThatHearsOfAFailureLateEndsByItAllTheSame) {
  server_.Diverge();
  const absl::Status status = master_->Wait();
  EXPECT_THAT(std::string(status.message()), HasSubstr("training has diverged"));
  EXPECT_EQ(server_.stops(), kLost + 1);
  EXPECT_TRUE(hosts_[1]->WaitForStop(0));
  EXPECT_THAT(std::string(hosts_[1]->result().message()), HasSubstr("training has diverged"));
  EXPECT_THAT(std::string(hosts_[0]->result().message()), HasSubstr("training has diverged"));
}

}  // namespace
}  // namespace catchment
