// Sequences worked out by hand. Losses and margins are multiples of 1/8, so that no difference is rounded.
#include "server/control/early_stopping.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace catchment {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

v1::BestState Score(uint64_t evaluation, double loss, double accuracy = 0) {
  v1::BestState score;
  score.set_evaluation(evaluation);
  score.set_loss(loss);
  score.set_accuracy(accuracy);
  score.set_samples(1000 * evaluation);
  return score;
}

v1::Evaluation ByLoss(uint32_t patience = 0, float min_improvement = 0) {
  v1::Evaluation evaluation;
  evaluation.set_patience(patience);
  evaluation.set_min_improvement(min_improvement);
  evaluation.set_best_by(v1::Evaluation::LOSS);
  return evaluation;
}

struct Seen {
  std::vector<uint64_t> best;   // number of the best evaluation, after each
  std::vector<uint64_t> since;  // evaluations since it
  std::vector<bool> enough;
};

// Evaluations 1, 2, ... Each time it is made anew from its state, as for a job that is resumed, and says the
// same.
Seen Watch(const v1::Evaluation& evaluation, const std::vector<double>& losses,
           const std::vector<double>& accuracies = {}) {
  Seen seen;
  v1::BestState state, last;
  std::string enough;
  for (size_t i = 0; i < losses.size(); ++i) {
    EarlyStopping stopping(evaluation, state, last);
    EXPECT_EQ(stopping.enough(), enough) << i;
    const uint64_t before = state.evaluation();
    const bool better = stopping.Observe(Score(i + 1, losses[i], accuracies.empty() ? 0 : accuracies[i]));
    EXPECT_EQ(better, stopping.state().evaluation() != before) << i;
    seen.best.push_back(stopping.state().evaluation());
    seen.since.push_back(stopping.state().since());
    seen.enough.push_back(!stopping.enough().empty());
    state.ParseFromString(stopping.state().SerializeAsString());
    last.ParseFromString(stopping.last_score().SerializeAsString());
    enough = stopping.enough();
  }
  return seen;
}

using Numbers = std::vector<uint64_t>;
using Flags = std::vector<bool>;

TEST(EarlyStoppingTest, TheLowestLossIsTheBestAndAnEqualOneIsNot) {
  const Seen seen = Watch(ByLoss(), {2, 1, 1, 1.5, 0.5});
  EXPECT_EQ(seen.best, (Numbers{1, 2, 2, 2, 5}));
  EXPECT_EQ(seen.since, (Numbers{0, 0, 1, 2, 0}));
  EXPECT_EQ(seen.enough, (Flags{false, false, false, false, false})) << "without patience it goes on";
}

TEST(EarlyStoppingTest, PatienceCountsEvaluationsInARow) {
  const Seen seen = Watch(ByLoss(/*patience=*/2), {2, 3, 1, 1, 2, 3});
  EXPECT_EQ(seen.best, (Numbers{1, 1, 3, 3, 3, 3}));
  EXPECT_EQ(seen.enough, (Flags{false, false, false, false, true, true}));
}

// 1 -> 0.875 -> 0.75 are steps of 0.125, which is not more than the margin; from 1 on 0.625 is.
TEST(EarlyStoppingTest, StepsBelowTheMarginAddUp) {
  const Seen seen = Watch(ByLoss(/*patience=*/3, /*min_improvement=*/0.25f), {1, 0.875, 0.75, 0.625, 0.625});
  EXPECT_EQ(seen.best, (Numbers{1, 1, 1, 4, 4}));
  EXPECT_EQ(seen.since, (Numbers{0, 1, 2, 0, 1}));
  EXPECT_EQ(seen.enough, (Flags{false, false, false, false, false}));
}

TEST(EarlyStoppingTest, LossesThatAreNotNumbersAreNeverBetter) {
  const Seen seen = Watch(ByLoss(/*patience=*/2), {kNan, kInfinity, 5, kNan, kInfinity});
  EXPECT_EQ(seen.best, (Numbers{0, 0, 3, 3, 3}));
  EXPECT_EQ(seen.since, (Numbers{1, 2, 0, 1, 2}));
  EXPECT_EQ(seen.enough, (Flags{false, true, false, false, true}));
}

TEST(EarlyStoppingTest, ByAccuracyTheLossDoesNotMatterUnlessItIsNone) {
  v1::Evaluation evaluation = ByLoss(/*patience=*/2);
  evaluation.set_best_by(v1::Evaluation::ACCURACY);
  const Seen seen = Watch(evaluation, {1, 2, 0.5, kNan, 3, 3}, {0.5, 0.75, 0.75, 1, 0.875, 0.875});
  EXPECT_EQ(seen.best, (Numbers{1, 2, 2, 2, 5, 5}));
  EXPECT_EQ(seen.since, (Numbers{0, 0, 1, 2, 0, 1}));
  EXPECT_EQ(seen.enough, (Flags{false, false, false, true, false, false}));
}

TEST(EarlyStoppingTest, EachTargetThatIsSetMustBeReachedByOneEvaluation) {
  v1::Evaluation evaluation = ByLoss();
  evaluation.set_target_accuracy(0.75f);
  EXPECT_EQ(Watch(evaluation, {1, 1, kNan}, {0.5, 0.75, 1}).enough, (Flags{false, true, false}));
  evaluation.set_target_loss(0.5f);
  EXPECT_EQ(Watch(evaluation, {0.25, 1, 0.5, 0.625}, {0.5, 0.875, 0.75, 1}).enough,
            (Flags{false, false, true, false}));
  evaluation.clear_target_accuracy();
  EXPECT_EQ(Watch(evaluation, {1, kNan, 0.5}).enough, (Flags{false, false, true}));
}

// 0.98 in float32 is a little more than 0.98 in float64, 0.1 too.
TEST(EarlyStoppingTest, TargetsAreReachedExactly) {
  v1::Evaluation evaluation;
  evaluation.set_target_accuracy(0.98f);
  EXPECT_EQ(Watch(evaluation, {1, 1}, {97.0 / 100, 98.0 / 100}).enough, (Flags{false, true}));
  evaluation.clear_target_accuracy();
  evaluation.set_target_loss(0.7f);  // a little less than 0.7 in float64
  EXPECT_EQ(Watch(evaluation, {0.71, 0.7}).enough, (Flags{false, true}));
}

TEST(EarlyStoppingTest, SaysWhyItIsEnough) {
  v1::Evaluation evaluation = ByLoss(/*patience=*/1, /*min_improvement=*/0.5f);
  evaluation.set_target_accuracy(0.98f);
  EarlyStopping stopping(evaluation, {}, {});
  stopping.Observe(Score(1, 0.25, 0.5));
  EXPECT_EQ(stopping.enough(), "");
  stopping.Observe(Score(2, 0.25, 0.5));
  EXPECT_EQ(stopping.enough(),
            "test loss has not become better than 0.25, of evaluation 1, by more than 0.5 in 1 evaluations "
            "(evaluation.patience 1), after 2000 samples");
  stopping.Observe(Score(3, 0.25, 0.9812));
  EXPECT_EQ(stopping.enough(),
            "test accuracy 0.9812 reached evaluation.target_accuracy 0.98 after 3000 samples");
  EXPECT_EQ(stopping.state().evaluation(), 1u);
}

TEST(EarlyStoppingTest, MorePatienceThanTheJobHadLetsItGoOn) {
  EarlyStopping stopping(ByLoss(/*patience=*/1), {}, {});
  stopping.Observe(Score(1, 0.25));
  stopping.Observe(Score(2, 0.25));
  EXPECT_NE(stopping.enough(), "");
  EXPECT_EQ(EarlyStopping(ByLoss(/*patience=*/2), stopping.state(), stopping.last_score()).enough(), "");
  EXPECT_EQ(EarlyStopping(ByLoss(/*patience=*/1), stopping.state(), {}).enough(), "") << "no score is known";
}

TEST(EarlyStoppingTest, ComparesScoresWithAndWithoutAMargin) {
  const EarlyStopping stopping(ByLoss(3, /*min_improvement=*/0.5f), {}, {});
  EXPECT_TRUE(stopping.IsBetter(Score(6, 0.875), Score(3, 1)));
  EXPECT_FALSE(stopping.IsBetter(Score(6, 0.875), Score(3, 1), 0.5f));
  EXPECT_FALSE(stopping.IsBetter(Score(6, 1), Score(3, 1)));
  EXPECT_TRUE(stopping.IsBetter(Score(6, 2), {})) << "no evaluation";
  EXPECT_FALSE(stopping.IsBetter(Score(6, std::numeric_limits<double>::infinity()), {}));
}

}  // namespace
}  // namespace catchment
