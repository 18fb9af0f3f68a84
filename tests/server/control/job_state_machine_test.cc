#include "server/control/job_state_machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace catchment {
namespace {

using ::testing::HasSubstr;
using State = JobStateMachine::State;

class JobStateMachineTest : public ::testing::Test {
 protected:
  void Settle() {
    while (state_machine_.Step(facts_, now_)) {
    }
  }
  void GoTo(State state) {
    facts_.workers = 2;
    Settle();
    if (state == State::kTraining) return;
    facts_.budget_done = true;
    Settle();
    if (state == State::kLeaving) return;
    facts_.workers = 0;
    Settle();
    if (state == State::kSettling) return;
    facts_.settled = true;
    facts_.highest_version = 77;
    Settle();
  }

  JobStateMachine state_machine_{2, 5.0};
  JobStateMachine::Facts facts_;
  double now_ = 100;
};

TEST_F(JobStateMachineTest, WaitsForTheFirstWorkersOnce) {
  facts_.workers = 1;
  Settle();
  EXPECT_EQ(state_machine_.phase(), v1::JobStatus::WAITING);
  EXPECT_EQ(state_machine_.reason(), "waiting for workers: 1 of 2 have registered");
  facts_.workers = 2;
  Settle();
  EXPECT_EQ(state_machine_.phase(), v1::JobStatus::TRAINING);
  facts_.workers = 1;
  Settle();
  EXPECT_EQ(state_machine_.phase(), v1::JobStatus::TRAINING);
}

// An evaluator pauses for up to five seconds between two calls.
TEST_F(JobStateMachineTest, FinalEvaluationWaitsForAnEvaluatorThatWasLost) {
  facts_.expected_evaluators = 1;
  facts_.evaluator_patience = 10;
  GoTo(State::kSaving);
  facts_.saved = true;
  Settle();
  EXPECT_EQ(state_machine_.state(), State::kEvaluating);
  EXPECT_EQ(state_machine_.reason(), "waiting for the final evaluation: no evaluator is there yet");
  now_ += 9;
  facts_.evaluators = 1;
  Settle();
  now_ += 100;
  Settle();
  EXPECT_EQ(state_machine_.state(), State::kEvaluating) << "it evaluates";
  EXPECT_EQ(state_machine_.reason(), "waiting for the final evaluation");
  facts_.evaluated = true;
  Settle();
  EXPECT_EQ(state_machine_.state(), State::kEnded);
}

TEST_F(JobStateMachineTest, FinalEvaluationWaitsForALimitedTime) {
  facts_.expected_evaluators = 1;
  facts_.evaluator_patience = 10;
  GoTo(State::kSaving);
  facts_.saved = true;
  Settle();
  now_ += 9.5;
  Settle();
  EXPECT_EQ(state_machine_.state(), State::kEvaluating);
  now_ += 0.5;
  Settle();
  EXPECT_EQ(state_machine_.state(), State::kEnded);
  EXPECT_EQ(state_machine_.phase(), v1::JobStatus::DONE);
}

TEST_F(JobStateMachineTest, BeginsAtTheGivenTimeWithTheWorkersThatHaveRegistered) {
  state_machine_.ExpectWorkers(3, now_ + 60);
  facts_.workers = 2;
  Settle();
  EXPECT_EQ(state_machine_.phase(), v1::JobStatus::WAITING);
  facts_.workers = 0;
  now_ += 60;
  Settle();
  EXPECT_EQ(state_machine_.phase(), v1::JobStatus::WAITING) << "there is none";
  facts_.workers = 1;
  Settle();
  EXPECT_EQ(state_machine_.phase(), v1::JobStatus::TRAINING);
}

TEST_F(JobStateMachineTest, WaitsForNewWorkersWhenAllAreGone) {
  GoTo(State::kTraining);
  facts_.workers = 0;
  Settle();
  EXPECT_EQ(state_machine_.phase(), v1::JobStatus::WAITING);
  EXPECT_THAT(state_machine_.reason(), HasSubstr("no worker is left"));
  facts_.workers = 1;
  Settle();
  EXPECT_EQ(state_machine_.phase(), v1::JobStatus::TRAINING);
}

TEST_F(JobStateMachineTest, CountsTheTimeOfTrainingAlone) {
  Settle();
  now_ = 110;
  GoTo(State::kTraining);
  now_ = 130;
  EXPECT_DOUBLE_EQ(state_machine_.trained_seconds(now_), 25) << "5 before, 20 now";
  facts_.workers = 0;
  Settle();
  now_ = 200;
  EXPECT_DOUBLE_EQ(state_machine_.trained_seconds(now_), 25);
}

TEST_F(JobStateMachineTest, EndsWithACheckpointOfTheHighestVersion) {
  GoTo(State::kLeaving);
  EXPECT_EQ(state_machine_.state(), State::kLeaving) << "workers are still there";
  EXPECT_FALSE(state_machine_.open());
  EXPECT_FALSE(state_machine_.cut_short());
  facts_.workers = 0;
  Settle();
  EXPECT_EQ(state_machine_.state(), State::kSettling);
  EXPECT_EQ(state_machine_.final_checkpoint(), 0u);
  GoTo(State::kSaving);
  EXPECT_EQ(state_machine_.state(), State::kSaving);
  EXPECT_EQ(state_machine_.final_checkpoint(), 77u);
  facts_.saved = true;
  Settle();
  EXPECT_EQ(state_machine_.phase(), v1::JobStatus::DONE);
}

// Named again, it would be taken for saved, and what was trained since would be in no checkpoint.
TEST_F(JobStateMachineTest, DoesNotUseTheNumberOfTheCheckpointThatItContinuedFromAgain) {
  facts_.earlier_checkpoint = 80;
  GoTo(State::kSaving);
  EXPECT_EQ(state_machine_.final_checkpoint(), 81u);
}

TEST_F(JobStateMachineTest, NeedsNoNewCheckpointWhereNothingWasTrained) {
  facts_.earlier_checkpoint = 80;
  state_machine_.RequestStop("");
  facts_.settled = true;
  Settle();
  EXPECT_EQ(state_machine_.final_checkpoint(), 80u);
}

TEST_F(JobStateMachineTest, StoppedNowItEndsInAnyStateAndWaitsForNothing) {
  for (const State state : {State::kWaiting, State::kTraining, State::kSaving}) {
    JobStateMachine machine(/*workers=*/2, /*trained_seconds=*/0);
    JobStateMachine::Facts facts;
    facts.workers = state == State::kWaiting ? 1 : 2;
    machine.Step(facts, 1);
    if (state == State::kSaving) {
      machine.RequestStop("in order");
      machine.Step(facts, 2);
      facts.workers = 0;
      facts.settled = true;
      while (machine.Step(facts, 3)) {
      }
    }
    ASSERT_EQ(machine.state(), state);
    machine.StopNow("at once", 4);
    EXPECT_EQ(machine.state(), State::kEnded);
    EXPECT_EQ(machine.phase(), v1::JobStatus::STOPPED);
    EXPECT_EQ(machine.reason(), "at once");
    machine.StopNow("again", 5);
    machine.Fail("late", 5);
    EXPECT_EQ(machine.reason(), "at once");
  }
}

TEST_F(JobStateMachineTest, GoodEnoughIsDoneBeforeTheBudgetIs) {
  GoTo(State::kTraining);
  state_machine_.EndEarly("good enough");
  Settle();
  EXPECT_EQ(state_machine_.state(), State::kLeaving);
  EXPECT_TRUE(state_machine_.cut_short()) << "workers must be notified";
  EXPECT_EQ(state_machine_.reason(), "done (good enough): waiting for 2 workers to leave");
  state_machine_.RequestStop("too late");
  GoTo(State::kSaving);
  facts_.saved = true;
  Settle();
  EXPECT_EQ(state_machine_.phase(), v1::JobStatus::DONE);
  EXPECT_EQ(state_machine_.reason(), "");
  EXPECT_EQ(state_machine_.ended_early(), "good enough");
}

TEST_F(JobStateMachineTest, NothingEndsEarlyThatIsAtItsEnd) {
  GoTo(State::kTraining);
  state_machine_.EndEarly("good enough");
  facts_.budget_done = true;
  Settle();
  EXPECT_EQ(state_machine_.state(), State::kLeaving);
  EXPECT_EQ(state_machine_.ended_early(), "") << "with the last evaluation the budget was spent, too";
  state_machine_.EndEarly("good enough");
  EXPECT_EQ(state_machine_.ended_early(), "");
}

TEST_F(JobStateMachineTest, AStopThatWasAskedForIsNotAnEarlyEnd) {
  GoTo(State::kTraining);
  state_machine_.RequestStop("enough of it");
  state_machine_.EndEarly("good enough");
  Settle();
  EXPECT_EQ(state_machine_.reason(), "stopping (enough of it): waiting for 2 workers to leave");
  EXPECT_EQ(state_machine_.ended_early(), "");
}

TEST_F(JobStateMachineTest, ServersEndOnlyAfterTheOutputsAreWritten) {
  GoTo(State::kSaving);
  facts_.saved = true;
  Settle();
  now_ += 1000;
  Settle();
  EXPECT_EQ(state_machine_.state(), State::kEnded);
  state_machine_.OutputsWritten();
  Settle();
  EXPECT_EQ(state_machine_.state(), State::kOver);
}

TEST_F(JobStateMachineTest, ServersWaitForWhoWatchesTheStatus) {
  GoTo(State::kSaving);
  facts_.saved = true;
  facts_.watched = true;
  state_machine_.OutputsWritten();
  Settle();
  EXPECT_EQ(state_machine_.state(), State::kEnded);
  facts_.watched = false;
  Settle();
  EXPECT_EQ(state_machine_.state(), State::kOver);
}

TEST_F(JobStateMachineTest, ServersWaitForMembersToHearOfTheEndButNotForever) {
  facts_.evaluators = 1;
  facts_.evaluated = true;
  GoTo(State::kSaving);
  facts_.saved = true;
  state_machine_.OutputsWritten();
  Settle();
  EXPECT_EQ(state_machine_.state(), State::kEnded);
  now_ += JobStateMachine::kLeaveSeconds;
  Settle();
  EXPECT_EQ(state_machine_.state(), State::kOver);
}

TEST_F(JobStateMachineTest, ServersWaitForWorkersToReturnAfterALossAndHearOfTheEndButNotForever) {
  state_machine_.ExpectWorkers(2, now_ + 60);
  state_machine_.RequestStop("enough");
  facts_.settled = facts_.saved = true;
  state_machine_.OutputsWritten();
  Settle();
  EXPECT_EQ(state_machine_.state(), State::kEnded);
  now_ += JobStateMachine::kLeaveSeconds;
  Settle();
  EXPECT_EQ(state_machine_.state(), State::kOver);
}

TEST_F(JobStateMachineTest, WaitsForTheFinalEvaluationWhileThereIsAnEvaluator) {
  facts_.evaluators = 1;
  GoTo(State::kSaving);
  facts_.saved = true;
  Settle();
  EXPECT_EQ(state_machine_.state(), State::kEvaluating);
  EXPECT_EQ(state_machine_.phase(), v1::JobStatus::FINISHING);
  facts_.evaluators = 0;
  Settle();
  EXPECT_EQ(state_machine_.phase(), v1::JobStatus::DONE);
}

TEST_F(JobStateMachineTest, AStopCutsTheFinalEvaluationShort) {
  facts_.evaluators = 1;
  GoTo(State::kSaving);
  facts_.saved = true;
  Settle();
  state_machine_.RequestStop("enough");
  Settle();
  EXPECT_EQ(state_machine_.phase(), v1::JobStatus::DONE) << "its budget was spent";
}

TEST_F(JobStateMachineTest, AStopSavesACheckpointAndThenEnds) {
  facts_.evaluators = 1;
  GoTo(State::kTraining);
  state_machine_.RequestStop("enough");
  state_machine_.RequestStop("again");
  Settle();
  EXPECT_EQ(state_machine_.phase(), v1::JobStatus::FINISHING);
  EXPECT_TRUE(state_machine_.cut_short());
  EXPECT_THAT(state_machine_.reason(), HasSubstr("enough"));
  EXPECT_FALSE(state_machine_.overdue(now_, 10));
  EXPECT_TRUE(state_machine_.overdue(now_ + 10, 10));
  EXPECT_FALSE(state_machine_.overdue(now_ + 10, 11));
  now_ += 8;
  facts_.bytes_pushed = 1000;
  Settle();
  EXPECT_FALSE(state_machine_.overdue(now_ + 9, 10)) << "a push is on its way";
  EXPECT_TRUE(state_machine_.overdue(now_ + 10, 10));
  facts_.workers = 0;
  facts_.settled = true;
  Settle();
  EXPECT_EQ(state_machine_.final_checkpoint(), 1u) << "of version 0, but 0 means none";
  facts_.saved = true;
  Settle();
  EXPECT_EQ(state_machine_.phase(), v1::JobStatus::STOPPED);
  EXPECT_EQ(state_machine_.reason(), "enough");
}

TEST_F(JobStateMachineTest, AStopEndsAJobThatNeverBegan) {
  state_machine_.RequestStop("");
  facts_.settled = true;
  facts_.saved = true;
  Settle();
  EXPECT_EQ(state_machine_.phase(), v1::JobStatus::STOPPED);
}

TEST_F(JobStateMachineTest, FailsWhenTheLastCheckpointKeepsFailing) {
  GoTo(State::kSaving);
  facts_.save_error = "server 1: disk full";
  Settle();
  EXPECT_THAT(state_machine_.reason(), HasSubstr("disk full"));
  now_ += JobStateMachine::kSaveSeconds / 2;
  facts_.save_error = "";
  Settle();
  facts_.save_error = "server 1: disk full";
  now_ += JobStateMachine::kSaveSeconds * 0.9;
  Settle();
  EXPECT_EQ(state_machine_.phase(), v1::JobStatus::FINISHING) << "it did not fail all the time";
  now_ += JobStateMachine::kSaveSeconds;
  Settle();
  EXPECT_EQ(state_machine_.phase(), v1::JobStatus::FAILED);
  EXPECT_THAT(state_machine_.reason(), HasSubstr("disk full"));
}

// The weights are as good as before, and up to checkpoint.every_seconds of training would be lost.
TEST_F(JobStateMachineTest, AJobWhoseWorkersFailedFailsAfterACheckpoint) {
  GoTo(State::kTraining);
  facts_.workers = 0;
  state_machine_.FailAfterSaving("1.jpg is damaged", now_);
  Settle();
  EXPECT_EQ(state_machine_.state(), State::kSettling);
  EXPECT_EQ(state_machine_.phase(), v1::JobStatus::FINISHING);
  EXPECT_THAT(state_machine_.reason(), HasSubstr("failing (1.jpg is damaged)"));
  EXPECT_TRUE(state_machine_.stop_requested()) << "a server that is lost does not begin the job again";
  facts_.settled = true;
  facts_.expected_evaluators = 1;
  Settle();
  EXPECT_EQ(state_machine_.state(), State::kSaving);
  facts_.saved = true;
  Settle();
  EXPECT_EQ(state_machine_.phase(), v1::JobStatus::FAILED);
  EXPECT_EQ(state_machine_.reason(), "1.jpg is damaged");
}

TEST_F(JobStateMachineTest, TheFirstFailureIsNamedIfItsCheckpointFailsToo) {
  GoTo(State::kTraining);
  facts_.workers = 0;
  state_machine_.FailAfterSaving("1.jpg is damaged", now_);
  facts_.settled = true;
  facts_.save_error = "server 1: disk full";
  Settle();
  now_ += 2 * JobStateMachine::kSaveSeconds;
  Settle();
  EXPECT_EQ(state_machine_.phase(), v1::JobStatus::FAILED);
  EXPECT_FALSE(state_machine_.failed_to_save());
  EXPECT_THAT(state_machine_.reason(),
              HasSubstr("1.jpg is damaged; then the last checkpoint cannot be saved"));
}

TEST_F(JobStateMachineTest, AJobThatNeverTrainedFailsAtOnce) {
  state_machine_.FailAfterSaving("1.jpg is damaged", now_);
  EXPECT_EQ(state_machine_.phase(), v1::JobStatus::FAILED);
}

TEST_F(JobStateMachineTest, AFailureIsFinal) {
  GoTo(State::kTraining);
  state_machine_.Fail("broken", now_);
  state_machine_.Fail("more", now_);
  state_machine_.RequestStop("stop");
  Settle();
  EXPECT_EQ(state_machine_.phase(), v1::JobStatus::FAILED);
  EXPECT_EQ(state_machine_.reason(), "broken");
  EXPECT_TRUE(state_machine_.cut_short());
}

}  // namespace
}  // namespace catchment
