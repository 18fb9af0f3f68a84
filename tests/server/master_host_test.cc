#include "server/master_host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "common/checkpoint/atomic_file.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/model_file.h"
#include "common/checkpoint/safetensors.h"
#include "common/job/data_shape.h"
#include "common/job/job_text.h"
#include "common/model_shapes.h"
#include "server/edge/listener.h"
#include "server/edge/shard_service.h"
#include "tests/conformance/jobs.h"
#include "worker/client/parameter_client.h"

namespace catchment {
namespace {

using testing::HasSubstr;

constexpr uint64_t kSamples = 64;
constexpr uint32_t kBatch = 16;

class SettableClock final : public Clock {
 public:
  double Now() const override { return now_; }
  void Set(double now) { now_ = now; }

 private:
  std::atomic<double> now_{1000};
};

ParameterLayout LayoutOf(const v1::Job& job) {
  const DataShape data = ShapeOf(job.data());
  return *ParameterLayout::Create(ListTensors(*InferShapes(job.model(), data.input, data.target)), 2,
                                  1000);
}

// A job of four steps on two servers, of which the test plays the daemons.
class MasterHostTest : public testing::Test {
 protected:
  explicit MasterHostTest(const std::string& more = "")
      : job_(
            PresetJob("sync", 1,
                      "batch_size: 16 data { drawn_digits { train_samples: 64 test_samples: 10 } } " + more)),
        layout_(LayoutOf(job_)),
        directory_(std::string(std::getenv("TEST_TMPDIR")) + "/" +
                   testing::UnitTest::GetInstance()->current_test_info()->name()) {
    for (int s : {0, 1}) {
      hosts_.push_back(std::make_unique<ShardHost>(
          job_, layout_, s, *MakeContents(job_, layout_, s, "", nullptr), directory_ + "/checkpoints"));
      ShardHost* const host = hosts_.back().get();
      services_.push_back(std::make_unique<ShardService>(
          job_.name(), layout_, host->shard(),
          [host](const v1::ShardCommand& command) { return host->Control(command, SteadyClock().Now()); }));
      listeners_.push_back(
          *Listener::Open("127.0.0.1:0", grpc::InsecureServerCredentials(), {services_.back().get()}, {}));
    }
    MasterHost::Options options;
    options.job = job_;
    options.num_servers = 2;
    options.credentials = grpc::InsecureChannelCredentials();
    options.checkpoint_dir = directory_ + "/checkpoints";
    options.out_dir = directory_ + "/out";
    master_ = *MasterHost::Create(options, &layout_, hosts_[0].get(), &clock_, std::nullopt);
    master_->SetAddress(listeners_[0].address());
  }
  ~MasterHostTest() override {
    master_.reset();
    for (Listener& listener : listeners_) listener.Shutdown(0);
  }

  v1::RegisterServerRequest Server1() const {
    v1::RegisterServerRequest request;
    request.set_index(1);
    request.set_num_servers(2);
    request.set_address(listeners_[1].address());
    request.set_job_fingerprint(JobFingerprint(job_));
    return request;
  }

  v1::RegisterRequest Worker() const {
    v1::RegisterRequest request;
    for (const TensorSpec& tensor : layout_.tensors()) {
      v1::TensorInfo* info = request.add_tensors();
      info->set_name(tensor.name);
      info->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
    }
    request.set_train_samples(kSamples);
    request.set_device("a test");
    return request;
  }

  // All steps of the leases that a worker is given, with gradients of ones.
  void Train(const v1::RegisterReply& me) {
    ParameterClient client({{listeners_[0].address(), listeners_[1].address()},
                            grpc::InsecureChannelCredentials(),
                            job_.name(),
                            me.worker(),
                            me.incarnation(),
                            60},
                           &layout_, &clock_);
    const std::vector<float> gradient(layout_.size(), 1.0f);
    std::vector<float> weights(layout_.size());
    v1::GetLeaseRequest request;
    request.set_worker(me.worker());
    request.set_incarnation(me.incarnation());
    v1::Progress* progress = request.mutable_progress();
    while (true) {
      const absl::StatusOr<v1::Lease> lease = master_->GetLease(request);
      ASSERT_TRUE(lease.ok()) << lease.status();
      if (lease->state() == v1::Lease::FINISHED) break;
      if (lease->state() == v1::Lease::WAIT) {
        std::this_thread::yield();
        continue;
      }
      EXPECT_EQ(lease->total_samples(), kSamples);
      if (progress->steps() == 0) {
        ASSERT_TRUE(client.Pull(lease->first_version(), absl::MakeSpan(weights)).ok());
      }
      progress->set_lease(lease->number());
      progress->set_lease_steps(lease->minibatches_size());
      for (int i = 0; i < lease->minibatches_size(); ++i) {
        ASSERT_TRUE(client.PushPull(gradient, kBatch, absl::MakeSpan(weights)).ok());
        progress->set_steps(progress->steps() + 1);
        progress->set_samples(progress->samples() + kBatch);
      }
      request.set_after(lease->number());
    }
    v1::LeaveRequest leave;
    leave.set_worker(me.worker());
    leave.set_incarnation(me.incarnation());
    *leave.mutable_progress() = *progress;
    master_->Leave(leave);
  }

  SettableClock clock_;
  const v1::Job job_;
  const ParameterLayout layout_;
  const std::string directory_;
  std::vector<std::unique_ptr<ShardHost>> hosts_;
  std::vector<std::unique_ptr<ShardService>> services_;
  std::vector<Listener> listeners_;
  std::unique_ptr<MasterHost> master_;
};

TEST_F(MasterHostTest, JobIsToldWhenAllServersAreThere) {
  EXPECT_EQ(std::string(master_->GetJob().status().message()), "server 1 of 2 is not there yet");
  EXPECT_EQ(master_->GetJob().status().code(), absl::StatusCode::kUnavailable);
  ASSERT_TRUE(master_->RegisterServer(Server1()).ok());
  const absl::StatusOr<v1::GetJobReply> reply = master_->GetJob();
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(JobFingerprint(reply->job()), JobFingerprint(job_));
  ASSERT_EQ(reply->servers_size(), 2);
  EXPECT_EQ(reply->servers(1), listeners_[1].address());
  EXPECT_TRUE(master_->RegisterServer(Server1()).ok()) << "again, as it does every second";
}

TEST_F(MasterHostTest, StatusTellsWhereServersAreAndWhatTheyHold) {
  v1::JobStatus status = master_->GetStatus({});
  EXPECT_EQ(status.phase(), v1::JobStatus::WAITING);
  EXPECT_EQ(status.reason(), "waiting for servers: 1 of 2 are here");
  ASSERT_EQ(status.servers_size(), 2);
  EXPECT_EQ(status.servers(1).address(), "");
  ASSERT_TRUE(master_->RegisterServer(Server1()).ok());
  status = master_->GetStatus({});
  EXPECT_THAT(status.reason(), HasSubstr("waiting for workers"));
  EXPECT_EQ(status.servers(0).address(), listeners_[0].address());
  EXPECT_EQ(status.servers(1).address(), listeners_[1].address());
  EXPECT_EQ(status.servers(0).parameters() + status.servers(1).parameters(), uint64_t(layout_.size()));
  EXPECT_EQ(status.servers(1).parameters(), uint64_t(layout_.shard(1).size()));
  EXPECT_TRUE(status.writes_checkpoints());
}

TEST_F(MasterHostTest, ServersThatDoNotFitAreRefusedByName) {
  const auto message = [this](const auto& change) {
    v1::RegisterServerRequest request = Server1();
    change(&request);
    const absl::Status status = master_->RegisterServer(request);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  using Request = v1::RegisterServerRequest;
  EXPECT_EQ(message([](Request* r) { r->set_index(0); }),
            "server 0 of 2 does not fit a job of 2 servers; give all the same --servers");
  EXPECT_EQ(message([](Request* r) { r->set_index(2); }),
            "server 2 of 2 does not fit a job of 2 servers; give all the same --servers");
  EXPECT_EQ(message([](Request* r) { r->set_num_servers(3); }),
            "server 1 of 3 does not fit a job of 2 servers; give all the same --servers");
  EXPECT_EQ(message([](Request* r) { r->set_job_fingerprint(1); }),
            "server 1 has another job file than the master; give all the same");
  EXPECT_THAT(message([](Request* r) { r->set_resumed_checkpoint(7); }),
              HasSubstr("server 1 begins with checkpoint 7, the master with 0"));
  ASSERT_TRUE(master_->RegisterServer(Server1()).ok());
  EXPECT_EQ(message([](Request* r) { r->set_address("elsewhere:1"); }),
            "server 1 is at " + listeners_[1].address() + " already; every server has an index of its own");
}

TEST_F(MasterHostTest, JobRunsFromRegistrationToItsOutputs) {
  ASSERT_TRUE(master_->RegisterServer(Server1()).ok());
  const absl::StatusOr<v1::RegisterReply> me = master_->Register(Worker());
  ASSERT_TRUE(me.ok()) << me.status();
  ASSERT_NO_FATAL_FAILURE(Train(*me));
  EXPECT_TRUE(master_->Wait().ok());
  for (const auto& host : hosts_) EXPECT_TRUE(host->WaitForStop(60));

  std::ifstream file(directory_ + "/out/summary.json");
  const nlohmann::json summary = nlohmann::json::parse(file);
  EXPECT_EQ(summary["phase"], "DONE");
  EXPECT_EQ(summary["updates"], kSamples / kBatch);
  EXPECT_EQ(summary["samples"], kSamples);
  EXPECT_EQ(summary["servers"], 2);
  EXPECT_EQ(summary["device"], "a test");
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/out/model.safetensors"));
  const absl::StatusOr<FoundCheckpoint> found = FindLatest(directory_ + "/checkpoints");
  ASSERT_TRUE(found.ok()) << found.status();
  EXPECT_EQ(found->manifest.number(), kSamples / kBatch);
  std::vector<float> saved(layout_.size()), weights = hosts_[0]->shard()->Weights();
  const std::vector<float> rest = hosts_[1]->shard()->Weights();
  weights.insert(weights.end(), rest.begin(), rest.end());
  ASSERT_TRUE(ReadParameters(directory_ + "/checkpoints", found->manifest, {0, layout_.size()}, "weights",
                             saved.data()).ok());
  EXPECT_EQ(saved, weights);
}

class MasterHostBestTest : public MasterHostTest {
 protected:
  MasterHostBestTest() : MasterHostTest("evaluation { keep_best: true }") {}

  std::string best_file() const { return directory_ + "/out/model-best.safetensors"; }

  // Trains to the end, and has the final evaluation scored, whose weights are all `value`. How it was kept.
  absl::Status TrainAndKeep(float value) {
    EXPECT_TRUE(master_->RegisterServer(Server1()).ok());
    v1::RegisterRequest request = Worker();
    const absl::StatusOr<v1::RegisterReply> worker = master_->Register(request);
    request.set_role(v1::EVALUATOR);
    const absl::StatusOr<v1::RegisterReply> evaluator = master_->Register(request);
    EXPECT_TRUE(worker.ok() && evaluator.ok()) << worker.status() << evaluator.status();
    Train(*worker);
    v1::GetEvaluationRequest ask;
    ask.set_incarnation(evaluator->incarnation());
    v1::EvaluationReport report;
    for (v1::GetEvaluationReply task; !task.final(); std::this_thread::yield()) {
      task = *master_->GetEvaluation(ask);
      report.set_evaluation(task.evaluation());
    }
    report.set_incarnation(evaluator->incarnation());
    report.set_samples(10);
    report.set_correct(9);
    report.set_loss_sum(5);
    EXPECT_TRUE(master_->ReportEvaluation(report)->keep());
    v1::BestWeights weights;
    weights.set_incarnation(evaluator->incarnation());
    weights.set_evaluation(report.evaluation());
    const std::vector<float> values(layout_.size(), value);
    weights.set_values(values.data(), values.size() * sizeof(float));
    const absl::StatusOr<uint64_t> stream = master_->best_keeper()->Begin(weights);
    EXPECT_TRUE(stream.ok()) << stream.status();
    std::promise<absl::Status> kept;
    master_->best_keeper()->End(*stream, [&kept](const absl::Status& status) { kept.set_value(status); });
    v1::LeaveRequest leave;
    leave.set_role(v1::EVALUATOR);
    leave.set_incarnation(evaluator->incarnation());
    const absl::Status status = kept.get_future().get();
    master_->Leave(leave);
    EXPECT_TRUE(master_->Wait().ok());
    return status;
  }

  nlohmann::json Summary() const {
    std::ifstream file(directory_ + "/out/summary.json");
    return nlohmann::json::parse(file);
  }
};

TEST_F(MasterHostBestTest, WeightsOfTheBestEvaluationAreAFileOfTheirOwn) {
  const absl::Status kept = TrainAndKeep(0.25f);
  ASSERT_TRUE(kept.ok()) << kept;
  const auto file = SafetensorsFile::Open(best_file());
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ((*file)->tensors().size(), layout_.tensors().size());
  for (const TensorSpec& tensor : layout_.tensors()) {
    std::vector<float> values(tensor.size());
    ASSERT_TRUE((*file)->Read(tensor.name, 0, tensor.size(), values.data()).ok()) << tensor.name;
    EXPECT_EQ(values, std::vector<float>(tensor.size(), 0.25f));
    EXPECT_EQ((*file)->Find(tensor.name)->shape, tensor.shape);
  }
  const absl::StatusOr<v1::BestState> score = ReadModelScore(best_file(), layout_);
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->loss(), 0.5);
  EXPECT_EQ(score->accuracy(), 0.9);
  EXPECT_EQ(score->samples(), kSamples);
  const nlohmann::json summary = Summary();
  EXPECT_EQ(summary["best_weights"], score->evaluation());
  EXPECT_EQ(summary["best_evaluation"], score->evaluation());
  EXPECT_EQ(summary["best_test_loss"], 0.5);
  EXPECT_EQ(summary["best_test_accuracy"], 0.9);
  EXPECT_EQ(summary["best_at_samples"], kSamples);
  EXPECT_TRUE(summary["ended_early"].is_null());
}

// Where the temporary file would be there is a directory: nothing can be written, as on a full disk.
TEST_F(MasterHostBestTest, WhereTheyCannotBeWrittenTheOldOnesStayAndTheJobGoesOn) {
  std::ofstream(best_file()) << "those before";
  std::filesystem::create_directories(AtomicFile::TemporaryPath(best_file()));
  const absl::Status kept = TrainAndKeep(0.25f);
  EXPECT_FALSE(kept.ok());
  EXPECT_THAT(std::string(kept.message()), HasSubstr(best_file()));
  std::ifstream file(best_file());
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "those before");
  const nlohmann::json summary = Summary();
  EXPECT_EQ(summary["phase"], "DONE");
  EXPECT_TRUE(summary["best_weights"].is_null());
  EXPECT_EQ(summary["best_test_loss"], 0.5);
  EXPECT_THAT(master_->Status().events(), testing::Contains(HasSubstr("are not kept: cannot create")));
}

TEST_F(MasterHostTest, StopBeforeAllServersHaveComeEndsTheJob) {
  master_->Stop("changed my mind");
  master_->Wait().IgnoreError();
  EXPECT_TRUE(hosts_[0]->WaitForStop(60));
  EXPECT_THAT(master_->Status().reason(), HasSubstr("changed my mind"));
}

TEST_F(MasterHostTest, ServerThatIsToldToEndEndsTheJob) {
  v1::RegisterServerRequest request = Server1();
  ASSERT_TRUE(master_->RegisterServer(request).ok());
  request.set_leaving(true);
  ASSERT_TRUE(master_->RegisterServer(request).ok());
  EXPECT_TRUE(master_->Wait().ok());
  EXPECT_EQ(master_->Status().phase(), v1::JobStatus::STOPPED);
  EXPECT_THAT(master_->Status().reason(), HasSubstr("server 1 was told to end"));
  EXPECT_TRUE(hosts_[1]->WaitForStop(60));
}

TEST_F(MasterHostTest, ServerThatIsGoneFailsTheJobAfterTheStatedTimeAndIsNamed) {
  ASSERT_TRUE(master_->RegisterServer(Server1()).ok());
  listeners_[1].Shutdown(0);
  clock_.Set(1061);
  const absl::Status status = master_->Wait();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("server 1 at " + listeners_[1].address() + " was not to be reached for 60 s"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("with --resume to go on from the last checkpoint"));
}

}  // namespace
}  // namespace catchment
