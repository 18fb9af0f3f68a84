#include "server/master/course.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace catchment {
namespace {

using ::testing::HasSubstr;
using Stage = Course::Stage;

class CourseTest : public ::testing::Test {
 protected:
  void Settle() {
    while (course_.Step(facts_, now_)) {
    }
  }
  void GoTo(Stage stage) {
    facts_.workers = 2;
    Settle();
    if (stage == Stage::kTraining) return;
    facts_.budget_done = true;
    Settle();
    if (stage == Stage::kLeaving) return;
    facts_.workers = 0;
    Settle();
    if (stage == Stage::kSettling) return;
    facts_.settled = true;
    facts_.highest_version = 77;
    Settle();
  }

  Course course_{2, 5.0};
  Course::Facts facts_;
  double now_ = 100;
};

TEST_F(CourseTest, WaitsForTheFirstWorkersOnce) {
  facts_.workers = 1;
  Settle();
  EXPECT_EQ(course_.phase(), v1::JobStatus::WAITING);
  EXPECT_EQ(course_.reason(), "waiting for workers: 1 of 2 are here");
  facts_.workers = 2;
  Settle();
  EXPECT_EQ(course_.phase(), v1::JobStatus::TRAINING);
  facts_.workers = 1;
  Settle();
  EXPECT_EQ(course_.phase(), v1::JobStatus::TRAINING);
}

TEST_F(CourseTest, WaitsForNewWorkersWhenAllAreGone) {
  GoTo(Stage::kTraining);
  facts_.workers = 0;
  Settle();
  EXPECT_EQ(course_.phase(), v1::JobStatus::WAITING);
  EXPECT_THAT(course_.reason(), HasSubstr("no workers are left"));
  facts_.workers = 1;
  Settle();
  EXPECT_EQ(course_.phase(), v1::JobStatus::TRAINING);
}

TEST_F(CourseTest, CountsTheTimeOfTrainingAlone) {
  Settle();
  now_ = 110;
  GoTo(Stage::kTraining);
  now_ = 130;
  EXPECT_DOUBLE_EQ(course_.trained_seconds(now_), 25) << "5 before, 20 now";
  facts_.workers = 0;
  Settle();
  now_ = 200;
  EXPECT_DOUBLE_EQ(course_.trained_seconds(now_), 25);
}

TEST_F(CourseTest, EndsWithACheckpointOfTheHighestVersion) {
  GoTo(Stage::kLeaving);
  EXPECT_EQ(course_.stage(), Stage::kLeaving) << "workers are still there";
  EXPECT_FALSE(course_.open());
  EXPECT_FALSE(course_.cut_short());
  facts_.workers = 0;
  Settle();
  EXPECT_EQ(course_.stage(), Stage::kSettling);
  EXPECT_EQ(course_.final_checkpoint(), 0u);
  GoTo(Stage::kSaving);
  EXPECT_EQ(course_.stage(), Stage::kSaving);
  EXPECT_EQ(course_.final_checkpoint(), 77u);
  facts_.saved = true;
  Settle();
  EXPECT_EQ(course_.phase(), v1::JobStatus::DONE);
}

// Named again, it would be taken for saved, and what was trained since would be in no checkpoint.
TEST_F(CourseTest, DoesNotUseTheNumberOfTheCheckpointThatItContinuedFromAgain) {
  facts_.earlier_checkpoint = 80;
  GoTo(Stage::kSaving);
  EXPECT_EQ(course_.final_checkpoint(), 81u);
}

TEST_F(CourseTest, NeedsNoNewCheckpointWhereNothingWasTrained) {
  facts_.earlier_checkpoint = 80;
  course_.RequestStop("");
  facts_.settled = true;
  Settle();
  EXPECT_EQ(course_.final_checkpoint(), 80u);
}

TEST_F(CourseTest, GoodEnoughIsDoneBeforeTheBudgetIs) {
  GoTo(Stage::kTraining);
  course_.EndEarly("good enough");
  Settle();
  EXPECT_EQ(course_.stage(), Stage::kLeaving);
  EXPECT_TRUE(course_.cut_short()) << "workers are told";
  EXPECT_EQ(course_.reason(), "done (good enough): waiting for 2 workers to leave");
  course_.RequestStop("too late");
  GoTo(Stage::kSaving);
  facts_.saved = true;
  Settle();
  EXPECT_EQ(course_.phase(), v1::JobStatus::DONE);
  EXPECT_EQ(course_.reason(), "");
  EXPECT_EQ(course_.ended_early(), "good enough");
}

TEST_F(CourseTest, NothingEndsEarlyThatIsAtItsEnd) {
  GoTo(Stage::kTraining);
  course_.EndEarly("good enough");
  facts_.budget_done = true;
  Settle();
  EXPECT_EQ(course_.stage(), Stage::kLeaving);
  EXPECT_EQ(course_.ended_early(), "") << "with the last evaluation the budget was spent, too";
  course_.EndEarly("good enough");
  EXPECT_EQ(course_.ended_early(), "");
}

TEST_F(CourseTest, AStopThatWasAskedForIsOne) {
  GoTo(Stage::kTraining);
  course_.RequestStop("enough of it");
  course_.EndEarly("good enough");
  Settle();
  EXPECT_EQ(course_.reason(), "stopping (enough of it): waiting for 2 workers to leave");
  EXPECT_EQ(course_.ended_early(), "");
}

TEST_F(CourseTest, ServersEndOnlyAfterTheOutputsAreWritten) {
  GoTo(Stage::kSaving);
  facts_.saved = true;
  Settle();
  now_ += 1000;
  Settle();
  EXPECT_EQ(course_.stage(), Stage::kEnded);
  course_.OutputsWritten();
  Settle();
  EXPECT_EQ(course_.stage(), Stage::kOver);
}

TEST_F(CourseTest, ServersWaitForWhoWatchesTheStatus) {
  GoTo(Stage::kSaving);
  facts_.saved = true;
  facts_.watched = true;
  course_.OutputsWritten();
  Settle();
  EXPECT_EQ(course_.stage(), Stage::kEnded);
  facts_.watched = false;
  Settle();
  EXPECT_EQ(course_.stage(), Stage::kOver);
}

TEST_F(CourseTest, ServersWaitForMembersToHearOfTheEndButNotForever) {
  facts_.evaluators = 1;
  facts_.evaluated = true;
  GoTo(Stage::kSaving);
  facts_.saved = true;
  course_.OutputsWritten();
  Settle();
  EXPECT_EQ(course_.stage(), Stage::kEnded);
  now_ += Course::kLeaveSeconds;
  Settle();
  EXPECT_EQ(course_.stage(), Stage::kOver);
}

TEST_F(CourseTest, WaitsForTheFinalEvaluationWhileThereIsAnEvaluator) {
  facts_.evaluators = 1;
  GoTo(Stage::kSaving);
  facts_.saved = true;
  Settle();
  EXPECT_EQ(course_.stage(), Stage::kEvaluating);
  EXPECT_EQ(course_.phase(), v1::JobStatus::FINISHING);
  facts_.evaluators = 0;
  Settle();
  EXPECT_EQ(course_.phase(), v1::JobStatus::DONE);
}

TEST_F(CourseTest, AStopCutsTheFinalEvaluationShort) {
  facts_.evaluators = 1;
  GoTo(Stage::kSaving);
  facts_.saved = true;
  Settle();
  course_.RequestStop("enough");
  Settle();
  EXPECT_EQ(course_.phase(), v1::JobStatus::DONE) << "its budget was spent";
}

TEST_F(CourseTest, AStopSavesACheckpointAndThenEnds) {
  facts_.evaluators = 1;
  GoTo(Stage::kTraining);
  course_.RequestStop("enough");
  course_.RequestStop("again");
  Settle();
  EXPECT_EQ(course_.phase(), v1::JobStatus::FINISHING);
  EXPECT_TRUE(course_.cut_short());
  EXPECT_THAT(course_.reason(), HasSubstr("enough"));
  EXPECT_FALSE(course_.overdue(now_, 10));
  EXPECT_TRUE(course_.overdue(now_ + 10, 10));
  EXPECT_FALSE(course_.overdue(now_ + 10, 11));
  now_ += 8;
  facts_.bytes_pushed = 1000;
  Settle();
  EXPECT_FALSE(course_.overdue(now_ + 9, 10)) << "a push is on its way";
  EXPECT_TRUE(course_.overdue(now_ + 10, 10));
  facts_.workers = 0;
  facts_.settled = true;
  Settle();
  EXPECT_EQ(course_.final_checkpoint(), 1u) << "of version 0, but 0 means none";
  facts_.saved = true;
  Settle();
  EXPECT_EQ(course_.phase(), v1::JobStatus::STOPPED);
  EXPECT_EQ(course_.reason(), "enough");
}

TEST_F(CourseTest, AStopEndsAJobThatNeverBegan) {
  course_.RequestStop("");
  facts_.settled = true;
  facts_.saved = true;
  Settle();
  EXPECT_EQ(course_.phase(), v1::JobStatus::STOPPED);
}

TEST_F(CourseTest, FailsWhenTheLastCheckpointKeepsFailing) {
  GoTo(Stage::kSaving);
  facts_.save_error = "server 1: disk full";
  Settle();
  EXPECT_THAT(course_.reason(), HasSubstr("disk full"));
  now_ += Course::kSaveSeconds / 2;
  facts_.save_error = "";
  Settle();
  facts_.save_error = "server 1: disk full";
  now_ += Course::kSaveSeconds * 0.9;
  Settle();
  EXPECT_EQ(course_.phase(), v1::JobStatus::FINISHING) << "it did not fail all the time";
  now_ += Course::kSaveSeconds;
  Settle();
  EXPECT_EQ(course_.phase(), v1::JobStatus::FAILED);
  EXPECT_THAT(course_.reason(), HasSubstr("disk full"));
}

TEST_F(CourseTest, AFailureIsFinal) {
  GoTo(Stage::kTraining);
  course_.Fail("broken", now_);
  course_.Fail("more", now_);
  course_.RequestStop("stop");
  Settle();
  EXPECT_EQ(course_.phase(), v1::JobStatus::FAILED);
  EXPECT_EQ(course_.reason(), "broken");
  EXPECT_TRUE(course_.cut_short());
}

}  // namespace
}  // namespace catchment
