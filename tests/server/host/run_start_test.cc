#include "server/host/run_start.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "common/checkpoint/manifest.h"
#include "common/job/job_text.h"
#include "tests/conformance/jobs.h"

namespace catchment {
namespace {

using testing::HasSubstr;

class RunStartTest : public testing::Test {
 protected:
  RunStartTest()
      : job_(PresetJob("sync", 1, "")),
        directory_(std::string(std::getenv("TEST_TMPDIR")) + "/" +
                   testing::UnitTest::GetInstance()->current_test_info()->name()) {}

  void WriteRecord(bool ended) const {
    v1::RunRecord record;
    record.set_job_fingerprint(JobFingerprint(job_));
    record.set_run_id(7);
    record.set_ended(ended);
    record.set_recoveries(2);
    ASSERT_TRUE(WriteRunRecord(directory_, record).ok());
  }

  v1::Job job_;
  const std::string directory_;
};

TEST_F(RunStartTest, JobWithoutARecordBeginsFromItsInitialWeights) {
  for (const std::string& directory : {std::string(), directory_}) {
    const absl::StatusOr<RunStart> start = StartJob(directory, job_, /*resume=*/false);
    ASSERT_TRUE(start.ok()) << start.status();
    EXPECT_FALSE(start->checkpoint.has_value());
    EXPECT_FALSE(start->loss.has_value());
    EXPECT_EQ(start->record.recoveries(), 0u);
  }
  EXPECT_EQ(StartJob(directory_, job_, /*resume=*/true).status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RunStartTest, MasterThatIsStartedAgainContinuesAJobThatHasNotEnded) {
  WriteRecord(/*ended=*/false);
  for (bool resume : {false, true}) {
    const absl::StatusOr<RunStart> start = StartJob(directory_, job_, resume);
    ASSERT_TRUE(start.ok()) << start.status();
    EXPECT_FALSE(start->checkpoint.has_value()) << "there is none yet";
    ASSERT_TRUE(start->loss.has_value());
    EXPECT_EQ(start->loss->process, "the master");
    EXPECT_EQ(start->record.recoveries(), 3u);
  }
}

TEST_F(RunStartTest, JobThatHasEndedAndAnotherJobAreNotContinued) {
  WriteRecord(/*ended=*/true);
  EXPECT_FALSE(StartJob(directory_, job_, /*resume=*/false)->loss.has_value());
  WriteRecord(/*ended=*/false);
  job_.set_seed(job_.seed() + 1);
  EXPECT_FALSE(StartJob(directory_, job_, /*resume=*/false)->loss.has_value());
}

TEST_F(RunStartTest, EndThatTheServersMayNotKnowIsFound) {
  v1::RunRecord record;
  record.set_job_fingerprint(JobFingerprint(job_));
  record.set_run_id(7);
  const auto found = [&] {
    EXPECT_TRUE(WriteRunRecord(directory_, record).ok());
    const absl::StatusOr<std::optional<v1::RunRecord>> end = UntoldEnd(directory_, job_);
    EXPECT_TRUE(end.ok()) << end.status();
    return end.ok() && end->has_value();
  };
  EXPECT_FALSE(found()) << "it has not ended";
  record.set_ended(true);
  EXPECT_FALSE(found()) << "by an earlier release";
  record.set_phase("STOPPED");
  EXPECT_TRUE(found());
  record.set_told(true);
  EXPECT_FALSE(found());
  record.set_told(false);
  job_.set_seed(job_.seed() + 1);
  EXPECT_FALSE(found()) << "another job";
  EXPECT_EQ(DescribeEnd("DONE", ""), "the job is DONE");
  EXPECT_EQ(DescribeEnd("STOPPED", "enough"), "the job is STOPPED: enough");
}

TEST_F(RunStartTest, IncompleteCheckpointsAreDeleted) {
  WriteRecord(/*ended=*/false);
  std::filesystem::create_directories(directory_ + "/checkpoint-5");
  ASSERT_TRUE(StartJob(directory_, job_, /*resume=*/false).ok());
  EXPECT_FALSE(std::filesystem::exists(directory_ + "/checkpoint-5"));
}

// A job whose only checkpoint is damaged must not lose what it has trained without a person's decision.
TEST_F(RunStartTest, DamagedCheckpointIsNotReplacedByTheInitialWeights) {
  WriteRecord(/*ended=*/false);
  std::filesystem::create_directories(directory_ + "/checkpoint-5");
  std::ofstream(directory_ + "/checkpoint-5/manifest.textproto") << "damaged";
  const absl::Status status = StartJob(directory_, job_, /*resume=*/false).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("skipped checkpoint 5"));
}

TEST_F(RunStartTest, DamagedRecordIsAnError) {
  WriteRecord(/*ended=*/false);
  std::ofstream(directory_ + "/run.textproto") << "damaged";
  EXPECT_THAT(std::string(StartJob(directory_, job_, /*resume=*/false).status().message()),
              HasSubstr("run.textproto"));
}

TEST(DescribeRecoveryTest, NamesTheLossAndWhatItCosts) {
  EXPECT_EQ(DescribeRecovery({.process = "server 1", .version = 5210}, 5000, 5003),
            "server 1 was lost at version 5,210; went back to checkpoint 5,000, of version 5,003; "
            "207 updates are computed again");
  EXPECT_EQ(DescribeRecovery({.process = "the master"}, 0, 0),
            "the master was lost; went back to the initial weights; 0 updates are computed again");
  EXPECT_EQ(UpdatesComputedAgain({.version = 7}, 9), 0u);
}

}  // namespace
}  // namespace catchment
