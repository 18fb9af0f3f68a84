// The members of a run: processes of other runs and releases are refused, and restarted servers are detected.
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/manifest.h"
#include "common/wire/protocol.h"
#include "tests/server/host/master_host_fixture.h"

namespace catchment {
namespace {

using testing::HasSubstr;

// Without a directory for checkpoints there is nothing that a server could begin again from.
class MasterHostWithoutCheckpointsTest : public MasterHostTest {
 protected:
  MasterHostWithoutCheckpointsTest() : MasterHostTest("", /*keeps=*/false) {}
};

TEST_F(MasterHostWithoutCheckpointsTest, ServersOfAnotherReleaseOrRunAreRefused) {
  v1::RegisterServerRequest old = Server1();
  old.set_protocol_version(1);
  old.set_build("0.0.9");
  absl::Status status = Ask<v1::RegisterServerReply>(old).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr(absl::StrCat("speaks protocol version 1 (Catchment 0.0.9), this master ",
                                     kProtocolVersion, " (Catchment ")));
  v1::RegisterServerRequest other = Server1();
  other.mutable_run()->set_id(0xb2);
  other.mutable_run()->set_job("old");
  other.mutable_run()->set_master("there:7000");
  status = Ask<v1::RegisterServerReply>(other).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(status.message()),
            "server 1 at " + listeners_[1].address() +
                " belongs to run 00000000000000b2 of job 'old' (master at there:7000), "
                "but this master started run 00000000000000a1 of job '" +
                job_.name() + "' (master at " + listeners_[0].address() + "): the server exits; restart it");
  v1::RegisterServerRequest resumed = Server1();
  resumed.set_resumed_checkpoint(7);
  EXPECT_THAT(std::string(Ask<v1::RegisterServerReply>(resumed).status().message()),
              HasSubstr("server 1 starts from checkpoint 7, the master with 0"));
  const absl::StatusOr<v1::RegisterServerReply> reply = Ask<v1::RegisterServerReply>(Server1());
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->run_id(), kRunId);
  EXPECT_FALSE(reply->go_back());
}

// It may be meant for a run whose master was killed, and whose address this one has.
TEST_F(MasterHostTest, AStopThatIsMeantForAnotherRunIsRefused) {
  EXPECT_EQ(master_->Status().run_id(), kRunId);
  v1::StopRequest request;
  request.set_run_id(0xb2);
  EXPECT_EQ(
      Ask<v1::StopReply>(request).status(),
      absl::FailedPreconditionError("the stop is meant for run 00000000000000b2, but this is the master "
                                    "of run 00000000000000a1, job \"" +
                                    job_.name() + "\""));
  EXPECT_EQ(master_->Status().reason(), "waiting for servers: 1 of 2 have registered");
  request.set_run_id(kRunId);
  EXPECT_TRUE(Ask<v1::StopReply>(request).ok());
  EXPECT_THAT(master_->Status().reason(), HasSubstr("a stop was requested"));
}

TEST_F(MasterHostTest, AStopThatNamesNoRunIsMeantForAny) {
  EXPECT_TRUE(Ask<v1::StopReply>(v1::StopRequest()).ok());
  EXPECT_TRUE(master_->Wait().ok());
}

TEST_F(MasterHostTest, ServersThatBeganOtherwiseAreAskedToBeginAgain) {
  v1::RegisterServerRequest of_another_run = Server1();
  of_another_run.mutable_run()->set_id(0xb2);
  v1::RegisterServerRequest resumed = Server1();
  resumed.set_resumed_checkpoint(7);
  for (const v1::RegisterServerRequest& request : {of_another_run, resumed}) {
    const absl::StatusOr<v1::RegisterServerReply> reply = Ask<v1::RegisterServerReply>(request);
    ASSERT_TRUE(reply.ok()) << reply.status();
    EXPECT_TRUE(reply->go_back());
    EXPECT_EQ(reply->checkpoint(), 0u);
    EXPECT_EQ(master_->Status().servers(1).address(), "") << "it is not registered";
  }
  v1::RegisterServerRequest of_another_job = of_another_run;
  of_another_job.set_job_fingerprint(1);
  EXPECT_EQ(Ask<v1::RegisterServerReply>(of_another_job).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST_F(MasterHostTest, WorkersOfAnotherReleaseOrRunAreRefused) {
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  EXPECT_EQ(Ask<v1::GetJobReply>(v1::GetJobRequest())->run_id(), kRunId);
  EXPECT_EQ(Ask<v1::GetJobReply>(v1::GetJobRequest())->protocol_version(), kProtocolVersion);
  v1::RegisterRequest old = Worker();
  old.set_protocol_version(1);
  EXPECT_EQ(Ask<v1::RegisterReply>(old).status().code(), absl::StatusCode::kFailedPrecondition);
  v1::RegisterRequest other = Worker();
  other.set_run_id(kRunId + 1);
  const absl::Status status = Ask<v1::RegisterReply>(other).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("has the job of run 00000000000000a2, but this master started run 00000000000000a1"));
  const absl::StatusOr<v1::RegisterReply> me = Ask<v1::RegisterReply>(Worker());
  ASSERT_TRUE(me.ok()) << me.status();
  EXPECT_EQ(me->incarnation(), kFirstIncarnation);
}

TEST_F(MasterHostTest, ServerThatIsRestartedBeforeTrainingTakesThePlaceOfTheOldOne) {
  v1::RegisterServerRequest before = Server1();
  before.set_server_instance(9);
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(before).ok());
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  EXPECT_THAT(master_->Status().events(), testing::Contains("server 1 at " + listeners_[1].address() +
                                                            " was restarted before training began"));
  const absl::StatusOr<v1::RegisterReply> me = Ask<v1::RegisterReply>(Worker());
  ASSERT_TRUE(me.ok()) << me.status();
  ASSERT_NO_FATAL_FAILURE(Train(*me));
  EXPECT_TRUE(master_->Wait().ok());
}

TEST_F(MasterHostWithoutCheckpointsTest, ServerThatIsRestartedDuringTrainingFailsTheJobAtOnce) {
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  ASSERT_TRUE(Ask<v1::RegisterReply>(Worker()).ok());
  v1::RegisterServerRequest again = Server1();
  again.set_server_instance(9);
  const absl::Status status = Ask<v1::RegisterServerReply>(again).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  const std::string reason = "server 1 at " + listeners_[1].address() + " was restarted during the job";
  EXPECT_THAT(std::string(status.message()), HasSubstr(reason));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("no checkpoint is complete yet: start all servers again"));
  ExpectFailedFor(reason);
}

TEST_F(MasterHostWithoutCheckpointsTest, ServerThatIsRestartedIsNoticedWhenItIsCommanded) {
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  ASSERT_TRUE(Ask<v1::RegisterReply>(Worker()).ok());
  RestartServer1(/*instance=*/9);
  ExpectFailedFor("server 1 at " + listeners_[1].address() + " was restarted during the job");
  EXPECT_EQ(claims_[1]->run().id(), 0u) << "the new process is not drawn into the job";
}

TEST_F(MasterHostTest, ServerThatIsRestartedDuringTrainingEndsTheRun) {
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  ASSERT_TRUE(Ask<v1::RegisterReply>(Worker()).ok());
  EXPECT_FALSE(master_->loss().has_value());
  v1::RegisterServerRequest again = Server1();
  again.set_server_instance(9);
  EXPECT_EQ(Ask<v1::RegisterServerReply>(again).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(master_->Wait().ok());
  const std::optional<RunLoss> loss = master_->loss();
  ASSERT_TRUE(loss.has_value());
  EXPECT_EQ(loss->process, "server 1");
  EXPECT_EQ(loss->workers, 1);
  EXPECT_GT(loss->next_incarnation, kFirstIncarnation);
  EXPECT_EQ(Ask<v1::RegisterServerReply>(again).status().code(), absl::StatusCode::kUnavailable)
      << "the next run has not begun";
}

TEST_F(MasterHostTest, ServerThatIsRestartedDuringTrainingEndsTheRunWhenItIsCommanded) {
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  ASSERT_TRUE(Ask<v1::RegisterReply>(Worker()).ok());
  RestartServer1(/*instance=*/9);
  EXPECT_TRUE(master_->Wait().ok());
  ASSERT_TRUE(master_->loss().has_value());
  EXPECT_EQ(master_->loss()->process, "server 1");
  EXPECT_EQ(claims_[1]->run().id(), 0u) << "the new process is not drawn into the job";
}

TEST_F(MasterHostTest, ServerThatIsRestartedWhileTheJobIsStoppedFailsIt) {
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  ASSERT_TRUE(Ask<v1::RegisterReply>(Worker()).ok());
  Stop("enough");
  v1::RegisterServerRequest again = Server1();
  again.set_server_instance(9);
  EXPECT_EQ(Ask<v1::RegisterServerReply>(again).status().code(), absl::StatusCode::kFailedPrecondition);
  ExpectFailedFor("server 1 at " + listeners_[1].address() + " was restarted during the job");
}

TEST_F(MasterHostTest, RecordSaysWhetherTheJobHasEnded) {
  const std::string checkpoints = directory_ + "/checkpoints";
  absl::StatusOr<v1::RunRecord> record = ReadRunRecord(checkpoints);
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_EQ(record->run_id(), kRunId);
  EXPECT_EQ(record->job_fingerprint(), JobFingerprint(job_));
  EXPECT_FALSE(record->ended());
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  const absl::StatusOr<v1::RegisterReply> me = Ask<v1::RegisterReply>(Worker());
  ASSERT_TRUE(me.ok()) << me.status();
  ASSERT_NO_FATAL_FAILURE(Train(*me));
  EXPECT_TRUE(master_->Wait().ok());
  record = ReadRunRecord(checkpoints);
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_TRUE(record->ended());
}

// A server that was lost and does not come back: whoever starts the processes again continues the job.
TEST_F(MasterHostTest, RecordOfAJobThatLostAServerForGoodStaysOpen) {
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  listeners_[1].Shutdown(0);
  // Only time in which the master has called it counts.
  while (!master_->WaitFor(0.01)) clock_.Advance(1);
  EXPECT_FALSE(master_->Wait().ok());
  const absl::StatusOr<v1::RunRecord> record = ReadRunRecord(directory_ + "/checkpoints");
  ASSERT_TRUE(record.ok()) << record.status();
  EXPECT_FALSE(record->ended());
}

TEST_F(MasterHostTest, ServerOfAnotherJobFailsTheJobNamingBoth) {
  v1::Run other;
  other.set_id(0xb2);
  other.set_job("first");
  other.set_master("there:7000");
  ASSERT_TRUE(claims_[1]->Claim(other).ok());
  ASSERT_TRUE(Ask<v1::RegisterServerReply>(Server1()).ok());
  ExpectFailedFor("server 1 at " + listeners_[1].address() +
                  " refuses this job: this server belongs to run 00000000000000b2 of job 'first' (master at "
                  "there:7000), and refuses run 00000000000000a1 of job '" +
                  job_.name() + "'");
}

}  // namespace
}  // namespace catchment
