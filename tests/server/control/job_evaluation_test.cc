// Evaluations, what follows from their scores, and the best weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tests/server/control/master_fixture.h"

namespace catchment {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST_F(MasterTest, EvaluationsFollowTheSamplesAndEndWithAFinalOne) {
  v1::Job job = MakeJob({.epochs = 2});
  job.mutable_evaluation()->set_every_epochs(0.5);
  Start(job);
  const Worker evaluator = Join(v1::EVALUATOR);
  Worker worker = Join();
  EXPECT_EQ(AskEvaluation(evaluator)->evaluation(), 0u);
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  DoLease({&worker});  // 64 of 100 samples
  Exchange();
  EXPECT_EQ(AskEvaluation(evaluator)->evaluation(), 1u);
  while (Next(&worker) == v1::Lease::GRANTED) DoLease({&worker});
  EXPECT_EQ(AskEvaluation(evaluator)->evaluation(), 0u) << "the final one follows";
  Leave(worker);
  Exchange();
  Exchange();
  EXPECT_EQ(master_->Status().reason(), "waiting for the final evaluation");
  const absl::StatusOr<v1::GetEvaluationReply> last = AskEvaluation(evaluator);
  EXPECT_TRUE(last->final());
  v1::EvaluationReport report;
  report.set_incarnation(evaluator.incarnation);
  report.set_evaluation(last->evaluation());
  report.set_samples(50);
  report.set_correct(40);
  report.set_loss_sum(25);
  ASSERT_TRUE(master_->ReportEvaluation(report).ok());
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::DONE);
  EXPECT_TRUE(AskEvaluation(evaluator)->stop());
  EXPECT_DOUBLE_EQ(master_->Status().test_accuracy(), 0.8);
  EXPECT_DOUBLE_EQ(master_->Status().test_loss(), 0.5);
  EXPECT_EQ(master_->Status().test_samples(), 50u);
}

// An evaluator that sends heartbeats, and sometimes does nothing else.
class HangingEvaluatorTest : public MasterTest {
 protected:
  static constexpr double kStuck = 60;

  void StartWith(uint64_t epochs) {
    v1::Job job = MakeJob({.epochs = epochs});
    job.mutable_faults()->set_stuck_seconds(kStuck);
    Start(job);
    evaluator_ = Join(v1::EVALUATOR);
    worker_ = Join();
  }
  // Passes `seconds`, in which it has scored a minibatch in each of the first `minibatches`.
  void Pass(int seconds, int minibatches = 0) {
    for (int i = 0; i < seconds; ++i) {
      clock_.Advance(1);
      if (i < minibatches) evaluator_.progress.set_steps(evaluator_.progress.steps() + 1);
      Beat(evaluator_, v1::EVALUATOR).IgnoreError();
      Beat(worker_).IgnoreError();
      Exchange();
      master_->Tick();
    }
  }
  void TrainToTheEnd() {
    while (Next(&worker_) == v1::Lease::GRANTED) DoLease({&worker_});
    Leave(worker_);
    for (int i = 0; i < 3; ++i) Exchange();
    EXPECT_EQ(master_->Status().reason(), "waiting for the final evaluation");
  }

  Worker evaluator_, worker_;
};

TEST_F(HangingEvaluatorTest, IsLostAndTheJobIsDoneWithoutItsScore) {
  StartWith(/*epochs=*/1);
  Pass(1);
  TrainToTheEnd();
  EXPECT_TRUE(AskEvaluation(evaluator_)->final());
  Pass(static_cast<int>(kStuck) - 1);
  EXPECT_EQ(master_->Status().evaluators(), 1u);
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::FINISHING);
  Pass(2);
  EXPECT_EQ(Beat(evaluator_, v1::EVALUATOR).status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(master_->Status().events(),
              Contains("no_progress: evaluator 0 (host:7) has made no progress for 60 s "
                       "(faults.stuck_seconds): considered lost; its evaluation has no score"));
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::DONE);
  EXPECT_THAT(master_->Status().reason(), HasSubstr("without a score of its final weights"));
  EXPECT_EQ(master_->Status().test_samples(), 0u);
}

TEST_F(HangingEvaluatorTest, IsLostAlsoBeforeItHasAskedForAnEvaluation) {
  StartWith(/*epochs=*/1);
  TrainToTheEnd();
  Pass(static_cast<int>(kStuck) + 2);
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::DONE);
}

TEST_F(HangingEvaluatorTest, IsKeptWhileItScoresMinibatches) {
  StartWith(/*epochs=*/1);
  TrainToTheEnd();
  EXPECT_TRUE(AskEvaluation(evaluator_)->final());
  Pass(10 * static_cast<int>(kStuck), /*minibatches=*/10 * static_cast<int>(kStuck));
  EXPECT_TRUE(Score(evaluator_, 0.5, 40).ok());
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::DONE);
  EXPECT_EQ(master_->Status().reason(), "");
}

TEST_F(HangingEvaluatorTest, HasTheTimeOfTwentyEvaluations) {
  StartWith(/*epochs=*/2);
  while (AskEvaluation(evaluator_)->evaluation() == 0) {
    ASSERT_EQ(Next(&worker_), v1::Lease::GRANTED);
    DoLease({&worker_});
    Pass(1);
  }
  v1::EvaluationReport report;
  report.set_incarnation(evaluator_.incarnation);
  report.set_evaluation(1);
  report.set_samples(50);
  Pass(30);
  ASSERT_TRUE(master_->ReportEvaluation(report).ok());
  TrainToTheEnd();
  EXPECT_TRUE(AskEvaluation(evaluator_)->final());
  Pass(20 * 30 - 1);
  EXPECT_EQ(master_->Status().evaluators(), 1u);
  Pass(2);
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::DONE);
}

TEST_F(HangingEvaluatorTest, ThatReturnsWasOnlySlowAndHasTwiceTheTime) {
  StartWith(/*epochs=*/1'000);
  EXPECT_EQ(AskEvaluation(evaluator_)->evaluation(), 0u);
  Pass(static_cast<int>(kStuck) + 2);
  EXPECT_EQ(master_->Status().evaluators(), 0u);
  evaluator_ = Join(v1::EVALUATOR);
  Pass(2 * static_cast<int>(kStuck) - 2);
  EXPECT_EQ(master_->Status().evaluators(), 1u);
  Pass(4);
  EXPECT_EQ(master_->Status().evaluators(), 0u);
}

TEST_F(MasterTest, StatisticNamedLikeAWeightIsRefusedAndTheEvaluationStaysDue) {
  Start(MakeJob({.epochs = 8}));
  const Worker evaluator = Join(v1::EVALUATOR);
  Worker worker = Join();
  ASSERT_TRUE(TrainAndScore(evaluator, &worker, 1, 30).ok());
  while (AskEvaluation(evaluator)->evaluation() == 0) {
    ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
    DoLease({&worker});
    ASSERT_TRUE(Beat(worker).ok());
  }
  v1::EvaluationReport report = last_report_;
  report.set_evaluation(2);
  v1::Statistic* const statistic = report.add_statistics();
  for (const char* name : {"dense1.weight", "dense1.bias", "dense1.running_mean", "other"}) {
    statistic->set_name(name);
    const absl::Status status = master_->ReportEvaluation(report).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr(name));
  }
  EXPECT_EQ(master_->evaluation().newest(), 1u);
  EXPECT_EQ(AskEvaluation(evaluator)->evaluation(), 2u);
  EXPECT_TRUE(Score(evaluator, 0.5, 40).ok());
  EXPECT_EQ(master_->evaluation().newest(), 2u);
}

// Losses 1, 1, 1 with patience 1: the third makes the rate fall, in every command and in what a checkpoint
// keeps.
TEST_F(MasterTest, PlateauOfTheTestLossIsSentToAllShardsAndKept) {
  v1::Job job = MakeJob({.epochs = 8});
  Start(job);
  EXPECT_FALSE(master_->Command().has_plateau_factor()) << "of another schedule";
  EXPECT_FALSE(master_->Status().has_plateau_factor());
  v1::Schedule* const schedule = job.mutable_optimizer()->mutable_schedule();
  schedule->set_decay(v1::Schedule::PLATEAU);
  schedule->set_factor(0.25f);
  schedule->set_patience(1);
  Start(job);
  const Worker evaluator = Join(v1::EVALUATOR);
  Worker worker = Join();
  std::vector<double> factors;
  for (int k = 1; k <= 3; ++k) {
    while (AskEvaluation(evaluator)->evaluation() == 0) {
      ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
      DoLease({&worker});
      ASSERT_TRUE(Beat(worker).ok());
    }
    v1::EvaluationReport report;
    report.set_incarnation(evaluator.incarnation);
    report.set_evaluation(AskEvaluation(evaluator)->evaluation());
    report.set_samples(50);
    report.set_loss_sum(50);
    ASSERT_TRUE(master_->ReportEvaluation(report).ok());
    ASSERT_TRUE(master_->ReportEvaluation(report).ok()) << "sent again";
    factors.push_back(master_->Command().plateau_factor());
  }
  EXPECT_EQ(factors, (std::vector<double>{1, 1, 0.25}));
  EXPECT_EQ(master_->Status().plateau_factor(), 0.25);
  EXPECT_THAT(FreshEvents(), Contains(HasSubstr("the learning rate is now multiplied by 0.25")));
  Start(job, 2, master_->StateAt({.version = shards_[0].version()}));
  EXPECT_EQ(master_->Command().plateau_factor(), 0.25) << "after a restart";
  job.mutable_optimizer()->mutable_schedule()->set_decay(v1::Schedule::CONSTANT);
  const v1::MasterState state = master_->StateAt({.version = 0});
  Start(job, 2, state);
  EXPECT_FALSE(master_->Command().has_plateau_factor()) << "resumed with another schedule";
}

TEST_F(MasterTest, AReachedTargetEndsTheJobInOrder) {
  v1::Job job = MakeJob({.epochs = 8});
  job.mutable_evaluation()->set_target_loss(0.5f);
  Start(job);
  const Worker evaluator = Join(v1::EVALUATOR);
  Worker worker = Join();
  ASSERT_TRUE(TrainAndScore(evaluator, &worker, 0.75, 25).ok());
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::TRAINING);
  ASSERT_TRUE(TrainAndScore(evaluator, &worker, 0.5, 40).ok());
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::FINISHING);
  const absl::StatusOr<v1::HeartbeatReply> beat = Beat(worker);
  EXPECT_TRUE(beat->stop());
  EXPECT_THAT(beat->reason(), HasSubstr("test loss 0.5 reached evaluation.target_loss 0.5 after "));
  EXPECT_EQ(Ask(worker, worker.lease.number())->state(), v1::Lease::FINISHED);
  Leave(worker);
  Exchange();
  Exchange();
  EXPECT_EQ(master_->Status().last_checkpoint(), shards_[0].version());
  EXPECT_EQ(master_->Status().reason(), "waiting for the final evaluation");
  EXPECT_EQ(master_->Status().best_evaluation(), 2u);
  ASSERT_TRUE(AskEvaluation(evaluator)->final());
  ASSERT_TRUE(Score(evaluator, 0.25, 45).ok());
  const v1::JobStatus status = master_->Status();
  EXPECT_EQ(status.phase(), v1::JobStatus::DONE);
  EXPECT_EQ(status.reason(), "");
  EXPECT_THAT(status.ended_early(), HasSubstr("test loss 0.5 reached evaluation.target_loss 0.5 after "));
  EXPECT_LT(status.samples(), status.total_samples());
  EXPECT_EQ(status.best_evaluation(), 3u) << "the final one counts";
  EXPECT_DOUBLE_EQ(status.best_test_loss(), 0.25);
  EXPECT_DOUBLE_EQ(status.best_test_accuracy(), 0.9);
  EXPECT_EQ(status.best_at_samples(), status.samples());
  EXPECT_THAT(FreshEvents(), Contains(HasSubstr("done (test loss 0.5 reached")));
}

TEST_F(MasterTest, PatienceEndsTheJobAndIsKeptOverARestart) {
  v1::Job job = MakeJob({.epochs = 8});
  job.mutable_evaluation()->set_patience(2);
  job.mutable_evaluation()->set_best_by(v1::Evaluation::ACCURACY);
  Start(job);
  Worker evaluator = Join(v1::EVALUATOR);
  Worker worker = Join();
  ASSERT_TRUE(TrainAndScore(evaluator, &worker, 1, 30).ok());
  const uint64_t at = master_->Status().best_at_samples();
  ASSERT_TRUE(TrainAndScore(evaluator, &worker, 0.5, 30).ok());
  const v1::JobStatus before = master_->Status();
  EXPECT_EQ(before.evaluations_since_best(), 1u);
  const v1::MasterState state = master_->StateAt({.version = shards_[0].version()});
  const uint64_t version = shards_[0].version();
  Start(job, 2, state);
  ASSERT_EQ(shards_[0].version(), version);
  EXPECT_EQ(master_->Status().best_evaluation(), 1u) << "after a restart";
  EXPECT_EQ(master_->Status().best_at_samples(), at);
  evaluator = Join(v1::EVALUATOR);
  worker = Join();
  ASSERT_TRUE(TrainAndScore(evaluator, &worker, 0.25, 29).ok());
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::FINISHING);
  EXPECT_THAT(master_->Status().ended_early(),
              HasSubstr("test accuracy has not become better than 0.6, of evaluation 1, in 2 evaluations"));
}

// Whichever checkpoint a job that has had enough goes on from, it evaluates nothing again.
TEST_F(MasterTest, JobThatIsResumedAfterItsLastEvaluationEndsAtOnce) {
  for (const bool by_patience : {true, false}) {
    v1::Job job = MakeJob({.epochs = 8});
    if (by_patience) {
      job.mutable_evaluation()->set_patience(1);
    } else {
      job.mutable_evaluation()->set_target_accuracy(0.5f);
    }
    Start(job);
    const Worker evaluator = Join(v1::EVALUATOR);
    Worker worker = Join();
    ASSERT_TRUE(TrainAndScore(evaluator, &worker, 1, 20).ok());
    EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::TRAINING);
    ASSERT_TRUE(TrainAndScore(evaluator, &worker, 1, 25).ok());
    const std::string reason = master_->Status().ended_early();
    EXPECT_THAT(reason, HasSubstr(", as evaluator 0 (host:7) reports"));
    const v1::MasterState state = master_->StateAt({.version = shards_[0].version()});
    Start(job, 2, state);
    master_->Tick();
    for (int i = 0; i < 3; ++i) Exchange();
    EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::DONE);
    EXPECT_NE(master_->Status().ended_early(), "");
    EXPECT_THAT(reason, StartsWith(master_->Status().ended_early()));
    job.mutable_evaluation()->clear_target_accuracy();
    job.mutable_evaluation()->set_patience(5);
    Start(job, 2, state);
    master_->Tick();
    EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::WAITING) << "resumed with more patience";
  }
}

// The job went back: model-best.safetensors has the weights of a later and better evaluation of the run that
// was lost. Training ends as it would have without the loss.
TEST_F(MasterTest, PatienceCountsFromTheHistoryOfTheCheckpoint) {
  v1::Job job = MakeJob({.epochs = 8});
  job.mutable_evaluation()->set_patience(2);
  job.mutable_evaluation()->set_keep_best(true);
  const auto scores = [&](std::optional<double> kept_loss) {
    Start(job);
    if (kept_loss) {
      v1::BestState kept;
      kept.set_evaluation(7);
      kept.set_loss(*kept_loss);
      master_->evaluation().SetKept(kept);
    }
    const Worker evaluator = Join(v1::EVALUATOR);
    Worker worker = Join();
    std::vector<bool> keep;
    for (const double loss : {1.0, 0.9, 0.8, 0.7}) {
      const absl::StatusOr<v1::ReportEvaluationReply> reply = TrainAndScore(evaluator, &worker, loss, 30);
      EXPECT_TRUE(reply.ok()) << reply.status();
      keep.push_back(reply.ok() && reply->keep());
      EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::TRAINING);
      if (keep.back()) master_->OnBestKept(last_report_.evaluation(), absl::OkStatus());
    }
    EXPECT_EQ(master_->Status().evaluations_since_best(), 0u);
    EXPECT_DOUBLE_EQ(master_->Status().best_test_loss(), 0.7);
    return keep;
  };
  EXPECT_THAT(scores(std::nullopt), testing::ElementsAre(true, true, true, true));
  EXPECT_THAT(scores(0.75), testing::ElementsAre(false, false, false, true)) << "the file has better ones";
}

TEST_F(MasterTest, ATargetThatIsReachedAtTheVeryEndEndsNothingEarly) {
  v1::Job job = MakeJob({});
  job.mutable_evaluation()->set_target_loss(0.5f);
  Start(job);
  const Worker evaluator = Join(v1::EVALUATOR);
  TrainAlone();
  Exchange();
  Exchange();
  ASSERT_TRUE(Score(evaluator, 0.25, 45).ok());
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::DONE);
  EXPECT_EQ(master_->Status().ended_early(), "");
}

TEST_F(MasterTest, OnlyTheBestWeightsAreAskedFor) {
  v1::Job job = MakeJob({.epochs = 8});
  Start(job);
  Worker evaluator = Join(v1::EVALUATOR);
  Worker worker = Join();
  EXPECT_FALSE(TrainAndScore(evaluator, &worker, 1, 30)->keep()) << "keep_best is not set";
  job.mutable_evaluation()->set_keep_best(true);
  Start(job);
  evaluator = Join(v1::EVALUATOR);
  worker = Join();
  const auto wanted = [&](uint64_t evaluation) {
    return master_->evaluation().BestWanted(evaluator.incarnation, evaluation);
  };
  EXPECT_EQ(wanted(0).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(wanted(1).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_TRUE(TrainAndScore(evaluator, &worker, 1, 30)->keep());
  EXPECT_TRUE(master_->ReportEvaluation(last_report_)->keep()) << "sent again, since the answer was lost";
  ASSERT_TRUE(wanted(1).ok());
  EXPECT_DOUBLE_EQ(wanted(1)->loss(), 1);
  EXPECT_DOUBLE_EQ(wanted(1)->accuracy(), 0.6);
  EXPECT_EQ(wanted(2).status().message(),
            "the weights of evaluation 2 are refused: expected those of evaluation 1");
  EXPECT_THAT(FreshEvents(), Contains(HasSubstr("the weights of evaluation 2 are refused")));
  EXPECT_EQ(master_->evaluation().BestWanted(worker.incarnation, 1).status().code(),
            absl::StatusCode::kNotFound);
  master_->OnBestKept(1, absl::OkStatus());
  EXPECT_FALSE(wanted(1).ok()) << "it is kept already";
  EXPECT_FALSE(master_->ReportEvaluation(last_report_)->keep());
  EXPECT_FALSE(TrainAndScore(evaluator, &worker, 2, 50)->keep()) << "worse";
  EXPECT_TRUE(TrainAndScore(evaluator, &worker, 0.5, 30)->keep());
  master_->OnBestKept(3, absl::ResourceExhaustedError("disk full"));
  EXPECT_THAT(FreshEvents(), Contains("the weights of evaluation 3 were not saved: disk full; those of "
                                      "the previous best evaluation, if any, are kept"));
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::TRAINING);
  EXPECT_EQ(master_->Status().best_evaluation(), 3u);
}

// The disk was full at the best evaluation: others that are better than the weights in the file replace them.
TEST_F(MasterTest, WeightsAreAskedForUntilTheFileHasTheBest) {
  v1::Job job = MakeJob({.epochs = 9});
  job.mutable_evaluation()->set_keep_best(true);
  Start(job);
  const Worker evaluator = Join(v1::EVALUATOR);
  Worker worker = Join();
  EXPECT_TRUE(TrainAndScore(evaluator, &worker, 1, 30)->keep());
  master_->OnBestKept(1, absl::OkStatus());
  EXPECT_TRUE(TrainAndScore(evaluator, &worker, 0.5, 30)->keep());
  master_->OnBestKept(2, absl::ResourceExhaustedError("disk full"));
  EXPECT_FALSE(TrainAndScore(evaluator, &worker, 1.5, 30)->keep()) << "worse than those in the file";
  EXPECT_TRUE(TrainAndScore(evaluator, &worker, 0.75, 30)->keep());
  EXPECT_DOUBLE_EQ(master_->evaluation().BestWanted(evaluator.incarnation, 4)->loss(), 0.75);
  master_->OnBestKept(4, absl::OkStatus());
  EXPECT_TRUE(TrainAndScore(evaluator, &worker, 0.625, 30)->keep());
  master_->OnBestKept(5, absl::OkStatus());
  EXPECT_EQ(master_->Status().best_evaluation(), 2u);
  EXPECT_TRUE(TrainAndScore(evaluator, &worker, 0.25, 30)->keep());
  master_->OnBestKept(6, absl::OkStatus());
  EXPECT_FALSE(TrainAndScore(evaluator, &worker, 0.375, 30)->keep()) << "the file has the best";
}

// A job goes on from evaluation 2, while the weights of a later evaluation 3 are there from its first life.
TEST_F(MasterTest, AnEvaluationWithTheNumberOfAKeptOneIsNotTakenForIt) {
  v1::Job job = MakeJob({.epochs = 8});
  job.mutable_evaluation()->set_keep_best(true);
  v1::MasterState state;
  state.set_train_samples(kSamples);
  state.set_next_evaluation(3);
  state.mutable_best()->set_evaluation(3);
  state.mutable_best()->set_loss(0.5);
  Start(job, 2, state);
  master_->evaluation().SetKept(state.best());
  const Worker evaluator = Join(v1::EVALUATOR);
  Worker worker = Join();
  EXPECT_FALSE(TrainAndScore(evaluator, &worker, 0.75, 30)->keep());
  ASSERT_EQ(last_report_.evaluation(), 3u);
  EXPECT_FALSE(master_->evaluation().BestWanted(evaluator.incarnation, 3).ok());
  EXPECT_TRUE(TrainAndScore(evaluator, &worker, 0.25, 30)->keep());
}

class FinalBestTest : public MasterTest {
 protected:
  // Up to the final evaluation, whose weights are wanted.
  void GoToTheEnd() {
    v1::Job job = MakeJob({});
    job.mutable_evaluation()->set_keep_best(true);
    Start(job);
    evaluator_ = Join(v1::EVALUATOR);
    TrainAlone();
    Exchange();
    Exchange();
    ASSERT_TRUE(Score(evaluator_, 0.25, 45)->keep());
    EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::FINISHING) << "it waits for the weights";
  }
  Worker evaluator_;
};

TEST_F(FinalBestTest, JobEndsWhenItsBestWeightsAreKept) {
  ASSERT_NO_FATAL_FAILURE(GoToTheEnd());
  clock_.Advance(5);
  master_->Tick();
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::FINISHING);
  master_->OnBestKept(last_report_.evaluation(), absl::OkStatus());
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::DONE);
}

TEST_F(FinalBestTest, JobEndsWhenTheyCannotBeKept) {
  ASSERT_NO_FATAL_FAILURE(GoToTheEnd());
  master_->OnBestKept(last_report_.evaluation(), absl::ResourceExhaustedError("disk full"));
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::DONE);
}

TEST_F(FinalBestTest, JobEndsWhenTheEvaluatorHasGivenThemUp) {
  ASSERT_NO_FATAL_FAILURE(GoToTheEnd());
  ASSERT_TRUE(AskEvaluation(evaluator_).ok());
  EXPECT_TRUE(AskEvaluation(evaluator_)->stop());
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::DONE);
}

TEST_F(FinalBestTest, JobEndsWhenTheEvaluatorIsLost) {
  ASSERT_NO_FATAL_FAILURE(GoToTheEnd());
  clock_.Advance(11);
  master_->Tick();
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::DONE);
}

TEST_F(MasterTest, ALostEvaluatorDoesNotHoldUpTheEnd) {
  Start(MakeJob({}));
  const Worker evaluator = Join(v1::EVALUATOR);
  TrainAlone();
  Exchange();
  Exchange();
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::FINISHING);
  clock_.Advance(11);
  master_->Tick();
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::DONE);
  EXPECT_TRUE(AskEvaluation(evaluator)->stop()) << "also for one that has left";
}

}  // namespace
}  // namespace catchment
