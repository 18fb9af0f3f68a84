#include "server/control/lease_ledger.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

#include "server/control/data_ledger.h"
#include "server/control/plan_ledger.h"

namespace catchment {
namespace {

using Counts = std::map<std::pair<uint64_t, uint64_t>, int>;

Budget Epochs(uint64_t epochs, uint64_t samples) {
  return {Position{epochs, 0}, std::nullopt, epochs * samples};
}
Budget Minibatches(uint64_t minibatches) { return {std::nullopt, minibatches, 0}; }
Pace PaceFor(uint64_t batch_size) { return {false, batch_size, 1, 1}; }

void Count(const Assignment& assignment, uint64_t begin, uint64_t end, Counts* counts) {
  for (uint64_t i = begin; i < end; ++i) {
    for (const Span& span : assignment.minibatches[i]) {
      for (uint64_t s = span.begin; s < span.end; ++s) ++(*counts)[{span.epoch, s}];
    }
  }
}

void ExpectEachOnce(const Counts& counts, uint64_t epochs, uint64_t samples) {
  EXPECT_EQ(counts.size(), epochs * samples);
  for (const auto& [sample, count] : counts) ASSERT_EQ(count, 1) << sample.first << "/" << sample.second;
}

// Workers take turns until all is done; returns the assignments in order.
std::vector<Assignment> RunToEnd(LeaseLedger* ledger, const std::vector<uint64_t>& members) {
  std::vector<Assignment> assignments;
  std::map<uint64_t, uint64_t> steps;
  for (uint64_t turn = 0; ledger->Prepare(members[turn % members.size()], members); ++turn) {
    const uint64_t member = members[turn % members.size()];
    assignments.push_back(ledger->Next(member, members));
    ledger->MarkDone(member, steps[member] += assignments.back().minibatches.size());
  }
  EXPECT_TRUE(ledger->AllDone());
  return assignments;
}

TEST(LeaseLedgerTest, DealsEachSampleOfAnEpochOnce) {
  for (uint64_t samples : {1, 5, 64, 997}) {
    for (uint64_t workers : {1, 2, 7}) {
      LeaseLedger ledger(PaceFor(6), Epochs(3, samples), samples, {});
      std::vector<uint64_t> members;
      for (uint64_t i = 0; i < workers; ++i) members.push_back(i + 1);
      Counts counts;
      for (const Assignment& assignment : RunToEnd(&ledger, members))
        Count(assignment, 0, assignment.minibatches.size(), &counts);
      ExpectEachOnce(counts, 3, samples);
      EXPECT_EQ(ledger.done_samples(), 3 * samples);
    }
  }
}

TEST(LeaseLedgerTest, MinibatchesNeverCrossAnEpoch) {
  LeaseLedger ledger(PaceFor(6), Epochs(20, 10), 10, {});
  const Assignment assignment = ledger.Next(1, {1});
  ASSERT_EQ(assignment.minibatches.size(), kMinibatchesPerLease);
  EXPECT_EQ(assignment.minibatches[0], (Step{{0, 0, 6}}));
  EXPECT_EQ(assignment.minibatches[1], (Step{{0, 6, 10}}));
  EXPECT_EQ(assignment.minibatches[2], (Step{{1, 0, 6}}));
}

TEST(LeaseLedgerTest, LeasesShrinkNearTheEnd) {
  LeaseLedger ledger(PaceFor(1), Epochs(1, 60), 60, {});
  const std::vector<uint64_t> members = {1, 2, 3};
  std::vector<size_t> sizes;
  for (const Assignment& assignment : RunToEnd(&ledger, members))
    sizes.push_back(assignment.minibatches.size());
  EXPECT_EQ(sizes.front(), 8u);  // 60 / 6 = 10, at most 8
  EXPECT_EQ(sizes[2], 7u);       // 44 / 6
  EXPECT_EQ(sizes.back(), 1u);
  EXPECT_TRUE(std::is_sorted(sizes.rbegin(), sizes.rend()));
}

TEST(LeaseLedgerTest, AWorkersLeasesHaveTheSizeThatIsSetAndShrinkAllTheSame) {
  LeaseLedger ledger(PaceFor(1), Epochs(1, 400), 400, {});
  const std::vector<uint64_t> members = {1, 2};
  ledger.SetLeaseSize(1, 50);
  EXPECT_EQ(ledger.Next(1, members).minibatches.size(), 50u);
  EXPECT_EQ(ledger.Next(2, members).minibatches.size(), kMinibatchesPerLease) << "of that worker alone";
  ledger.SetLeaseSize(1, 1000);
  EXPECT_EQ(ledger.Next(1, members).minibatches.size(), 85u) << "(400 - 58) / 4";
  ledger.SetLeaseSize(1, 1);
  EXPECT_EQ(ledger.Next(1, members).minibatches.size(), 1u);
  ledger.MarkDone(1, 136);
  ledger.Return(2, 0);
  EXPECT_EQ(ledger.done_samples(), 136u);
}

TEST(LeaseLedgerTest, BudgetOfMinibatches) {
  LeaseLedger ledger(PaceFor(10), Minibatches(37), 25, {});
  uint64_t minibatches = 0;
  for (const Assignment& assignment : RunToEnd(&ledger, {1, 2})) minibatches += assignment.minibatches.size();
  EXPECT_EQ(minibatches, 37u);
}

TEST(LeaseLedgerTest, LostWorkersMinibatchesCountAgain) {
  LeaseLedger ledger(PaceFor(10), Minibatches(37), 25, {});
  const Assignment lost = ledger.Next(9, {9});
  ledger.MarkDone(9, 3);
  EXPECT_EQ(ledger.Return(9, 5), lost.minibatches[3][0].end - lost.minibatches[3][0].begin +
                                     (lost.minibatches[4][0].end - lost.minibatches[4][0].begin))
      << "two steps had come to part of the blocks";
  uint64_t minibatches = 3;
  for (const Assignment& assignment : RunToEnd(&ledger, {1, 2})) minibatches += assignment.minibatches.size();
  EXPECT_EQ(minibatches, 37u);
}

TEST(LeaseLedgerTest, LostWorkersSamplesAreCoveredWhateverTheStep) {
  for (uint64_t lost_lease = 1; lost_lease <= 4; ++lost_lease) {
    for (uint64_t step = 0; step <= kMinibatchesPerLease; ++step) {
      LeaseLedger ledger(PaceFor(7), Epochs(3, 101), 101, {});
      Counts counts;
      Assignment assignment;
      uint64_t steps = 0;
      for (uint64_t i = 1; i <= lost_lease; ++i) {
        assignment = ledger.Next(1, {1, 2});
        const uint64_t done = i < lost_lease ? assignment.minibatches.size()
                                             : std::min<uint64_t>(step, assignment.minibatches.size());
        Count(assignment, 0, done, &counts);
        steps += done;
      }
      ledger.MarkDone(1, steps);
      ledger.Return(1, 0);
      for (const Assignment& rest : RunToEnd(&ledger, {2})) Count(rest, 0, rest.minibatches.size(), &counts);
      ExpectEachOnce(counts, 3, 101);
      EXPECT_EQ(ledger.done_samples(), 303u);
    }
  }
}

TEST(LeaseLedgerTest, IsNotDoneWhileSomebodyIsAtWork) {
  LeaseLedger ledger(PaceFor(10), Epochs(1, 10), 10, {});
  ledger.Next(1, {1});
  EXPECT_TRUE(ledger.AllAssigned());
  EXPECT_FALSE(ledger.AllDone());
  ledger.Return(1, 0);
  EXPECT_FALSE(ledger.AllAssigned());
  ledger.Next(2, {2});
  ledger.MarkDone(2, 1);
  EXPECT_TRUE(ledger.AllDone());
}

TEST(LeaseLedgerTest, MarkDoneTakesNothingBackAndIgnoresStepsThatWereNeverDealt) {
  LeaseLedger ledger(PaceFor(10), Epochs(1, 1000), 1000, {});
  ledger.Next(1, {1});
  ledger.MarkDone(1, 5);
  ledger.MarkDone(1, 2);
  ledger.MarkDone(3, 1);
  EXPECT_EQ(ledger.done_samples(), 50u);
  ledger.MarkDone(1, 1000000);
  EXPECT_EQ(ledger.done_samples(), 10 * kMinibatchesPerLease);
}

TEST(LeaseLedgerTest, StateHoldsAllThatIsNotDone) {
  LeaseLedger ledger(PaceFor(7), Epochs(3, 101), 101, {});
  Counts counts;
  const Assignment first = ledger.Next(1, {1, 2});
  const Assignment second = ledger.Next(2, {1, 2});
  ledger.MarkDone(1, 3);
  ledger.MarkDone(2, 5);
  Count(first, 0, 3, &counts);
  Count(second, 0, 5, &counts);
  const v1::MasterState state = ledger.StateAt({.version = 0});
  ASSERT_TRUE(CheckMasterState(state).ok()) << CheckMasterState(state);
  EXPECT_EQ(state.samples(), ledger.done_samples());
  EXPECT_EQ(state.steps(), 8u);
  LeaseLedger resumed(PaceFor(7), Epochs(3, 101), 101, state);
  for (const Assignment& rest : RunToEnd(&resumed, {5, 6})) Count(rest, 0, rest.minibatches.size(), &counts);
  ExpectEachOnce(counts, 3, 101);
}

// Steps done between the time when a checkpoint was taken and the time when all shards have saved it are not
// in it.
TEST(LeaseLedgerTest, StateOfACutHoldsWhatWasDoneAfterIt) {
  LeaseLedger ledger(PaceFor(10), Epochs(1, 1000), 1000, {});
  const Assignment gone = ledger.Next(1, {1, 2});
  ledger.Next(2, {1, 2});
  ledger.MarkDone(1, 2);
  ledger.MarkDone(2, 1);
  ledger.AwaitCheckpoint(true);
  // The shards have three steps of holder 1 and one of holder 2 when they take it.
  ledger.MarkDone(1, 5);
  ledger.MarkDone(2, 4);
  ledger.Return(1, 5);
  const Assignment again = ledger.Next(3, {2, 3});
  ASSERT_EQ(again.minibatches[0][0].begin, gone.minibatches[5][0].begin) << "it was returned";
  ledger.MarkDone(3, 2);
  const auto steps_of = [](std::map<uint64_t, uint64_t> steps) {
    return [steps = std::move(steps)](uint64_t holder) { return steps.at(holder); };
  };
  const Cut cut{.version = 9,
                .settled_steps = steps_of({{1, 3}, {2, 1}, {3, 0}}),
                .begun_steps = steps_of({{1, 3}, {2, 3}, {3, 1}})};
  const v1::MasterState state = ledger.StateAt(cut);
  ASSERT_TRUE(CheckMasterState(state).ok()) << CheckMasterState(state);
  EXPECT_EQ(state.samples(), 40u);
  EXPECT_EQ(state.steps(), 4u);
  EXPECT_EQ(state.repeated_samples(), 30u) << "two steps of holder 2, one of holder 3";
  ledger.AwaitCheckpoint(false);
  EXPECT_EQ(ledger.StateAt({.version = 9}).samples(), ledger.done_samples()) << "what is done now";
  EXPECT_EQ(ledger.done_samples(), 110u);
}

// A job may continue with a synchronous algorithm. Its plans must then begin at the version of the weights:
// from 0, plans that are made one after another would all be valid at once.
TEST(LeaseLedgerTest, SynchronousPlansContinueFromItsVersion) {
  LeaseLedger ledger(PaceFor(10), Epochs(1, 1000), 1000, {});
  ledger.Next(1, {1});
  ledger.MarkDone(1, 5);
  const v1::MasterState state = ledger.StateAt({.version = 40});
  EXPECT_EQ(state.version(), 40u);
  PlanLedger resumed(PaceFor(10), Epochs(1, 1000), 1000, state);
  EXPECT_EQ(resumed.Prepare(2, {2}), 40u);
  EXPECT_EQ(resumed.Next(2, {2}).first_version, 40u);
}

TEST(CheckMasterStateTest, NamesWhatNoMasterWrote) {
  v1::MasterState state;
  EXPECT_TRUE(CheckMasterState(state).ok());
  state.set_train_samples(100);
  state.set_next_position(100);
  EXPECT_FALSE(CheckMasterState(state).ok());
  state.set_next_position(50);
  EXPECT_TRUE(CheckMasterState(state).ok());
  *state.add_pending() = ToProto({0, 40, 51});
  EXPECT_FALSE(CheckMasterState(state).ok()) << "pending beyond the next fresh sample";
  *state.mutable_pending(0) = ToProto({0, 40, 50});
  EXPECT_TRUE(CheckMasterState(state).ok());
  *state.add_pending() = ToProto({0, 30, 41});
  const absl::Status twice = CheckMasterState(state);
  EXPECT_EQ(twice.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(std::string(twice.message()).find("sample 40 of epoch 0 is pending twice"), std::string::npos)
      << twice;
}

}  // namespace
}  // namespace catchment
