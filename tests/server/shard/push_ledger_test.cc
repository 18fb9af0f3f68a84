#include "server/shard/push_ledger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace catchment {
namespace {

using Seen = PushLedger::Seen;

PushLedger MakeLedger(int num_blocks) {
  PushLedger ledger(num_blocks);
  ledger.Begin(5);
  return ledger;
}

TEST(PushLedgerTest, BlockIsNewOnceAndDoneEverAfter) {
  PushLedger ledger = MakeLedger(2);
  EXPECT_EQ(*ledger.Lookup(1, 0), Seen::kNew);
  ledger.Done(1, 0, v1::Block::APPLIED, 0);
  EXPECT_EQ(*ledger.Lookup(1, 0), Seen::kDone);
  EXPECT_EQ(*ledger.Lookup(1, 1), Seen::kNew);
  ledger.Done(1, 1, v1::Block::APPLIED, 0);
  EXPECT_EQ(*ledger.Lookup(1, 0), Seen::kDone);
  EXPECT_EQ(*ledger.Lookup(1, 1), Seen::kDone);
  EXPECT_EQ(*ledger.Lookup(2, 0), Seen::kNew);
}

TEST(PushLedgerTest, SequenceNumbersThatLeaveOneOutAreRefused) {
  PushLedger ledger = MakeLedger(2);
  EXPECT_EQ(ledger.Lookup(2, 0).status().message(), "push 2 came before push 1 was complete");
  ledger.Done(1, 0, v1::Block::APPLIED, 0);
  EXPECT_EQ(ledger.Lookup(2, 0).status().code(), absl::StatusCode::kInvalidArgument)
      << "push 1 lacks block 1";
  ledger.Done(1, 1, v1::Block::APPLIED, 0);
  EXPECT_TRUE(ledger.Lookup(2, 0).ok());
  EXPECT_EQ(ledger.Lookup(3, 0).status().message(), "push 3 came before push 2 was complete");
  EXPECT_EQ(ledger.Lookup(0, 0).status().message(), "push 0: sequence numbers start at 1");
}

TEST(PushLedgerTest, SameBlockTwiceCompletesNothing) {
  PushLedger ledger = MakeLedger(2);
  ledger.Done(1, 0, v1::Block::APPLIED, 0);
  ledger.Done(1, 0, v1::Block::APPLIED, 0);
  EXPECT_EQ(ledger.Statistics(0).applied(), 0u);
  ledger.Done(1, 1, v1::Block::APPLIED, 0);
  ledger.Done(1, 1, v1::Block::APPLIED, 0);
  EXPECT_EQ(ledger.Statistics(0).applied(), 1u);
  EXPECT_EQ(*ledger.Lookup(2, 1), Seen::kNew) << "a late word about push 1 is not one about push 2";
  for (int i = 0; i < 3; ++i) ledger.Accept(2, 0);
  EXPECT_EQ(*ledger.Lookup(2, 1), Seen::kNew);
  EXPECT_TRUE(ledger.Arrived(1, 1, 0).ok());
  EXPECT_EQ(ledger.under_way(), 0u) << "push 1 is complete";
}

// Steps in pushes: answered, settled, begun.
std::string MarkOf(const PushLedger& ledger) {
  const v1::PushMark mark = ledger.Mark(3);
  EXPECT_EQ(mark.worker(), 3u);
  EXPECT_EQ(mark.incarnation(), ledger.incarnation());
  return absl::StrCat(mark.answered_steps(), " ", mark.settled_steps(), " ", mark.begun_steps());
}

TEST(PushLedgerTest, MarksFollowTheStepsOfWholePushes) {
  PushLedger ledger = MakeLedger(2);
  EXPECT_EQ(MarkOf(ledger), "0 0 0");
  EXPECT_TRUE(ledger.Arrived(1, 0, 4).ok());
  EXPECT_EQ(MarkOf(ledger), "0 0 0");
  ledger.Done(1, 0, v1::Block::APPLIED, 0);
  EXPECT_EQ(MarkOf(ledger), "0 0 4") << "one block has it";
  EXPECT_TRUE(ledger.Arrived(1, 1, 4).ok());
  ledger.Done(1, 1, v1::Block::LATE, 0);
  EXPECT_EQ(MarkOf(ledger), "4 4 4");
  EXPECT_TRUE(ledger.Arrived(2, 0, 9).ok());
  ledger.Done(2, 0, v1::Block::LATE, 0);
  EXPECT_EQ(MarkOf(ledger), "4 4 9") << "one block has counted its samples as late";
  ledger.Begin(6);
  EXPECT_EQ(MarkOf(ledger), "0 0 0");
  EXPECT_TRUE(ledger.Arrived(1, 0, 4).ok());
  ledger.Done(1, 0, v1::Block::NON_FINITE, 0);
  EXPECT_EQ(MarkOf(ledger), "0 0 0") << "no block has counted samples";
}

TEST(PushLedgerTest, AcceptedPushesAreAnsweredAndNotSettled) {
  PushLedger ledger = MakeLedger(1);
  for (uint64_t sequence : {1, 2}) {
    EXPECT_TRUE(ledger.Arrived(sequence, 0, 10 * sequence).ok());
    ledger.Accept(sequence, 0);
  }
  EXPECT_EQ(MarkOf(ledger), "20 0 0");
  ledger.Settle(5, 2, 0, v1::Block::APPLIED, 0);
  EXPECT_EQ(MarkOf(ledger), "20 0 0") << "push 1 is older";
  ledger.Settle(5, 1, 0, v1::Block::APPLIED, 0);
  EXPECT_EQ(MarkOf(ledger), "20 20 20");
}

TEST(PushLedgerTest, StepsThatFallOrDifferAreRefused) {
  PushLedger ledger = MakeLedger(2);
  EXPECT_TRUE(ledger.Arrived(1, 0, 4).ok());
  EXPECT_EQ(ledger.Arrived(1, 1, 5).message(), "push 1 holds 5 steps in block 1, and 4 in another one");
  EXPECT_TRUE(ledger.Arrived(1, 1, 4).ok());
  ledger.Done(1, 0, v1::Block::APPLIED, 0);
  ledger.Done(1, 1, v1::Block::APPLIED, 0);
  EXPECT_EQ(ledger.Arrived(2, 0, 3).message(),
            "push 2 and those before it hold 3 steps, fewer than the 4 of push 1");
  EXPECT_TRUE(ledger.Arrived(2, 0, 4).ok()) << "an exchange before the first step holds none";
}

TEST(PushLedgerTest, PushIsUnderWayFromItsFirstBlockToItsLast) {
  PushLedger ledger = MakeLedger(2);
  for (uint64_t sequence : {1, 2}) {
    EXPECT_EQ(ledger.under_way(), 0u);
    EXPECT_TRUE(ledger.Arrived(sequence, 1, sequence).ok());
    EXPECT_TRUE(ledger.Arrived(sequence, 1, sequence).ok());
    EXPECT_EQ(ledger.under_way(), sequence) << "the same block twice completes nothing";
    ledger.Done(sequence, 1, v1::Block::APPLIED, 0);
    EXPECT_EQ(ledger.under_way(), sequence);
    EXPECT_TRUE(ledger.Arrived(sequence, 0, sequence).ok());
    EXPECT_EQ(ledger.under_way(), 0u) << "it waits to be handled";
    ledger.Done(sequence, 0, v1::Block::APPLIED, 0);
  }
  EXPECT_TRUE(ledger.Arrived(3, 0, 3).ok());
  ledger.Begin(6);
  EXPECT_EQ(ledger.under_way(), 0u) << "a new life begins with nothing";
}

// The blocks of two fragments alternate.
PushLedger MakeLanes() {
  PushLedger ledger(std::vector<uint32_t>{0, 1, 0, 1});
  ledger.Begin(5);
  return ledger;
}

void PushWhole(PushLedger* ledger, uint64_t sequence, uint32_t fragment, uint64_t steps) {
  for (const uint32_t block : {fragment, fragment + 2}) {
    ASSERT_TRUE(ledger->Arrived(sequence, block, steps).ok());
    ledger->Done(sequence, block, v1::Block::APPLIED, 0);
  }
}

TEST(PushLedgerTest, EachFragmentHasItsOwnSequence) {
  PushLedger ledger = MakeLanes();
  PushWhole(&ledger, 1, 0, 2);
  EXPECT_EQ(*ledger.Lookup(1, 2), Seen::kDone);
  EXPECT_EQ(*ledger.Lookup(1, 1), Seen::kNew) << "of the other fragment";
  EXPECT_EQ(*ledger.Lookup(2, 0), Seen::kNew);
  EXPECT_EQ(ledger.Lookup(2, 1).status().message(), "push 2 came before push 1 was complete");
  EXPECT_TRUE(ledger.Arrived(2, 0, 8).ok());
  EXPECT_TRUE(ledger.Arrived(1, 1, 6).ok()) << "steps of one fragment do not bind another one";
  ledger.Done(1, 1, v1::Block::APPLIED, 0);
  EXPECT_TRUE(ledger.Arrived(1, 3, 6).ok());
  ledger.Done(1, 3, v1::Block::LATE, 0);
  EXPECT_EQ(ledger.Statistics(0).applied(), 2u);
  const v1::Watermark watermark = ledger.Watermark(0);
  EXPECT_EQ(watermark.sequence(), 1u);
  ASSERT_EQ(watermark.sequences_size(), 1);
  EXPECT_EQ(watermark.sequences(0), 1u);
}

TEST(PushLedgerTest, StepsAreSettledWhenAllFragmentsHaveThemAndBegunWithTheFirst) {
  PushLedger ledger = MakeLanes();
  EXPECT_EQ(MarkOf(ledger), "0 0 0");
  PushWhole(&ledger, 1, 0, 2);
  EXPECT_EQ(MarkOf(ledger), "0 0 2");
  PushWhole(&ledger, 1, 1, 4);
  EXPECT_EQ(MarkOf(ledger), "2 2 4");
  PushWhole(&ledger, 2, 0, 6);
  EXPECT_EQ(MarkOf(ledger), "4 4 6");
  ASSERT_TRUE(ledger.Arrived(2, 1, 6).ok());
  ledger.Done(2, 1, v1::Block::APPLIED, 0);
  EXPECT_EQ(MarkOf(ledger), "4 4 6");
  ASSERT_TRUE(ledger.Arrived(2, 3, 6).ok());
  ledger.Done(2, 3, v1::Block::APPLIED, 0);
  EXPECT_EQ(MarkOf(ledger), "6 6 6");
}

TEST(PushLedgerTest, FragmentsWithoutBlocksInTheShardDelayNothing) {
  PushLedger ledger(std::vector<uint32_t>{0, 2, 0, 2});
  ledger.Begin(5);
  PushWhole(&ledger, 1, 0, 3);
  ASSERT_TRUE(ledger.Arrived(1, 1, 4).ok());
  ASSERT_TRUE(ledger.Arrived(1, 3, 4).ok());
  for (const uint32_t block : {1, 3}) ledger.Done(1, block, v1::Block::APPLIED, 0);
  EXPECT_EQ(MarkOf(ledger), "3 3 4");
}

TEST(PushLedgerTest, MarksIgnoreFormerIncarnationsAndOtherFragmentsPushes) {
  PushLedger ledger = MakeLanes();
  for (const uint32_t block : {0, 2}) {
    ASSERT_TRUE(ledger.Arrived(1, block, 9).ok());
    ledger.Accept(1, block);
  }
  ledger.Settle(5, 1, 0, v1::Block::APPLIED, 0);
  EXPECT_EQ(MarkOf(ledger), "0 0 9");
  ledger.Begin(6);
  PushWhole(&ledger, 1, 0, 2);
  PushWhole(&ledger, 1, 1, 3);
  EXPECT_EQ(MarkOf(ledger), "2 2 3") << "a push of the former incarnation is not settled yet";
  PushWhole(&ledger, 2, 0, 5);
  for (const uint32_t block : {1, 3}) {
    ASSERT_TRUE(ledger.Arrived(2, block, 6).ok());
    ledger.Accept(2, block);
  }
  EXPECT_EQ(MarkOf(ledger), "5 3 5");
}

TEST(PushLedgerTest, PushesUnderWayHaveDifferentNumbers) {
  PushLedger ledger = MakeLanes();
  std::set<uint64_t> numbers;
  for (const uint64_t sequence : {1, 2, 3, 4}) {
    for (const uint32_t fragment : {0, 1}) {
      ASSERT_TRUE(ledger.Arrived(sequence, fragment, sequence).ok());
      EXPECT_NE(ledger.under_way(), 0u);
      numbers.insert(ledger.under_way());
      PushWhole(&ledger, sequence, fragment, sequence);
    }
  }
  EXPECT_EQ(numbers.size(), 8u);
}

TEST(PushLedgerTest, PushesOfTwoFragmentsAreUnderWayAtTheSameTime) {
  PushLedger ledger = MakeLanes();
  EXPECT_FALSE(ledger.all_arrived());
  ASSERT_TRUE(ledger.Arrived(1, 0, 2).ok());
  const uint64_t first = ledger.under_way();
  EXPECT_NE(first, 0u);
  ASSERT_TRUE(ledger.Arrived(1, 1, 4).ok());
  EXPECT_EQ(ledger.under_way(), first);
  ASSERT_TRUE(ledger.Arrived(1, 2, 2).ok());
  EXPECT_NE(ledger.under_way(), first);
  EXPECT_NE(ledger.under_way(), 0u);
  EXPECT_FALSE(ledger.all_arrived()) << "a block of the other push is on its way";
  EXPECT_FALSE(ledger.Mark(3).waits());
  ASSERT_TRUE(ledger.Arrived(1, 3, 4).ok());
  EXPECT_EQ(ledger.under_way(), 0u);
  EXPECT_TRUE(ledger.all_arrived());
  for (const uint32_t block : {0, 2}) ledger.Done(1, block, v1::Block::APPLIED, 0);
  EXPECT_TRUE(ledger.all_arrived()) << "nothing of the first fragment has arrived";
  EXPECT_TRUE(ledger.Mark(3).waits());
}

TEST(PushLedgerTest, CopyContinuesEachFragment) {
  PushLedger ledger = MakeLanes();
  PushWhole(&ledger, 1, 0, 2);
  PushWhole(&ledger, 1, 1, 4);
  PushWhole(&ledger, 2, 0, 6);
  ASSERT_TRUE(ledger.Arrived(2, 3, 8).ok());
  ledger.Done(2, 3, v1::Block::LATE, 0);
  PushLedger copy(std::vector<uint32_t>{0, 1, 0, 1});
  ASSERT_TRUE(copy.Restore(ledger.Save(3)).ok());
  EXPECT_EQ(MarkOf(copy), MarkOf(ledger));
  EXPECT_EQ(*copy.Lookup(2, 3), Seen::kDone);
  EXPECT_EQ(*copy.Lookup(2, 1), Seen::kNew);
  EXPECT_EQ(*copy.Lookup(3, 0), Seen::kNew);
  ASSERT_TRUE(copy.Arrived(2, 1, 8).ok());
  copy.Done(2, 1, v1::Block::APPLIED, 0);
  EXPECT_EQ(copy.Statistics(3).applied(), 4u);
  EXPECT_EQ(copy.Statistics(3).split(), 1u);
  EXPECT_EQ(MarkOf(copy), "6 6 8");
  ASSERT_TRUE(ledger.Restore(copy.Save(3)).ok());
  EXPECT_EQ(ledger.Statistics(3).SerializeAsString(), copy.Statistics(3).SerializeAsString());
  PushLedger other(4);
  EXPECT_EQ(other.Restore(ledger.Save(3)).message(), "the ledger of worker 3 has 2 fragments, not 1");
}

// Has everything that a copy must contain: statistics, pushes of two incarnations that are not counted, among
// them one that is older than the last one that was not finite, and, in each of three fragments, a push of
// which only some blocks have arrived.
PushLedger MakeBusyLedger() {
  PushLedger ledger(std::vector<uint32_t>{0, 1, 2, 0, 1, 2, 0, 1, 2});
  ledger.Begin(5);
  const auto accept = [&ledger](uint64_t sequence, uint32_t fragment, uint64_t steps) {
    for (const uint32_t block : {fragment, fragment + 3, fragment + 6}) {
      EXPECT_TRUE(ledger.Arrived(sequence, block, steps).ok());
      ledger.Accept(sequence, block);
    }
  };
  const auto settle = [&ledger](uint64_t sequence, std::vector<uint32_t> blocks, v1::Block::Fate fate,
                                uint64_t staleness, double seconds) {
    for (const uint32_t block : blocks) {
      ledger.Settle(ledger.incarnation(), sequence, block, fate, staleness, Lag{seconds, 18, 2});
    }
  };
  accept(1, 0, 2);
  ledger.Settle(5, 1, 0, v1::Block::APPLIED, 1, Lag{0.5, 8, 2});
  ledger.Begin(6);
  for (uint64_t i = 1; i <= 3; ++i) {
    for (const uint32_t fragment : {0, 1, 2}) accept(i, fragment, 10 * i + fragment);
  }
  settle(1, {0, 3, 6}, v1::Block::APPLIED, 3, 1);
  settle(1, {1, 4}, v1::Block::LATE, 0, 0);
  settle(1, {7}, v1::Block::APPLIED, 2, 3);
  settle(1, {2, 5, 8}, v1::Block::LATE, 0, 0);
  settle(3, {0, 3, 6}, v1::Block::NON_FINITE, 0, 0);
  settle(2, {1}, v1::Block::APPLIED, 7, 5);
  settle(2, {4}, v1::Block::LATE, 0, 0);
  settle(3, {1}, v1::Block::NON_FINITE, 0, 0);
  for (const uint32_t block : {0, 1, 2}) {
    EXPECT_TRUE(ledger.Arrived(4, block, 50 + block).ok());
    ledger.Done(4, block, v1::Block::APPLIED, 1);
  }
  ledger.CountDuplicate();
  return ledger;
}

std::string TextOf(const PushLedger& ledger) {
  return absl::StrCat(ledger.incarnation(), " ", ledger.under_way(), "\n", ledger.Statistics(3).DebugString(),
                      ledger.Mark(3).DebugString(), ledger.Watermark(3).DebugString());
}

// Settles everything that a busy ledger has not settled.
std::string TextsUntilTheEnd(PushLedger* ledger) {
  std::string texts;
  for (const uint32_t block : {3, 6}) ledger->Settle(5, 1, block, v1::Block::APPLIED, 0);
  absl::StrAppend(&texts, TextOf(*ledger));
  for (const uint64_t sequence : {2, 3}) {
    for (uint32_t block = 0; block < 9; ++block) {
      const bool is_settled = block == 1 || (sequence == 2 ? block == 4 : block % 3 == 0);
      if (!is_settled) ledger->Settle(6, sequence, block, v1::Block::APPLIED, 2, Lag{2, 4, 1});
      absl::StrAppend(&texts, TextOf(*ledger));
    }
  }
  for (uint32_t block = 0; block < 9; ++block) {
    absl::StrAppend(&texts, ledger->Arrived(4, block, 50 + block % 3).message());
    ledger->Done(4, block, v1::Block::APPLIED, 1);
    absl::StrAppend(&texts, TextOf(*ledger));
  }
  return texts;
}

TEST(PushLedgerTest, CopyContinuesEverything) {
  PushLedger ledger = MakeBusyLedger();
  PushLedger copy = MakeBusyLedger();
  ASSERT_TRUE(copy.Restore(ledger.Save(3)).ok());
  EXPECT_EQ(TextOf(copy), TextOf(ledger));
  const std::string texts = TextsUntilTheEnd(&ledger);
  EXPECT_EQ(TextsUntilTheEnd(&copy), texts);
  const v1::WorkerStatistics statistics = ledger.Statistics(3);
  EXPECT_EQ(statistics.applied(), 10u);
  EXPECT_EQ(statistics.late(), 1u);
  EXPECT_EQ(statistics.split(), 2u);
  EXPECT_EQ(statistics.non_finite(), 2u);
  EXPECT_EQ(MarkOf(ledger), "50 50 52");
}

TEST(PushLedgerTest, RefusesCopiesThatNamePartsItDoesNotHave) {
  const v1::WorkerLedger whole = MakeBusyLedger().Save(3);
  const auto error = [&whole](uint32_t done, uint32_t fragment) {
    v1::WorkerLedger saved = whole;
    saved.add_done(done);
    saved.mutable_pushes(0)->set_fragment(fragment);
    return std::string(PushLedger(MakeBusyLedger()).Restore(saved).message());
  };
  EXPECT_EQ(error(3, 0), "") << "two of three blocks of a fragment";
  EXPECT_EQ(error(9, 0), "the ledger of worker 3 names block 9 of 9");
  EXPECT_EQ(error(0, 0), "the ledger of worker 3 names block 0 of 9") << "twice";
  EXPECT_EQ(error(3, 3), "the ledger of worker 3 has a push of fragment 3 of 3");
  v1::WorkerLedger complete = whole;
  for (const uint32_t block : {3, 6}) complete.add_done(block);
  EXPECT_EQ(MakeBusyLedger().Restore(complete).message(), "the ledger of worker 3 names block 6 of 9")
      << "a push with all blocks would be the watermark";
}

TEST(PushLedgerTest, WatermarkNamesWhatIsDone) {
  PushLedger ledger = MakeLedger(3);
  for (uint32_t block : {0, 1, 2}) ledger.Done(1, block, v1::Block::APPLIED, 0);
  ledger.Done(2, 2, v1::Block::APPLIED, 0);
  ledger.Done(2, 0, v1::Block::APPLIED, 0);
  const v1::Watermark watermark = ledger.Watermark(9);
  EXPECT_EQ(watermark.worker(), 9u);
  EXPECT_EQ(watermark.incarnation(), 5u);
  EXPECT_EQ(watermark.sequence(), 1u);
  EXPECT_EQ(std::vector<uint32_t>(watermark.partial().begin(), watermark.partial().end()),
            (std::vector<uint32_t>{0, 2}));
}

TEST(PushLedgerTest, NewIncarnationBeginsItsNumbersAgainAndKeepsTheStatistics) {
  PushLedger ledger = MakeLedger(2);
  for (uint32_t block : {0, 1}) ledger.Done(1, block, v1::Block::APPLIED, 4);
  ledger.Done(2, 0, v1::Block::NON_FINITE, 0);
  ledger.Begin(6);
  EXPECT_EQ(ledger.Statistics(0).waiting(), 0u) << "the push that the former life left unfinished";
  EXPECT_EQ(ledger.incarnation(), 6u);
  EXPECT_EQ(*ledger.Lookup(1, 0), Seen::kNew);
  EXPECT_EQ(ledger.Lookup(2, 0).status().code(), absl::StatusCode::kInvalidArgument);
  for (uint32_t block : {0, 1}) ledger.Done(1, block, v1::Block::APPLIED, 1);
  EXPECT_EQ(ledger.Statistics(0).applied(), 2u);
  EXPECT_EQ(ledger.Statistics(0).non_finite(), 0u);
}

TEST(PushLedgerTest, PushesAreCountedOnceByTheWorstFateOfTheirBlocks) {
  PushLedger ledger = MakeLedger(2);
  auto push = [&, sequence = uint64_t{0}](v1::Block::Fate first, v1::Block::Fate second) mutable {
    ledger.Done(++sequence, 0, first, 0);
    ledger.Done(sequence, 1, second, 0);
  };
  push(v1::Block::APPLIED, v1::Block::APPLIED);
  push(v1::Block::LATE, v1::Block::APPLIED);
  push(v1::Block::LATE, v1::Block::LATE);
  push(v1::Block::APPLIED, v1::Block::NON_FINITE);
  push(v1::Block::NON_FINITE, v1::Block::NON_FINITE);
  ledger.CountDuplicate();
  v1::WorkerStatistics statistics = ledger.Statistics(3);
  EXPECT_EQ(statistics.worker(), 3u);
  EXPECT_EQ(statistics.applied(), 2u);
  EXPECT_EQ(statistics.late(), 1u);
  EXPECT_EQ(statistics.split(), 1u) << "one of the applied pushes";
  EXPECT_EQ(statistics.non_finite(), 2u);
  EXPECT_EQ(statistics.non_finite_in_a_row(), 2u);
  EXPECT_EQ(statistics.duplicate(), 1u);
  push(v1::Block::APPLIED, v1::Block::APPLIED);
  EXPECT_EQ(ledger.Statistics(3).non_finite_in_a_row(), 0u);
  EXPECT_EQ(ledger.Statistics(3).non_finite(), 2u);
}

TEST(PushLedgerTest, StalenessOfAPushIsTheLargestOfItsBlocks) {
  PushLedger ledger = MakeLedger(2);
  auto push = [&, sequence = uint64_t{0}](uint64_t first, uint64_t second) mutable {
    ledger.Done(++sequence, 0, v1::Block::APPLIED, first);
    ledger.Done(sequence, 1, v1::Block::APPLIED, second);
  };
  push(0, 0);
  push(3, 1);
  push(2, 3);
  const v1::WorkerStatistics statistics = ledger.Statistics(0);
  EXPECT_EQ(std::vector<uint64_t>(statistics.staleness_values().begin(), statistics.staleness_values().end()),
            (std::vector<uint64_t>{0, 3}));
  EXPECT_EQ(std::vector<uint64_t>(statistics.staleness_counts().begin(), statistics.staleness_counts().end()),
            (std::vector<uint64_t>{1, 2}));
}

TEST(PushLedgerTest, LagOfAPushIsItsSlowestBlocksTimeAndTheGapOverAllOfThem) {
  PushLedger ledger = MakeLedger(2);
  for (uint32_t block : {0, 1}) ledger.Accept(1, block);
  EXPECT_EQ(ledger.Statistics(0).waiting(), 1u);
  ledger.Settle(5, 1, 0, v1::Block::APPLIED, 0, Lag{2.0, 12, 3});
  ledger.Settle(5, 1, 0, v1::Block::APPLIED, 0, Lag{0.5, 24, 6});
  for (uint32_t block : {0, 1}) ledger.Accept(2, block);
  ledger.Settle(5, 2, 0, v1::Block::APPLIED, 0, Lag{0.5, 0, 3});
  ledger.Settle(5, 2, 0, v1::Block::APPLIED, 0, Lag{0.5, 0, 6});
  ledger.Done(3, 0, v1::Block::LATE, 0);
  v1::WorkerStatistics statistics = ledger.Statistics(0);
  EXPECT_EQ(statistics.waiting(), 0u) << "the third has a block to come, but is not answered whole";
  EXPECT_EQ(statistics.staleness_seconds_max(), 2);
  EXPECT_EQ(statistics.gap_count(), 2u);
  EXPECT_DOUBLE_EQ(statistics.gap_sum(), 2) << "sqrt((12 + 24) / (3 + 6)) and 0";
  EXPECT_DOUBLE_EQ(statistics.gap_max(), 2);
  ASSERT_EQ(statistics.staleness_us_size(), 2);
  EXPECT_NEAR(statistics.staleness_us(0), 5e5, 5e4);
  EXPECT_NEAR(statistics.staleness_us(1), 2e6, 2e5);
  EXPECT_EQ(statistics.staleness_us_counts(1), 1u);
}

TEST(PushLedgerTest, PushesThatAreNotAppliedHaveNoLagAndItsTableStaysSmall) {
  PushLedger ledger = MakeLedger(1);
  ledger.Done(1, 0, v1::Block::LATE, 0);
  ledger.Accept(2, 0);
  ledger.Settle(5, 2, 0, v1::Block::NON_FINITE, 0, Lag{1, 1, 1});
  EXPECT_EQ(ledger.Statistics(0).staleness_us_size(), 0);
  EXPECT_EQ(ledger.Statistics(0).gap_count(), 0u);
  for (uint64_t i = 3; i < 50'000; ++i) {
    ledger.Accept(i, 0);
    ledger.Settle(5, i, 0, v1::Block::APPLIED, 0, Lag{1e-5 * static_cast<double>(i * i), 0, 0});
  }
  EXPECT_LE(ledger.Statistics(0).staleness_us_size(), 116);
  EXPECT_EQ(ledger.Statistics(0).gap_count(), 0u) << "a shard without values of the sample";
}

// Two blocks, whose fates become known in another order than they came, and while later pushes come.
TEST(PushLedgerTest, AcceptedPushIsDoneAtOnceAndCountedWhenAllItsBlocksAreSettled) {
  PushLedger ledger = MakeLedger(2);
  for (uint64_t sequence : {1, 2}) {
    for (uint32_t block : {0, 1}) {
      EXPECT_EQ(*ledger.Lookup(sequence, block), Seen::kNew);
      ledger.Accept(sequence, block);
      EXPECT_EQ(*ledger.Lookup(sequence, block), Seen::kDone);
    }
  }
  ledger.Settle(5, 1, 0, v1::Block::APPLIED, 3);
  ledger.Settle(5, 2, 0, v1::Block::APPLIED, 7);
  EXPECT_EQ(ledger.Statistics(0).applied(), 0u);
  ledger.Settle(5, 2, 0, v1::Block::APPLIED, 4);
  EXPECT_EQ(ledger.Statistics(0).applied(), 1u);
  EXPECT_EQ(ledger.Statistics(0).staleness_values(0), 7u);
  ledger.Settle(5, 1, 0, v1::Block::APPLIED, 2);
  EXPECT_EQ(ledger.Statistics(0).applied(), 2u);
  EXPECT_EQ(ledger.Statistics(0).staleness_values(0), 3u);
}

TEST(PushLedgerTest, AcceptedPushesOfFormerIncarnationsAreCountedUnlessTheyBrokeOff) {
  PushLedger ledger = MakeLedger(2);
  for (uint32_t block : {0, 1}) ledger.Accept(1, block);
  ledger.Accept(2, 0);
  ledger.Begin(6);
  for (uint32_t block : {0, 1}) ledger.Accept(1, block);
  ledger.Settle(5, 2, 0, v1::Block::APPLIED, 0);
  ledger.Settle(5, 1, 0, v1::Block::APPLIED, 0);
  ledger.Settle(6, 1, 0, v1::Block::APPLIED, 0);
  EXPECT_EQ(ledger.Statistics(0).applied(), 0u) << "of each life's push 1 there is a block to come";
  ledger.Settle(5, 1, 0, v1::Block::APPLIED, 0);
  EXPECT_EQ(ledger.Statistics(0).applied(), 1u);
  ledger.Settle(6, 1, 0, v1::Block::APPLIED, 0);
  EXPECT_EQ(ledger.Statistics(0).applied(), 2u);
  for (uint32_t block : {0, 1}) ledger.Settle(6, 1, 0, v1::Block::APPLIED, block);
  EXPECT_EQ(ledger.Statistics(0).applied(), 2u) << "it was counted";
}

TEST(PushLedgerTest, OlderPushThatIsCountedAfterANaNDoesNotHideIt) {
  PushLedger ledger = MakeLedger(1);
  ledger.Accept(1, 0);
  ledger.Done(2, 0, v1::Block::NON_FINITE, 0);
  ledger.Settle(5, 1, 0, v1::Block::APPLIED, 0);
  ledger.Done(3, 0, v1::Block::NON_FINITE, 0);
  EXPECT_EQ(ledger.Statistics(0).non_finite_in_a_row(), 2u);
  ledger.Done(4, 0, v1::Block::APPLIED, 0);
  EXPECT_EQ(ledger.Statistics(0).non_finite_in_a_row(), 0u);
}

TEST(PushLedgerTest, TableOfStalenessStaysSmallAndWithinASixteenth) {
  PushLedger ledger = MakeLedger(1);
  for (uint64_t i = 0; i < 100'000; ++i) ledger.Done(i + 1, 0, v1::Block::APPLIED, i);
  const v1::WorkerStatistics statistics = ledger.Statistics(0);
  EXPECT_LE(statistics.staleness_values_size(), 256 + 16 * 9);
  uint64_t counted = 0;
  for (int i = 0; i < statistics.staleness_values_size(); ++i) {
    if (i < 256) {
      EXPECT_EQ(statistics.staleness_values(i), static_cast<uint64_t>(i));
    }
    const uint64_t next =
        i + 1 < statistics.staleness_values_size() ? statistics.staleness_values(i + 1) : 100'000;
    EXPECT_LE(next - statistics.staleness_values(i),
              std::max<uint64_t>(1, statistics.staleness_values(i) / 16));
    counted += statistics.staleness_counts(i);
  }
  EXPECT_EQ(counted, 100'000u);
}

}  // namespace
}  // namespace catchment
