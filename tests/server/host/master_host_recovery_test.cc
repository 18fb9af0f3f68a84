// A run that recovers from a loss: what the master counts, reports and waits for.
#include <filesystem>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "tests/server/host/master_host_fixture.h"

namespace catchment {
namespace {

using testing::Contains;

class MasterHostRecoveryTest : public MasterHostTest {
 protected:
  // Begins another run, after the master was lost, from the initial weights. `workers`: members when it was
  // lost.
  void Recover(int workers, int evaluators = 0) {
    master_.reset();
    MasterHost::Options options;
    options.job = job_;
    options.num_servers = 2;
    options.credentials = grpc::InsecureChannelCredentials();
    options.checkpoint_dir = directory_ + "/checkpoints";
    options.control_log = options_.control_log;
    options.run_id = kRunId;
    options.first_incarnation = 2 * kFirstIncarnation;
    options.record.set_recoveries(3);
    options.record.set_updates_computed_again(100);
    options.loss = RunLoss{.process = "the master", .workers = workers, .evaluators = evaluators};
    master_ = *MasterHost::Create(options, &layout_, hosts_[0].get(), &clock_, v1::MasterState());
    master_->SetAddress(listeners_[0].address());
  }

  // Awaits the final evaluation, for which there is no evaluator, and scores it by one that registers then.
  void ScoreByOneThatComesLate() {
    const auto reason = [this] { return master_->Status().reason(); };
    while (reason().find("no evaluator is there yet") == std::string::npos) std::this_thread::yield();
    v1::RegisterRequest request = Worker();
    request.set_role(v1::EVALUATOR);
    const absl::StatusOr<v1::RegisterReply> evaluator = Ask<v1::RegisterReply>(request);
    ASSERT_TRUE(evaluator.ok()) << evaluator.status();
    clock_.Advance(1);
    v1::GetEvaluationRequest ask;
    ask.set_incarnation(evaluator->incarnation());
    const absl::StatusOr<v1::GetEvaluationReply> task = Ask<v1::GetEvaluationReply>(ask);
    ASSERT_TRUE(task.ok()) << task.status();
    EXPECT_TRUE(task->final());
    v1::EvaluationReport report;
    report.set_incarnation(evaluator->incarnation());
    report.set_evaluation(task->evaluation());
    report.set_samples(10);
    report.set_correct(9);
    report.set_loss_sum(5);
    ASSERT_TRUE(Ask<v1::ReportEvaluationReply>(report).ok());
    EXPECT_EQ(master_->Status().phase(), v1::JobStatus::DONE);
    EXPECT_EQ(master_->Status().test_samples(), 10u);
  }

  // Returns the request of a server that belonged to the run before and had come to `version`.
  v1::RegisterServerRequest FormerServer1(uint64_t version) const {
    v1::RegisterServerRequest request = Server1();
    request.mutable_run()->set_id(0xb2);
    request.set_version(version);
    return request;
  }
};

TEST_F(MasterHostRecoveryTest, UpdatesAreCountedByTheHighestVersionThatASurvivorReports) {
  Recover(/*workers=*/1);
  EXPECT_EQ(master_->Status().recoveries(), 3u);
  EXPECT_EQ(
      master_->Status().reason(),
      "the master was lost; going back to the initial weights: waiting for servers: 1 of 2 have registered");
  EXPECT_TRUE(Ask<v1::RegisterServerReply>(FormerServer1(11))->go_back());
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  v1::RegisterRequest worker = Worker();
  worker.set_version(12);
  const absl::StatusOr<v1::RegisterReply> me = Ask<v1::RegisterReply>(worker);
  ASSERT_TRUE(me.ok()) << me.status();
  ASSERT_NO_FATAL_FAILURE(Train(*me));
  EXPECT_TRUE(master_->Wait().ok());
  const v1::JobStatus status = master_->Status();
  EXPECT_EQ(status.phase(), v1::JobStatus::DONE);
  EXPECT_EQ(status.recoveries(), 3u);
  EXPECT_EQ(status.updates_computed_again(), 112u);
  EXPECT_THAT(status.events(), Contains("the master was lost at version 12; "
                                        "went back to the initial weights; 12 updates are computed again"));
  const absl::StatusOr<v1::RunRecord> record = ReadRunRecord(directory_ + "/checkpoints");
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->updates_computed_again(), 112u);
  EXPECT_EQ(record->recoveries(), 3u);
}

TEST_F(MasterHostRecoveryTest, JobFailsIfAServerDoesNotComeBackInTime) {
  Recover(/*workers=*/1);
  const double limit = job_.faults().connect_timeout_seconds();
  clock_.Advance(limit);
  EXPECT_FALSE(master_->WaitFor(0.5)) << "several rounds";
  EXPECT_EQ(master_->Status().phase(), v1::JobStatus::WAITING);
  v1::RegisterServerRequest ends = Server1();
  ends.set_failure("no checkpoint 5 in /there");
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Ask<v1::RegisterServerReply>(ends).ok());
  EXPECT_THAT(master_->Status().reason(),
              testing::HasSubstr("1 of 2 have registered; server 1 has ended: no checkpoint 5 in /there"));
  EXPECT_THAT(master_->Status().events(),
              testing::ElementsAre("server 1 has ended: no checkpoint 5 in /there"));
  clock_.Advance(1);
  ExpectFailedFor(absl::StrCat("the master was lost, and server 1 has not come back for ", limit,
                               " s (it ended: no checkpoint 5 in /there); start all servers again with "
                               "--resume to continue from the last checkpoint"));
  EXPECT_FALSE(ReadRunRecord(directory_ + "/checkpoints")->ended()) << "a restarted master continues the job";
}

TEST_F(MasterHostRecoveryTest, RecordSaysHowTheJobEndedAndWhoKnows) {
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  v1::RegisterRequest evaluator = Worker();
  evaluator.set_role(v1::EVALUATOR);
  const absl::StatusOr<v1::RegisterReply> scores = Ask<v1::RegisterReply>(evaluator);
  ASSERT_TRUE(scores.ok()) << scores.status();
  const auto evaluators = [&] { return ReadRunRecord(directory_ + "/checkpoints")->evaluators(); };
  while (evaluators() != 1) std::this_thread::yield();
  v1::LeaveRequest leave;
  leave.set_role(v1::EVALUATOR);
  leave.set_incarnation(scores->incarnation());
  EXPECT_TRUE(Ask<v1::LeaveReply>(leave).ok());
  while (evaluators() != 0) std::this_thread::yield();
  Stop("enough");
  EXPECT_TRUE(master_->Wait().ok());
  const absl::StatusOr<v1::RunRecord> record = ReadRunRecord(directory_ + "/checkpoints");
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_TRUE(record->ended());
  EXPECT_EQ(record->phase(), "STOPPED");
  EXPECT_EQ(record->reason(), "enough");
  EXPECT_TRUE(record->told());
}

TEST_F(MasterHostRecoveryTest, FinalEvaluationWaitsForTheEvaluatorOfTheLostRun) {
  Recover(/*workers=*/1, /*evaluators=*/1);
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  const absl::StatusOr<v1::RegisterReply> me = Ask<v1::RegisterReply>(Worker());
  ASSERT_TRUE(me.ok()) << me.status();
  ASSERT_NO_FATAL_FAILURE(Train(*me));
  ASSERT_NO_FATAL_FAILURE(ScoreByOneThatComesLate());
}

// A short job is trained before an evaluator that was started with it has read its data.
TEST_F(MasterHostRecoveryTest, FinalEvaluationWaitsForAnEvaluatorThatIsBeingStarted) {
  options_.evaluators = 1;
  master_.reset();
  master_ = *MasterHost::Create(options_, &layout_, hosts_[0].get(), &clock_, std::nullopt);
  master_->SetAddress(listeners_[0].address());
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  const absl::StatusOr<v1::RegisterReply> me = Ask<v1::RegisterReply>(Worker());
  ASSERT_TRUE(me.ok()) << me.status();
  ASSERT_NO_FATAL_FAILURE(Train(*me));
  ASSERT_NO_FATAL_FAILURE(ScoreByOneThatComesLate());
}

// A process that takes the place of a server after the end is not needed, and is told so.
TEST_F(MasterHostRecoveryTest, ServerThatComesBackAfterTheEndIsToldOfIt) {
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  const absl::StatusOr<v1::RegisterReply> me = Ask<v1::RegisterReply>(Worker());
  ASSERT_TRUE(me.ok()) << me.status();
  v1::GetStatusRequest watch;
  watch.set_again_in_seconds(60);
  ASSERT_TRUE(Ask<v1::JobStatus>(watch).ok());
  ASSERT_NO_FATAL_FAILURE(Train(*me));
  while (master_->Status().phase() != v1::JobStatus::DONE) std::this_thread::yield();
  v1::RegisterServerRequest again = Server1();
  again.set_server_instance(kInstance + 7);
  const absl::StatusOr<v1::RegisterServerReply> reply = Ask<v1::RegisterServerReply>(again);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->ended(), "the job is DONE");
  clock_.Advance(1000);
  EXPECT_TRUE(master_->Wait().ok());
}

// A directory is in the place of the file, so that writing fails, as on a full disk.
TEST_F(MasterHostRecoveryTest, RecordIsWrittenLaterAfterAnError) {
  const std::string directory = directory_ + "/checkpoints", file = directory + "/run.textproto";
  const auto break_disk = [&] {
    std::filesystem::remove(file);
    std::filesystem::create_directories(file + "/full");
  };
  const auto repair_disk = [&] {
    std::filesystem::remove_all(file);
    clock_.Advance(10);
  };
  const auto written = [&](const auto& is_wanted) {
    absl::StatusOr<v1::RunRecord> record = ReadRunRecord(directory);
    while (!record.ok() || !is_wanted(*record)) {
      std::this_thread::yield();
      record = ReadRunRecord(directory);
    }
    return true;
  };
  break_disk();
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  const absl::StatusOr<v1::RegisterReply> me = Ask<v1::RegisterReply>(Worker());
  ASSERT_TRUE(me.ok()) << me.status();
  while (master_->Status().phase() != v1::JobStatus::TRAINING) std::this_thread::yield();
  EXPECT_FALSE(master_->WaitFor(0.5)) << "several rounds";
  repair_disk();
  EXPECT_TRUE(written([](const v1::RunRecord& record) { return record.servers_size() == 2; }));

  break_disk();
  ASSERT_NO_FATAL_FAILURE(Train(*me));
  while (!std::filesystem::exists(directory_ + "/out/summary.json")) std::this_thread::yield();
  EXPECT_FALSE(master_->WaitFor(0.5)) << "a master that is started again would continue the job";
  repair_disk();
  EXPECT_TRUE(written([](const v1::RunRecord& record) { return record.ended(); }));
  EXPECT_TRUE(master_->Wait().ok());
}

TEST_F(MasterHostRecoveryTest, TrainingBeginsWithoutWorkersThatDoNotComeBackInTime) {
  Recover(/*workers=*/2);
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  const absl::StatusOr<v1::RegisterReply> me = Ask<v1::RegisterReply>(Worker());
  ASSERT_TRUE(me.ok()) << me.status();
  EXPECT_EQ(master_->Status().phase(), v1::JobStatus::WAITING);
  clock_.Advance(job_.faults().connect_timeout_seconds());
  const absl::StatusOr<v1::RegisterReply> again = Ask<v1::RegisterReply>(Worker());
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(master_->Status().phase(), v1::JobStatus::TRAINING);
}

}  // namespace
}  // namespace catchment
