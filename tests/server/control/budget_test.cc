#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "server/control/data_ledger.h"
#include "server/control/sample_source.h"
#include "tests/server/control/testing.h"

namespace catchment {
namespace {

TEST(BudgetTest, EpochsEndWithTheLastSample) {
  const Budget budget = BudgetOf(MakeJob({.epochs = 3}), 103);
  EXPECT_EQ(budget.end, (Position{3, 0}));
  EXPECT_EQ(budget.total_samples, 309u);
  EXPECT_FALSE(budget.steps.has_value());
}

TEST(BudgetTest, SamplesAreRoundedUpToWholeMinibatchesOfAllWorkers) {
  v1::Job job = MakeJob({.synchronous = true, .workers = 4, .batch_size = 8});
  job.set_samples(140);
  EXPECT_EQ(BudgetOf(job, 103).end, (Position{1, 64}));
  EXPECT_EQ(BudgetOf(job, 103).total_samples, 167u);
  job.mutable_algorithm()->mutable_consistency()->mutable_asynchronous();
  EXPECT_EQ(BudgetOf(job, 103).end, (Position{1, 40}));
}

TEST(BudgetTest, SamplesNeverRunOverTheEndOfAnEpoch) {
  v1::Job job = MakeJob({.workers = 4, .batch_size = 8});
  job.set_samples(100);
  EXPECT_EQ(BudgetOf(job, 103).end, (Position{1, 0}));
  job.set_samples(103);
  EXPECT_EQ(BudgetOf(job, 103).end, (Position{1, 0}));
}

TEST(BudgetTest, EpochsEndBeforeALastMinibatchThatIsLeftOut) {
  v1::Job job = MakeJob({.synchronous = false, .workers = 4, .batch_size = 8, .epochs = 3});
  job.set_last_minibatch(v1::Job::DROP);
  EXPECT_EQ(BudgetOf(job, 103).total_samples, 3 * 96u);
  EXPECT_EQ(BudgetOf(job, 104).total_samples, 3 * 104u) << "all minibatches are whole";
  EXPECT_EQ(BudgetOf(job, 7).total_samples, 3 * 7u) << "fewer than one minibatch";
  job.mutable_algorithm()->mutable_consistency()->mutable_synchronous();
  EXPECT_EQ(BudgetOf(job, 105).total_samples, 3 * 96u);
}

TEST(BudgetTest, LastMinibatchIsMergedIntoTheOneBefore) {
  v1::Job job = MakeJob({.synchronous = false, .workers = 4, .batch_size = 8, .epochs = 3});
  job.set_last_minibatch(v1::Job::MERGE);
  EXPECT_EQ(LargestMinibatch(job), 16u);
  EXPECT_EQ(BudgetOf(job, 103).total_samples, 3 * 103u);
  EXPECT_EQ(StepsPerEpoch(job, 103), 12u);
  EXPECT_EQ(StepsPerEpoch(job, 104), 13u) << "all minibatches are whole";
  EXPECT_EQ(StepsPerEpoch(job, 7), 1u) << "fewer than one minibatch";
  job.set_samples(80);
  EXPECT_EQ(BudgetOf(job, 103).end, (Position{0, 80}));
  job.set_samples(89);  // the twelfth minibatch has the last 15 samples
  EXPECT_EQ(BudgetOf(job, 103).end, (Position{1, 0}));
  job.set_samples(103);
  EXPECT_EQ(BudgetOf(job, 103).end, (Position{1, 0}));
  job.set_samples(3);
  EXPECT_EQ(BudgetOf(job, 7).end, (Position{1, 0}));
  job.set_updates(25);
  EXPECT_EQ(BudgetOf(job, 103).total_samples, 2 * 103u + 8);
  job.mutable_algorithm()->mutable_consistency()->mutable_synchronous();
  job.set_updates(4);  // 3 steps an epoch, the last of 39
  EXPECT_EQ(BudgetOf(job, 103).total_samples, 103u + 32);
}

// Takes leases for `workers` holders in turn to the end of the job, and returns the steps by epoch: of one
// worker, or in synchronous mode of all workers together.
std::map<uint64_t, std::vector<uint64_t>> SizesByEpoch(const v1::Job& job, uint64_t samples, uint64_t workers,
                                                       uint64_t* largest_part) {
  const auto ledger = MakeDataLedger(job, samples, {});
  const bool shared = PaceOf(job).synchronous;
  std::vector<uint64_t> members;
  for (uint64_t worker = 0; worker < workers; ++worker) members.push_back(100 + worker);
  std::map<uint64_t, std::vector<uint64_t>> sizes;
  std::map<Position, int> taken;
  while (!ledger->AllDone()) {
    std::vector<Step> steps;
    for (const uint64_t holder : members) {
      if (!ledger->Prepare(holder, members)) continue;
      const Assignment assignment = ledger->Next(holder, members);
      if (!shared) steps.clear();
      steps.resize(assignment.minibatches.size());
      for (size_t i = 0; i < steps.size(); ++i) {
        *largest_part = std::max(*largest_part, NumSamples(assignment.minibatches[i]));
        for (const Span& span : assignment.minibatches[i]) {
          Append(span, &steps[i]);
          for (uint64_t at = span.begin; at < span.end; ++at) EXPECT_EQ(++taken[Position(span.epoch, at)], 1);
        }
      }
      if (shared && holder != members.back()) continue;
      for (const Step& step : steps) {
        if (!step.empty()) sizes[step.front().epoch].push_back(NumSamples(step));
      }
    }
    for (const uint64_t holder : members) ledger->MarkDone(holder, UINT64_MAX);
  }
  EXPECT_EQ(taken.size(), job.epochs() * samples);
  return sizes;
}

TEST(BudgetTest, EveryEpochOfMergedMinibatchesHasEachSampleOnce) {
  for (const bool synchronous : {true, false}) {
    for (const uint64_t workers : {1u, 2u, 3u}) {
      for (const uint64_t samples : {5u, 24u, 25u, 64u, 65u, 71u}) {
        v1::Job job = MakeJob({.synchronous = synchronous,
                               .workers = static_cast<uint32_t>(workers),
                               .batch_size = 8,
                               .epochs = 3});
        job.set_last_minibatch(v1::Job::MERGE);
        uint64_t largest_part = 0;
        const auto sizes = SizesByEpoch(job, samples, workers, &largest_part);
        EXPECT_LE(largest_part, LargestMinibatch(job));
        EXPECT_EQ(sizes.size(), 3u);
        const uint64_t step = SamplesPerStep(job);
        for (const auto& [epoch, all] : sizes) {
          EXPECT_EQ(all.size(), StepsPerEpoch(job, samples))
              << samples << " samples, " << workers << " workers";
          std::vector<uint64_t> expected(all.size(), step);
          expected.back() = samples - (all.size() - 1) * step;
          EXPECT_EQ(all, expected) << samples << " samples, " << workers << " workers";
        }
      }
    }
  }
}

// A lost worker's minibatches are given out again as they were.
TEST(BudgetTest, MergedMinibatchesStayWholeAfterLosses) {
  v1::Job job = MakeJob({.synchronous = false, .batch_size = 8, .epochs = 4});
  job.set_last_minibatch(v1::Job::MERGE);
  const auto ledger = MakeDataLedger(job, 61, {});
  uint64_t samples = 0, begun = 0;
  for (uint64_t holder = 1; !ledger->AllDone(); ++holder) {
    ASSERT_TRUE(ledger->Prepare(holder, {holder}).has_value());
    const Assignment assignment = ledger->Next(holder, {holder});
    ASSERT_LT(++begun, 200u);
    for (const Step& step : assignment.minibatches)
      EXPECT_EQ(NumSamples(step), step.back().end == 61 ? 13u : 8u);
    const uint64_t done = assignment.minibatches.size() / 2 + 1;
    for (uint64_t i = 0; i < done; ++i) samples += NumSamples(assignment.minibatches[i]);
    ledger->MarkDone(holder, done);
    ledger->Return(holder, assignment.minibatches.size());
  }
  EXPECT_EQ(samples, 4 * 61u);
}

// Whatever workers come and go, every epoch has its whole minibatches, and each sample at most once.
TEST(BudgetTest, LedgerLeavesOutLastMinibatches) {
  v1::Job job = MakeJob({.batch_size = 8, .epochs = 2});
  job.set_last_minibatch(v1::Job::DROP);
  job.mutable_algorithm()->mutable_consistency()->mutable_asynchronous();
  const auto ledger = MakeDataLedger(job, 65, {});
  uint64_t samples = 0, begun = 0;
  for (uint64_t holder = 1; !ledger->AllDone(); ++holder) {
    ASSERT_TRUE(ledger->Prepare(holder, {holder}).has_value());
    const Assignment assignment = ledger->Next(holder, {holder});
    ASSERT_LT(++begun, 100u);
    for (const Step& step : assignment.minibatches) {
      EXPECT_EQ(NumSamples(step), 8u);
      for (const Span& span : step) EXPECT_LE(span.end, 64u);
    }
    ledger->MarkDone(holder, assignment.minibatches.size() / 2 + 1);  // and lost with the others
    samples += 8 * (assignment.minibatches.size() / 2 + 1);
    ledger->Return(holder, assignment.minibatches.size());
  }
  EXPECT_EQ(samples, 128u);
  EXPECT_EQ(ledger->done_samples(), 128u);
}

TEST(BudgetTest, JobThatBeginsToDropContinuesWithTheNextEpoch) {
  v1::Job job = MakeJob({.batch_size = 8, .epochs = 2});
  job.set_last_minibatch(v1::Job::DROP);
  v1::MasterState state;
  state.set_train_samples(65);
  state.set_next_position(64);
  const auto ledger = MakeDataLedger(job, 65, state);
  EXPECT_EQ(ledger->done_samples(), 64u);
  EXPECT_FALSE(ledger->AllAssigned());
}

TEST(BudgetTest, UpdatesAreStepsAndExpectedSamples) {
  v1::Job job = MakeJob({.workers = 2, .batch_size = 10, .push_period = 3});
  job.set_updates(4);  // 12 steps of 20 samples; 6 steps an epoch of 103
  EXPECT_EQ(BudgetOf(job, 103).steps, 12u);
  EXPECT_EQ(BudgetOf(job, 103).total_samples, 206u);
  job.set_updates(3);  // 9 steps
  EXPECT_EQ(BudgetOf(job, 103).total_samples, 163u);
}

TEST(BudgetTest, UpdatesTakeAsManyContributionsAsTheirModeSays) {
  struct Case {
    const char* consistency;
    uint64_t minibatches;
  };
  for (const Case& c : {Case{"grouped { groups: 2 }", 75},
                        {"grouped { groups: 2 backup_workers: 1 }", 75},
                        {"synchronous { backup_workers: 1 }", 150},
                        {"asynchronous {}", 30},
                        {"n_softsync { n: 1 }", 150},
                        {"n_softsync { n: 2 }", 60},
                        {"n_softsync { n: 4 }", 30}}) {
    v1::Job job = MakeJob({.synchronous = false, .workers = 5, .push_period = 3});
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(
        c.consistency, job.mutable_algorithm()->mutable_consistency()));
    EXPECT_FALSE(PaceOf(job).synchronous);
    job.set_updates(10);
    EXPECT_EQ(BudgetOf(job, 1000).steps, c.minibatches) << c.consistency;
  }
}

TEST(BudgetTest, PaceOfElasticContributionsIsTheCommunicationPeriod) {
  v1::Job job = MakeJob({});
  EXPECT_EQ(PaceOf(job).steps_per_version, 1u);
  EXPECT_FALSE(PaceOf(job).contributes_first);
  job.mutable_algorithm()->mutable_contribution()->mutable_elastic()->set_communication_period(7);
  EXPECT_EQ(PaceOf(job).steps_per_version, 7u);
  EXPECT_TRUE(PaceOf(job).contributes_first);
}

TEST(BudgetTest, PaceOfPseudoGradientsIsTheLocalSteps) {
  v1::Job job = MakeJob({.workers = 2, .batch_size = 10});
  v1::PseudoGradient* const contribution =
      job.mutable_algorithm()->mutable_contribution()->mutable_pseudo_gradient();
  contribution->set_local_steps(3);
  EXPECT_EQ(PaceOf(job).steps_per_version, 3u);
  EXPECT_EQ(PaceOf(job).unsent_steps, 0u);
  contribution->set_fragments(2);
  EXPECT_EQ(PaceOf(job).unsent_steps, 1u) << "the first fragment is sent after two";
  contribution->clear_fragments();
  job.set_updates(4);
  EXPECT_EQ(BudgetOf(job, 103).steps, 12u);
}

TEST(BudgetTest, PaceOfWhatIsSentEveryStepIsOne) {
  v1::Job job = MakeJob({});
  job.mutable_algorithm()->mutable_contribution()->mutable_energy_matching();
  EXPECT_EQ(PaceOf(job).steps_per_version, 1u);
  job.mutable_algorithm()->mutable_contribution()->mutable_look_ahead();
  EXPECT_EQ(PaceOf(job).steps_per_version, 1u);
}

}  // namespace
}  // namespace catchment
