#include "server/host/master_host.h"

#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/not_ready.h"
#include "common/checkpoint/checkpoint.h"
#include "common/checkpoint/model_file.h"
#include "common/checkpoint/safetensors.h"
#include "tests/server/edge/http2_peer.h"
#include "tests/server/host/master_host_fixture.h"

namespace catchment {
namespace {

using testing::HasSubstr;

TEST_F(MasterHostTest, JobIsToldWhenAllServersAreThere) {
  const absl::Status before_all = Ask<v1::GetJobReply>(v1::GetJobRequest()).status();
  EXPECT_EQ(std::string(before_all.message()), "server 1 of 2 has not registered yet");
  EXPECT_TRUE(IsNotReady(before_all)) << "a worker that waits for servers does not lose patience";
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  const double before = absl::ToDoubleSeconds(absl::Now() - absl::UnixEpoch());
  const absl::StatusOr<v1::GetJobReply> reply = Ask<v1::GetJobReply>(v1::GetJobRequest());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_GE(reply->unix_seconds(), before);
  EXPECT_EQ(JobFingerprint(reply->job()), JobFingerprint(job_));
  ASSERT_EQ(reply->servers_size(), 2);
  EXPECT_EQ(reply->servers(1), listeners_[1].address());
  EXPECT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok()) << "again, as it does every second";
}

TEST_F(MasterHostTest, StatusTellsWhereServersAreAndWhatTheyHold) {
  v1::JobStatus status = *Ask<v1::JobStatus>(v1::GetStatusRequest());
  EXPECT_EQ(status.phase(), v1::JobStatus::WAITING);
  EXPECT_EQ(status.reason(), "waiting for servers: 1 of 2 have registered");
  ASSERT_EQ(status.servers_size(), 2);
  EXPECT_EQ(status.servers(1).address(), "");
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  status = *Ask<v1::JobStatus>(v1::GetStatusRequest());
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
    const absl::Status status = Ask<v1::RegisterServerReply>(request).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    return std::string(status.message());
  };
  using Request = v1::RegisterServerRequest;
  EXPECT_EQ(message([](Request* r) { r->set_index(0); }),
            "server 0 of 2 does not fit a job of 2 servers; give all servers the same --servers");
  EXPECT_EQ(message([](Request* r) { r->set_index(2); }),
            "server 2 of 2 does not fit a job of 2 servers; give all servers the same --servers");
  EXPECT_EQ(message([](Request* r) { r->set_num_servers(3); }),
            "server 1 of 3 does not fit a job of 2 servers; give all servers the same --servers");
  EXPECT_EQ(message([](Request* r) { r->set_job_fingerprint(1); }),
            "server 1 has a different job file than the master; give all servers the same --job");
  EXPECT_EQ(message([](Request* r) { r->set_address("unix:/tmp/elsewhere"); }),
            "server 1 is at unix:/tmp/elsewhere, and the master's --servers has 127.0.0.1:0 for it; "
            "give all servers the same --servers");
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  EXPECT_EQ(message([](Request* r) { r->set_address("127.0.0.1:1"); }),
            "server 1 is at " + listeners_[1].address() + " already; every server needs its own index");
}

TEST_F(MasterHostTest, JobRunsFromRegistrationToItsOutputs) {
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  const absl::StatusOr<v1::RegisterReply> me = Ask<v1::RegisterReply>(Worker());
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
  EXPECT_EQ(found->manifest.run_id(), kRunId);
  for (const ShardFile& shard : *OpenShards(directory_ + "/checkpoints", found->manifest)) {
    EXPECT_EQ(shard.state.run_id(), kRunId);
  }
  std::vector<float> saved(layout_.size()), weights = hosts_[0]->shard()->Weights();
  const std::vector<float> rest = hosts_[1]->shard()->Weights();
  weights.insert(weights.end(), rest.begin(), rest.end());
  ASSERT_TRUE(ReadParameters(directory_ + "/checkpoints", found->manifest, {0, layout_.size()}, "weights",
                             saved.data())
                  .ok());
  EXPECT_EQ(saved, weights);
}

// Eight readers that do not read take all places of server 1, as the loss of the server would.
TEST_F(MasterHostTest, FinalWeightsAreThoseOfTheLastCheckpointWhereAServerCannotBeRead) {
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  const absl::StatusOr<v1::RegisterReply> me = Ask<v1::RegisterReply>(Worker());
  ASSERT_TRUE(me.ok()) << me.status();
  while (claims_[1]->run().id() == 0) std::this_thread::yield();
  v1::SnapshotRequest request;
  request.set_fingerprint(layout_.fingerprint());
  request.set_run_id(kRunId);
  Http2Peer readers(listeners_[1].address(), 1000);
  for (int i = 0; i < 8; ++i) {
    const uint32_t stream = readers.Call("/catchment.v1.ShardService/Snapshot", "");
    ASSERT_TRUE(readers.SendLast(stream, GrpcMessage(request.SerializeAsString())));
    ASSERT_TRUE(readers.ReadUntil([&] { return readers.Bytes(stream) == 1000; }));
  }
  ASSERT_NO_FATAL_FAILURE(Train(*me));
  EXPECT_TRUE(master_->Wait().ok());
  std::vector<float> weights = hosts_[0]->shard()->Weights();
  const std::vector<float> rest = hosts_[1]->shard()->Weights();
  weights.insert(weights.end(), rest.begin(), rest.end());
  const auto model = SafetensorsFile::Open(directory_ + "/out/model.safetensors");
  ASSERT_TRUE(model.ok()) << model.status();
  for (size_t t = 0; t < layout_.tensors().size(); ++t) {
    const Range range = layout_.tensor(static_cast<int>(t));
    std::vector<float> saved(range.size());
    ASSERT_TRUE((*model)->Read(layout_.tensors()[t].name, 0, range.size(), saved.data()).ok());
    EXPECT_TRUE(std::equal(saved.begin(), saved.end(), weights.begin() + range.begin));
  }
}

// A call of GetLease that may wait at the master.
class LeaseCall {
 public:
  LeaseCall(MasterHost* master, const v1::RegisterReply& worker, double wait_seconds) {
    v1::GetLeaseRequest request;
    request.set_worker(worker.worker());
    request.set_incarnation(worker.incarnation());
    request.set_wait_seconds(wait_seconds);
    master->Answer(MakeCall(request), [this](absl::StatusOr<v1::Reply> reply) {
      answer_.set_value(TakeReply<v1::Lease>(std::move(reply)));
    });
  }
  bool answered() { return future_.wait_for(std::chrono::seconds(0)) == std::future_status::ready; }
  v1::Lease Await() {
    absl::StatusOr<v1::Lease> lease = future_.get();
    EXPECT_TRUE(lease.ok()) << lease.status();
    return lease.value_or(v1::Lease());
  }

 private:
  std::promise<absl::StatusOr<v1::Lease>> answer_;
  std::future<absl::StatusOr<v1::Lease>> future_ = answer_.get_future();
};

// The clock stands still: only what happens answers a call, not the time that passes.
TEST_F(MasterHostTest, ACallForALeaseWaitsUntilThereIsOneAndUntilTheJobEnds) {
  const absl::StatusOr<v1::RegisterReply> me = Ask<v1::RegisterReply>(Worker());
  ASSERT_TRUE(me.ok()) << me.status();
  EXPECT_EQ(LeaseCall(master_.get(), *me, 0).Await().state(), v1::Lease::WAIT)
      << "a client that does not wait";
  LeaseCall call(master_.get(), *me, 60);
  EXPECT_FALSE(call.answered());
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  const v1::Lease lease = call.Await();
  EXPECT_EQ(lease.state(), v1::Lease::GRANTED) << "both servers know the worker";
  EXPECT_EQ(lease.total_samples(), kSamples);

  const absl::StatusOr<v1::RegisterReply> newcomer = Ask<v1::RegisterReply>(Worker());
  ASSERT_TRUE(newcomer.ok()) << newcomer.status();
  LeaseCall waits(master_.get(), *newcomer, 60);
  EXPECT_FALSE(waits.answered()) << "all samples are assigned";
  Stop("enough");
  EXPECT_EQ(waits.Await().state(), v1::Lease::FINISHED);
}

TEST_F(MasterHostTest, ACallForALeaseIsAnsweredWhenItsTimeIsOverAndWhenTheHostEnds) {
  const absl::StatusOr<v1::RegisterReply> me = Ask<v1::RegisterReply>(Worker());
  ASSERT_TRUE(me.ok()) << me.status();
  LeaseCall call(master_.get(), *me, 60);
  clock_.Advance(JobMembers::kLeaseWaitSeconds);
  EXPECT_EQ(call.Await().state(), v1::Lease::WAIT);
  LeaseCall last(master_.get(), *me, 60);
  master_.reset();
  EXPECT_EQ(last.Await().state(), v1::Lease::WAIT);
}

class MasterHostBestTest : public MasterHostTest {
 protected:
  explicit MasterHostBestTest(const std::string& more = "")
      : MasterHostTest("evaluation { keep_best: true }" + more) {}
  // Called when the report of the final evaluation has arrived.
  virtual void AfterReport(const v1::EvaluationReport&) {}

  std::string best_file() const { return directory_ + "/out/model-best.safetensors"; }

  // Trains to the end, and has the final evaluation scored, whose weights are all `value`. How it was kept.
  absl::Status TrainAndKeep(float value) {
    EXPECT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
    v1::RegisterRequest request = Worker();
    const absl::StatusOr<v1::RegisterReply> worker = Ask<v1::RegisterReply>(request);
    request.set_role(v1::EVALUATOR);
    const absl::StatusOr<v1::RegisterReply> evaluator = Ask<v1::RegisterReply>(request);
    EXPECT_TRUE(worker.ok() && evaluator.ok()) << worker.status() << evaluator.status();
    Train(*worker);
    v1::GetEvaluationRequest ask;
    ask.set_incarnation(evaluator->incarnation());
    v1::EvaluationReport report;
    for (v1::GetEvaluationReply task; !task.final(); std::this_thread::yield()) {
      task = *Ask<v1::GetEvaluationReply>(ask);
      report.set_evaluation(task.evaluation());
    }
    report.set_incarnation(evaluator->incarnation());
    report.set_samples(10);
    report.set_correct(9);
    report.set_loss_sum(5);
    *report.mutable_statistics() = statistics_;
    EXPECT_TRUE(Ask<v1::ReportEvaluationReply>(report)->keep());
    AfterReport(report);
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
    EXPECT_TRUE(Ask<v1::LeaveReply>(leave).ok());
    EXPECT_TRUE(master_->Wait().ok());
    return status;
  }

  nlohmann::json Summary() const {
    std::ifstream file(directory_ + "/out/summary.json");
    return nlohmann::json::parse(file);
  }

  google::protobuf::RepeatedPtrField<v1::Statistic> statistics_;  // in the report
};

class MasterHostStatisticsTest : public MasterHostBestTest {
 protected:
  MasterHostStatisticsTest() : MasterHostBestTest("model { layers { batch_norm {} } }") { SetMean(1); }

  void SetMean(float value) {
    statistics_.Clear();
    v1::Statistic* const mean = statistics_.Add();
    mean->set_name("batch_norm1.running_mean");
    for (int channel = 0; channel < 10; ++channel) mean->add_values(value);
  }
  void AfterReport(const v1::EvaluationReport& report) override {
    v1::EvaluationReport again = report;
    SetMean(2);
    *again.mutable_statistics() = statistics_;
    for (const uint64_t evaluation : {report.evaluation(), report.evaluation() - 1}) {
      again.set_evaluation(evaluation);
      EXPECT_TRUE(Ask<v1::ReportEvaluationReply>(again).ok());
    }
    again.mutable_statistics(0)->set_name("batch_norm1.weight");
    EXPECT_TRUE(absl::IsInvalidArgument(Ask<v1::ReportEvaluationReply>(again).status()));
  }
};

TEST_F(MasterHostStatisticsTest, LateAndRepeatedReportsDoNotChangeThoseOfTheFinalWeights) {
  ASSERT_TRUE(TrainAndKeep(0.25f).ok());
  const auto file = SafetensorsFile::Open(directory_ + "/out/model.safetensors");
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->tensors().size(), layout_.tensors().size() + 1);
  std::vector<float> mean(10);
  ASSERT_TRUE((*file)->Read("batch_norm1.running_mean", 0, 10, mean.data()).ok());
  EXPECT_EQ(mean, std::vector<float>(10, 1));
}

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

// A directory is in the place of the file, so that writing fails, as on a full disk.
TEST_F(MasterHostBestTest, WhereTheyCannotBeWrittenTheOldOnesStayAndTheJobGoesOn) {
  std::filesystem::create_directories(best_file());
  std::ofstream(best_file() + "/file") << "those before";
  const absl::Status kept = TrainAndKeep(0.25f);
  EXPECT_FALSE(kept.ok());
  EXPECT_THAT(std::string(kept.message()), HasSubstr(best_file()));
  std::ifstream file(best_file() + "/file");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), "those before");
  const nlohmann::json summary = Summary();
  EXPECT_EQ(summary["phase"], "DONE");
  EXPECT_TRUE(summary["best_weights"].is_null());
  EXPECT_EQ(summary["best_test_loss"], 0.5);
  EXPECT_THAT(master_->Status().events(), testing::Contains(HasSubstr("were not saved: cannot write")));
}

TEST_F(MasterHostTest, StopBeforeAllServersHaveComeEndsTheJob) {
  Stop("changed my mind");
  master_->Wait().IgnoreError();
  EXPECT_TRUE(hosts_[0]->WaitForStop(60));
  EXPECT_THAT(master_->Status().reason(), HasSubstr("changed my mind"));
}

TEST_F(MasterHostTest, ServerThatIsToldToEndEndsTheJob) {
  v1::RegisterServerRequest request = Server1();
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(request).ok());
  request.set_leaving(true);
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(request).ok());
  EXPECT_TRUE(master_->Wait().ok());
  EXPECT_EQ(master_->Status().phase(), v1::JobStatus::STOPPED);
  EXPECT_THAT(master_->Status().reason(), HasSubstr("server 1 is shutting down"));
  EXPECT_TRUE(hosts_[1]->WaitForStop(60));
}

TEST_F(MasterHostTest, ServerThatIsGoneFailsTheJobAfterTheStatedTimeAndIsNamed) {
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  listeners_[1].Shutdown(0);
  const double begin = clock_.Now();
  while (!master_->WaitFor(0.01)) clock_.Advance(1);
  EXPECT_GE(clock_.Now(), begin + 60);
  const absl::Status status = master_->Wait();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("server 1 at " + listeners_[1].address() + " was unreachable for 60 s"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("with --resume to continue from the last checkpoint"));
}

}  // namespace
}  // namespace catchment
