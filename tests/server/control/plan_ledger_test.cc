#include "server/control/plan_ledger.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "server/control/data_ledger.h"

namespace catchment {
namespace {

constexpr uint64_t kHolder = 100;  // holders are kHolder + rank

Budget Epochs(uint64_t epochs, uint64_t samples) {
  return {Position{epochs, 0}, std::nullopt, epochs * samples};
}
Budget Steps(uint64_t steps) { return {std::nullopt, steps, 0}; }

Pace PaceFor(uint64_t workers, uint64_t batch_size, uint64_t steps_per_version = 1) {
  return {true, batch_size, workers, steps_per_version};
}

std::vector<uint64_t> Members(uint64_t workers) {
  std::vector<uint64_t> members;
  for (uint64_t rank = 0; rank < workers; ++rank) members.push_back(kHolder + rank);
  return members;
}

// All members take their next lease: the assignments by rank, none when there is nothing to assignment.
std::vector<Assignment> AssignAll(PlanLedger* ledger, const std::vector<uint64_t>& members) {
  std::vector<Assignment> assignments;
  for (uint64_t member : members) {
    if (ledger->Prepare(member, members)) assignments.push_back(ledger->Next(member, members));
  }
  return assignments;
}

// Marks all assigned steps as done.
void FinishAll(PlanLedger* ledger, const std::vector<uint64_t>& members) {
  for (uint64_t member : members) ledger->MarkDone(member, UINT64_MAX);
}

// Returns the samples of all members together in each step.
std::vector<Step> Global(const std::vector<Assignment>& assignments) {
  std::vector<Step> steps(assignments.empty() ? 0 : assignments[0].minibatches.size());
  for (const Assignment& assignment : assignments) {
    EXPECT_EQ(assignment.minibatches.size(), steps.size());
    for (size_t i = 0; i < steps.size(); ++i) {
      for (const Span& span : assignment.minibatches[i]) Append(span, &steps[i]);
    }
  }
  return steps;
}

// The global minibatches to the end of the budget, without those of no samples that fill the last version.
std::vector<Step> RunToEnd(PlanLedger* ledger, const std::vector<uint64_t>& members) {
  std::vector<Step> steps;
  while (true) {
    const std::vector<Assignment> assignments = AssignAll(ledger, members);
    if (assignments.empty()) break;
    for (const Step& step : Global(assignments)) steps.push_back(step);
    FinishAll(ledger, members);
  }
  EXPECT_TRUE(ledger->AllDone());
  while (!steps.empty() && steps.back().empty()) steps.pop_back();
  return steps;
}

using Counts = std::map<std::pair<uint64_t, uint64_t>, int>;

void Count(const Step& step, Counts* counts) {
  for (const Span& span : step) {
    for (uint64_t i = span.begin; i < span.end; ++i) ++(*counts)[{span.epoch, i}];
  }
}

void ExpectEachOnce(const Counts& counts, uint64_t epochs, uint64_t samples) {
  EXPECT_EQ(counts.size(), epochs * samples);
  for (const auto& [sample, count] : counts) {
    ASSERT_EQ(count, 1) << "sample " << sample.second << " of epoch " << sample.first;
  }
}

TEST(PlanLedgerTest, DealsEachSampleOfAnEpochOnce) {
  for (uint64_t samples : {1, 7, 64, 101, 997}) {
    for (uint64_t workers : {1, 2, 3, 5, 8}) {
      for (uint64_t steps_per_version : {1, 3}) {
        PlanLedger ledger(PaceFor(workers, 6, steps_per_version), Epochs(3, samples), samples, {});
        Counts counts;
        for (const Step& step : RunToEnd(&ledger, Members(workers))) {
          Count(step, &counts);
          ASSERT_LE(NumSamples(step), workers * 6);
          for (const Span& span : step) ASSERT_EQ(span.epoch, step[0].epoch) << "a step of two epochs";
        }
        ExpectEachOnce(counts, 3, samples);
        EXPECT_EQ(ledger.done_samples(), 3 * samples);
      }
    }
  }
}

TEST(PlanLedgerTest, WorkersOfSmallBatchesSeeWhatOneOfALargeBatchSees) {
  for (uint64_t samples : {101, 240, 1000}) {
    PlanLedger one(PaceFor(1, 24), Epochs(2, samples), samples, {});
    const std::vector<Step> expected = RunToEnd(&one, Members(1));
    for (uint64_t workers : {2, 3, 4, 6, 24}) {
      PlanLedger many(PaceFor(workers, 24 / workers), Epochs(2, samples), samples, {});
      EXPECT_EQ(RunToEnd(&many, Members(workers)), expected) << workers << " workers";
    }
  }
}

TEST(PlanLedgerTest, PartsOfAStepAreContiguousAndEven) {
  PlanLedger ledger(PaceFor(3, 4), Epochs(1, 20), 20, {});
  const std::vector<Assignment> assignments = AssignAll(&ledger, Members(3));
  ASSERT_EQ(assignments.size(), 3u);
  EXPECT_EQ(assignments[0].minibatches, (std::vector<Step>{{{0, 0, 4}}, {{0, 12, 14}}}));
  EXPECT_EQ(assignments[1].minibatches, (std::vector<Step>{{{0, 4, 8}}, {{0, 14, 17}}}));
  EXPECT_EQ(assignments[2].minibatches, (std::vector<Step>{{{0, 8, 12}}, {{0, 17, 20}}}));
}

TEST(PlanLedgerTest, PartsMayBeEmptyAtTheEndOfAnEpoch) {
  PlanLedger ledger(PaceFor(4, 2), Epochs(1, 10), 10, {});
  const std::vector<Assignment> assignments = AssignAll(&ledger, Members(4));
  EXPECT_EQ(assignments[0].minibatches[1], Step{});
  EXPECT_EQ(assignments[1].minibatches[1], (Step{{0, 8, 9}}));
}

TEST(PlanLedgerTest, PlansHoldWholeVersions) {
  PlanLedger ledger(PaceFor(1, 1, 5), Epochs(1, 27), 27, {});
  std::vector<Assignment> assignments = AssignAll(&ledger, Members(1));
  EXPECT_EQ(assignments[0].minibatches.size(), 20u);  // 16 rounded up
  FinishAll(&ledger, Members(1));
  assignments = AssignAll(&ledger, Members(1));
  EXPECT_EQ(assignments[0].number, 2u);
  EXPECT_EQ(assignments[0].first_step, 20u);
  EXPECT_EQ(assignments[0].first_version, 4u);
  ASSERT_EQ(assignments[0].minibatches.size(), 10u);  // 7 of them have samples
  EXPECT_EQ(NumSamples(assignments[0].minibatches[6]), 1u);
  EXPECT_EQ(NumSamples(assignments[0].minibatches[7]), 0u);
}

TEST(PlanLedgerTest, BudgetOfStepsGoesOnOverEpochs) {
  PlanLedger ledger(PaceFor(2, 5, 2), Steps(38), 33, {});
  const std::vector<Step> steps = RunToEnd(&ledger, Members(2));
  EXPECT_EQ(steps.size(), 38u);
  EXPECT_EQ(steps[3], (Step{{0, 30, 33}}));
  EXPECT_EQ(steps[4], (Step{{1, 0, 10}}));
}

TEST(PlanLedgerTest, LostWorkersSamplesAreCoveredWhateverTheStep) {
  constexpr uint64_t kSamples = 331;
  for (uint64_t steps_per_version : {1, 3}) {
    for (uint64_t plan = 0; plan < 3; ++plan) {
      for (uint64_t rank = 0; rank < 3; ++rank) {
        for (uint64_t step = 0; step <= 18; ++step) {
          PlanLedger ledger(PaceFor(3, 4, steps_per_version), Epochs(2, kSamples), kSamples, {});
          const std::vector<uint64_t> members = Members(3);
          Counts done;
          std::vector<Assignment> assignments;
          for (uint64_t i = 0; i <= plan; ++i) {
            assignments = AssignAll(&ledger, members);
            if (i == plan) break;
            FinishAll(&ledger, members);
            for (const Step& s : Global(assignments)) Count(s, &done);
          }
          const uint64_t size = assignments[rank].minibatches.size();
          const uint64_t kept = std::min(step, size) / steps_per_version * steps_per_version;
          const uint64_t before = assignments[rank].first_step;
          ledger.MarkDone(members[rank], before + kept);
          ledger.Return(members[rank], 0);
          std::vector<uint64_t> rest;
          for (uint64_t r = 0; r < 3; ++r) {
            if (r != rank) rest.push_back(members[r]);
            for (uint64_t s = 0; s < (r == rank ? kept : size); ++s)
              Count(assignments[r].minibatches[s], &done);
            if (r != rank) ledger.MarkDone(members[r], before + size);
          }
          for (const Step& s : RunToEnd(&ledger, rest)) Count(s, &done);
          ExpectEachOnce(done, 2, kSamples);
          EXPECT_EQ(ledger.done_samples(), 2 * kSamples);
        }
      }
    }
  }
}

TEST(PlanLedgerTest, GivesBackPlansThatAMemberNeverAskedFor) {
  PlanLedger ledger(PaceFor(2, 4), Epochs(1, 100), 100, {});
  const std::vector<uint64_t> members = Members(2);
  ASSERT_TRUE(ledger.Prepare(members[0], members));
  const Assignment assignment = ledger.Next(members[0], members);
  ledger.Return(members[1], 0);
  ledger.MarkDone(members[0], assignment.minibatches.size());
  Counts counts;
  for (const Step& step : assignment.minibatches) Count(step, &counts);
  for (const Step& step : RunToEnd(&ledger, {members[0]})) Count(step, &counts);
  ExpectEachOnce(counts, 1, 100);
}

TEST(PlanLedgerTest, GivenBackSamplesAreDealtFirst) {
  PlanLedger ledger(PaceFor(3, 2), Epochs(1, 1000), 1000, {});
  const std::vector<uint64_t> members = Members(3);
  AssignAll(&ledger, members);
  for (uint64_t member : members) ledger.MarkDone(member, 14);
  ledger.Return(members[1], 0);
  const std::vector<uint64_t> rest = {members[0], members[2]};
  const std::vector<Step> next = Global(AssignAll(&ledger, rest));
  EXPECT_EQ(next[0], (Step{{0, 86, 88}, {0, 92, 94}})) << "two spans of one epoch make one step";
  EXPECT_EQ(next[1], (Step{{0, 96, 100}}));
}

// With fragments, steps of two plans may have reached only some blocks.
TEST(PlanLedgerTest, SaysWhichSamplesOfALostWorkerPartOfTheBlocksHave) {
  for (uint64_t done = 0; done <= 32; ++done) {
    for (uint64_t begun = done; begun <= 32; ++begun) {
      PlanLedger ledger(PaceFor(2, 4, 2), Epochs(1, 1000), 1000, {});
      const std::vector<uint64_t> members = Members(2);
      AssignAll(&ledger, members);
      AssignAll(&ledger, members);
      ledger.MarkDone(members[1], done);
      EXPECT_EQ(ledger.Return(members[1], begun), 4 * (begun - done))
          << done << " done, " << begun << " begun";
    }
  }
}

// Between the moment when a worker is lost and the moment when all servers have said what they have of it,
// the others make versions without it.
TEST(PlanLedgerTest, StateHoldsWhatALeavingWorkerHasNotDoneOfVersionsThatWereMadeWithoutIt) {
  PlanLedger ledger(PaceFor(2, 4), Epochs(1, 1000), 1000, {});
  const std::vector<uint64_t> members = Members(2);
  const std::vector<Assignment> assignments = AssignAll(&ledger, members);
  ledger.MarkDone(members[0], 7);
  ledger.MarkDone(members[1], 3);
  EXPECT_EQ(ledger.StateAt({.version = 7}).pending(0).begin(), 56u);
  ledger.SetLeaving(members[1]);
  const v1::MasterState state = ledger.StateAt({.version = 7});
  EXPECT_EQ(state.pending(0).begin(), assignments[1].minibatches[3][0].begin);
  EXPECT_EQ(state.samples(), 7u * 4 + 3 * 4);
  ledger.Return(members[1], 0);
  EXPECT_EQ(ledger.StateAt({.version = 7}).samples(), state.samples());
}

// EASGD exchanges at the start of a period: of the last one before a checkpoint the center has nothing yet.
TEST(PlanLedgerTest, StateHoldsThePeriodThatIsNotExchangedYet) {
  Pace pace = PaceFor(2, 4, 8);
  pace.contributes_first = true;
  PlanLedger ledger(pace, Epochs(1, 1000), 1000, {});
  EXPECT_EQ(ledger.StateAt({.version = 0}).samples(), 0u);
  const std::vector<uint64_t> members = Members(2);
  AssignAll(&ledger, members);
  AssignAll(&ledger, members);
  for (uint64_t member : members) ledger.MarkDone(member, 24);
  EXPECT_EQ(ledger.StateAt({.version = 1}).samples(), 0u);
  ledger.Forget(3);
  const v1::MasterState state = ledger.StateAt({.version = 3});
  EXPECT_EQ(state.samples(), 2u * 8 * 8);
  EXPECT_EQ(state.steps(), 2u * 8);
  EXPECT_EQ(state.pending(0).begin(), 128u);
  PlanLedger resumed(pace, Epochs(1, 1000), 1000, state);
  EXPECT_EQ(resumed.Prepare(members[0], members), 3u);
  EXPECT_EQ(resumed.StateAt({.version = 3}).samples(), state.samples()) << "nothing is exchanged yet";
  EXPECT_EQ(resumed.StateAt({.version = 4}).samples(), state.samples());
}

// Fragments are sent at different steps of a period, so the center has all steps but the last of a version.
TEST(PlanLedgerTest, StateHoldsTheStepsThatNotAllFragmentsHave) {
  Pace pace = PaceFor(2, 4, 8);
  pace.unsent_steps = 6;
  const std::vector<uint64_t> members = Members(2);
  PlanLedger ledger(pace, Epochs(1, 1000), 1000, {});
  EXPECT_EQ(ledger.StateAt({.version = 0}).samples(), 0u);
  AssignAll(&ledger, members);
  AssignAll(&ledger, members);
  for (uint64_t member : members) ledger.MarkDone(member, 26);
  ledger.Forget(3);
  const v1::MasterState state = ledger.StateAt({.version = 3});
  EXPECT_EQ(state.samples(), 18u * 8);
  EXPECT_EQ(state.steps(), 18u);
  EXPECT_EQ(state.pending(0).begin(), 144u);
  EXPECT_EQ(state.repeated_samples(), 6u * 8);
  const v1::MasterState with_workers =
      ledger.StateAt({.version = 3, .state_is_saved = [](uint64_t) { return true; }});
  EXPECT_EQ(with_workers.samples(), 24u * 8) << "the workers have them";
  EXPECT_EQ(with_workers.repeated_samples(), 0u);
  PlanLedger resumed(pace, Epochs(1, 1000), 1000, state);
  EXPECT_EQ(resumed.StateAt({.version = 3}).samples(), state.samples());
  EXPECT_EQ(resumed.Prepare(members[0], members), 3u);
}

TEST(PlanLedgerTest, StateAtTheEndHasAllSteps) {
  Pace pace = PaceFor(1, 4, 8);
  pace.unsent_steps = 6;
  PlanLedger ledger(pace, Epochs(1, 64), 64, {});
  const std::vector<Assignment> assignments = AssignAll(&ledger, Members(1));
  ASSERT_EQ(assignments.size(), 1u);
  EXPECT_TRUE(assignments[0].last);
  ledger.MarkDone(kHolder, 16);
  EXPECT_TRUE(ledger.AllDone());
  EXPECT_EQ(ledger.StateAt({.version = 1}).samples(), 2u * 4);
  EXPECT_EQ(ledger.StateAt({.version = 2}).samples(), 64u);
}

TEST(PlanLedgerTest, JoinersWaitForTheNextPlanOfTheOthers) {
  PlanLedger ledger(PaceFor(1, 4), Epochs(1, 1000), 1000, {});
  AssignAll(&ledger, Members(1));
  const std::vector<uint64_t> both = Members(2);
  EXPECT_FALSE(ledger.Prepare(both[1], both));
  EXPECT_EQ(ledger.Prepare(both[0], both), 16u);
  EXPECT_EQ(ledger.Prepare(both[1], both), 16u);
  EXPECT_EQ(ledger.Next(both[1], both).number, 1u);
  EXPECT_EQ(ledger.Next(both[0], both).number, 2u);
}

TEST(PlanLedgerTest, JoinersBeginAPlanWhenTheLastOneIsAbandoned) {
  PlanLedger ledger(PaceFor(1, 4), Epochs(1, 1000), 1000, {});
  AssignAll(&ledger, Members(1));
  ledger.MarkDone(kHolder, 5);
  ledger.Return(kHolder, 0);
  EXPECT_EQ(ledger.Prepare(kHolder + 7, {kHolder + 7}), 16u) << "not where the old plan was to end";
  EXPECT_EQ(ledger.Next(kHolder + 7, {kHolder + 7}).minibatches[0], (Step{{0, 20, 24}}));
}

TEST(PlanLedgerTest, AbandonedStepsAreNotSpent) {
  PlanLedger ledger(PaceFor(1, 4), Steps(20), 1000, {});
  AssignAll(&ledger, Members(1));
  ledger.MarkDone(kHolder, 5);
  ledger.Return(kHolder, 0);
  EXPECT_EQ(ledger.StateAt({.version = 16}).steps(), 5u);
  EXPECT_EQ(RunToEnd(&ledger, {kHolder + 1}).size(), 15u);
}

// Checks the samples that a resumed job assigns, for every version and every time from which a checkpoint can
// be.
void ExpectResumesExactly(uint64_t samples, const Pace& pace, const Budget& budget, const Pace& resumed_pace,
                          uint64_t resumed_workers) {
  PlanLedger reference(pace, budget, samples, {});
  const std::vector<Step> expected = RunToEnd(&reference, Members(pace.workers));

  PlanLedger ledger(pace, budget, samples, {});
  const std::vector<uint64_t> members = Members(pace.workers);
  uint64_t assigned = 0;
  while (true) {
    const std::vector<Assignment> assignments = AssignAll(&ledger, members);
    if (assignments.empty()) break;
    assigned += assignments[0].minibatches.size();
    for (uint64_t version = 0; version * pace.steps_per_version <= assigned; ++version) {
      const v1::MasterState state = ledger.StateAt({.version = version});
      ASSERT_TRUE(CheckMasterState(state).ok()) << CheckMasterState(state);
      const uint64_t step = std::min<uint64_t>(expected.size(), version * pace.steps_per_version);
      uint64_t before = 0;
      for (uint64_t i = 0; i < step; ++i) before += NumSamples(expected[i]);
      ASSERT_EQ(state.samples(), before);
      PlanLedger resumed(resumed_pace, budget, samples, state);
      EXPECT_EQ(resumed.done_samples(), before);
      const std::vector<Step> rest = RunToEnd(&resumed, Members(resumed_workers));
      ASSERT_EQ(rest, std::vector<Step>(expected.begin() + step, expected.end()))
          << "from version " << version;
    }
    FinishAll(&ledger, members);
  }
}

TEST(PlanLedgerTest, ResumesWithTheSameMinibatchesFromEveryVersion) {
  ExpectResumesExactly(101, PaceFor(3, 4), Epochs(4, 101), PaceFor(3, 4), 3);
  ExpectResumesExactly(101, PaceFor(3, 4, 5), Epochs(4, 101), PaceFor(3, 4, 5), 3);
  ExpectResumesExactly(50, PaceFor(2, 4, 2), Steps(60), PaceFor(2, 4, 2), 2);
}

TEST(PlanLedgerTest, ResumesWithTheSameMinibatchesWithAnotherNumberOfWorkers) {
  ExpectResumesExactly(101, PaceFor(3, 4), Epochs(4, 101), PaceFor(1, 12), 1);
  ExpectResumesExactly(101, PaceFor(2, 6, 3), Epochs(4, 101), PaceFor(6, 2, 3), 6);
}

TEST(PlanLedgerTest, ResumesExactlyAfterALoss) {
  PlanLedger ledger(PaceFor(3, 4), Epochs(2, 401), 401, {});
  std::vector<uint64_t> members = Members(3);
  std::vector<Assignment> assignments = AssignAll(&ledger, members);
  ledger.MarkDone(members[1], 7);
  ledger.Return(members[1], 0);
  members.erase(members.begin() + 1);
  for (uint64_t member : members) ledger.MarkDone(member, 16);
  std::vector<v1::MasterState> states;
  assignments = AssignAll(&ledger, members);
  for (uint64_t version = 16; version <= 32; ++version)
    states.push_back(ledger.StateAt({.version = version}));
  std::vector<Step> expected = Global(assignments);
  FinishAll(&ledger, members);
  for (const Step& step : RunToEnd(&ledger, members)) expected.push_back(step);
  for (uint64_t i = 0; i < states.size(); ++i) {
    PlanLedger resumed(PaceFor(2, 4), Epochs(2, 401), 401, states[i]);
    EXPECT_EQ(RunToEnd(&resumed, Members(2)), std::vector<Step>(expected.begin() + i, expected.end()));
  }
}

TEST(PlanLedgerTest, ForgettingLeavesLaterVersionsAlone) {
  PlanLedger kept(PaceFor(2, 3), Epochs(1, 997), 997, {});
  PlanLedger forgetful(PaceFor(2, 3), Epochs(1, 997), 997, {});
  for (int i = 0; i < 5; ++i) {
    for (PlanLedger* ledger : {&kept, &forgetful}) {
      AssignAll(ledger, Members(2));
      FinishAll(ledger, Members(2));
    }
    forgetful.Forget(16 * i + 3);
    for (uint64_t version = 16 * i + 3; version <= 16u * (i + 1); ++version) {
      EXPECT_EQ(forgetful.StateAt({.version = version}).SerializeAsString(),
                kept.StateAt({.version = version}).SerializeAsString());
    }
  }
}

TEST(PlanLedgerTest, ForgettingDoesNotLoseWhatIsNotDone) {
  PlanLedger ledger(PaceFor(2, 3), Epochs(1, 997), 997, {});
  const std::vector<uint64_t> members = Members(2);
  const std::vector<Assignment> first = AssignAll(&ledger, members);
  ledger.MarkDone(members[0], 16);
  AssignAll(&ledger, members);
  ledger.Forget(16);
  ledger.Return(members[1], 0);
  EXPECT_EQ(ledger.StateAt({.version = 32}).pending(0).begin(), first[1].minibatches[0][0].begin);
}

// The image of a long job is as long as that of a short one, and what is restored from it continues.
TEST(PlanLedgerTest, ForgetsLeasesThatAreDone) {
  const std::vector<uint64_t> members = Members(3);
  PlanLedger ledger(PaceFor(3, 3), Epochs(100, 997), 997, {});
  const auto save = [&ledger] {
    v1::MasterImage image;
    ledger.Save(&image);
    return image;
  };
  size_t bytes = 0;
  for (uint64_t lease = 1; lease <= 500; ++lease) {
    for (const Assignment& assignment : AssignAll(&ledger, members)) EXPECT_EQ(assignment.number, lease);
    PlanLedger restored(PaceFor(3, 3), Epochs(100, 997), 997, {});
    restored.Restore(save());
    for (PlanLedger* const one : {&ledger, &restored}) {
      one->MarkDone(members[0], 16 * (lease - 1) + 5);
      FinishAll(one, {members[1], members[2]});
      one->MarkDone(members[0], 16 * lease);
      one->Forget(16 * lease);
    }
    v1::MasterImage image;
    restored.Save(&image);
    EXPECT_EQ(save().SerializeAsString(), image.SerializeAsString());
    if (lease == 2) bytes = save().ByteSizeLong();
  }
  EXPECT_LT(save().ByteSizeLong(), bytes + 50);
}

TEST(PlanLedgerTest, IgnoresStepsOfHoldersThatWereDealtNothing) {
  PlanLedger ledger(PaceFor(1, 3), Epochs(1, 100), 100, {});
  AssignAll(&ledger, Members(1));
  ledger.MarkDone(kHolder + 1, 3);
  EXPECT_EQ(ledger.done_samples(), 0u);
}

}  // namespace
}  // namespace catchment
