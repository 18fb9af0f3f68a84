// A shard with consistency.quorum: updates at times, calls, and that every contribution has one fate.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "server/shard/deadlines.h"
#include "tests/server/shard/shard_harness.h"

namespace catchment {
namespace {

// An overlap of 2 steps.
v1::Job QuorumJob(uint32_t minimum, double grace) {
  return GradientJobWith(
      absl::StrCat("consistency { quorum { minimum: ", minimum, " grace: ", grace,
                   " longest_grace_seconds: 10 } } "
                   "contribution { pseudo_gradient { local_steps: 4 overlap_steps: 2 } }"));
}

// "worker 0 applied@1, worker 1 late@1, worker 2 called@0"; @: the version.
std::string Text(const std::vector<Reply>& replies) {
  std::string text;
  for (const Reply& reply : replies) {
    const char* const what = reply.header.operation == v1::Block::CALL ? "called"
                             : reply.header.fate == v1::Block::APPLIED ? "applied"
                             : reply.header.fate == v1::Block::LATE    ? "late"
                                                                       : "other";
    absl::StrAppend(&text, text.empty() ? "" : ", ", reply.to, " ", what, "@", reply.header.version);
  }
  return text;
}

// Four values, and steps of one second.
class ShardQuorumTest : public testing::Test {
 protected:
  void Begin(uint32_t minimum, double grace, const std::vector<uint32_t>& workers, int64_t block_size = 4) {
    harness_ = std::make_unique<ShardHarness>(QuorumJob(minimum, grace), 4, block_size, workers);
    harness_->SetStepSeconds(1);
  }

  std::string Push(double now, const Send& send) {
    harness_->SetTime(now);
    EXPECT_TRUE(harness_->Handle(send).ok());
    return Text(harness_->Take());
  }
  std::string Tick(double now) {
    harness_->Tick(now);
    return Text(harness_->Take());
  }
  // Opens a connection of the worker, and returns the calls that it is sent.
  std::string Connect(uint32_t worker, const std::string& name) {
    sinks_[worker] = std::make_shared<NamedSink>(name);
    std::vector<Answer> calls = harness_->shard().Connected(worker, IncarnationOf(worker), sinks_[worker]);
    std::vector<Reply> replies;
    for (const Answer& call : calls)
      replies.push_back({static_cast<NamedSink&>(*call.sink).name, call.header, {}});
    return Text(replies);
  }
  double Next() { return harness_->shard().NextDeadline(); }

  std::unique_ptr<ShardHarness> harness_;
  std::map<uint32_t, std::shared_ptr<NamedSink>> sinks_;
};

// "2 all, 1 grace, 0 loss; 1.5 s; 1: 1, 2: 2": updates by their ends, and by their contributions.
std::string Counts(ShardHarness* harness) {
  const v1::QuorumStatistics counts = harness->shard().Report().quorum();
  std::string text = absl::StrCat(counts.by_all(), " all, ", counts.by_grace(), " grace, ", counts.by_loss(),
                                  " loss; ", counts.grace_seconds(), " s");
  for (int i = 0; i < counts.merged_values_size(); ++i)
    absl::StrAppend(&text, i == 0 ? "; " : ", ", counts.merged_values(i), ": ", counts.merged_counts(i));
  return text;
}

TEST_F(ShardQuorumTest, ReportSaysWhatEndedUpdatesAndWhoseSamplesAreInThem) {
  Begin(1, 0.5, {0, 1, 2}, /*block_size=*/2);
  Push(0, {.worker = 0, .samples = 3});
  Push(0.25, {.worker = 1, .samples = 1});
  EXPECT_EQ(Counts(harness_.get()), "0 all, 0 grace, 0 loss; 0 s");
  EXPECT_EQ(Push(0.5, {.worker = 2, .samples = 4}),
            "worker 0 applied@1, worker 1 applied@1, worker 2 applied@1");
  EXPECT_EQ(Counts(harness_.get()), "1 all, 0 grace, 0 loss; 0.5 s; 3: 1");
  // The other block has the same update, made by its grace: of worker 0 alone.
  Push(1, {.worker = 0, .block = 1, .samples = 3});
  EXPECT_EQ(Tick(2), "worker 0 applied@1");
  EXPECT_EQ(Counts(harness_.get()), "1 all, 1 grace, 0 loss; 1.5 s; 1: 1, 3: 1");
  EXPECT_EQ(Push(3, {.worker = 1, .block = 1, .samples = 1}), "worker 1 late@1");
  EXPECT_EQ(harness_->Statistics(0).share_sum(), 3.0 / 8 + 1);
  EXPECT_EQ(harness_->Statistics(1).share_sum(), 1.0 / 8);
  EXPECT_EQ(harness_->Statistics(2).share_sum(), 4.0 / 8);
  EXPECT_EQ(harness_->Statistics(0).split(), 0u);
  EXPECT_EQ(harness_->Statistics(1).split(), 1u);
  EXPECT_FALSE(harness_->shard().Report(/*statistics=*/false).has_quorum());
}

TEST_F(ShardQuorumTest, UpdateAfterTheLastMissingWorkerHasLeftOrIsIdleCountsAsALoss) {
  Begin(1, 0.5, {0, 1, 2});
  Push(0, {.worker = 0});
  Push(0.25, {.worker = 1});
  harness_->SetTime(0.5);
  harness_->SetRosters({MakeRoster(0, {0, 1})});
  EXPECT_EQ(Text(harness_->Take()), "worker 0 applied@1, worker 1 applied@1");
  EXPECT_EQ(Counts(harness_.get()), "0 all, 0 grace, 1 loss; 0.5 s; 2: 1");
  Push(1, {.worker = 0, .sequence = 2, .version = 1});
  harness_->SetRosters({WithIdle(MakeRoster(0, {0, 1}), {1})});
  EXPECT_EQ(Text(harness_->Take()), "worker 0 applied@2");
  EXPECT_EQ(Counts(harness_.get()), "0 all, 0 grace, 2 loss; 0.5 s; 1: 1, 2: 1");
  Push(2, {.worker = 0, .sequence = 3, .version = 2});
  EXPECT_EQ(Counts(harness_.get()), "1 all, 0 grace, 2 loss; 0.5 s; 1: 2, 2: 1")
      << "of the only active member";
}

TEST_F(ShardQuorumTest, RostersThatArriveAfterTheDeadlineEndTheGrace) {
  Begin(1, 0.5, {0, 1, 2});
  Push(0, {.worker = 0});
  harness_->SetTime(4);
  harness_->SetRosters({MakeRoster(0, {0, 1})});
  EXPECT_EQ(Text(harness_->Take()), "worker 0 applied@1");
  EXPECT_EQ(Counts(harness_.get()), "0 all, 1 grace, 0 loss; 4 s; 1: 1");
}

TEST_F(ShardQuorumTest, ContributionsThatAreNotFiniteAreNotCounted) {
  Begin(1, 0.5, {0, 1});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Push(0, {.worker = 0, .value = nan});
  Push(0.5, {.worker = 1});
  EXPECT_EQ(Counts(harness_.get()), "1 all, 0 grace, 0 loss; 0.5 s; 1: 1");
  EXPECT_EQ(harness_->Statistics(0).share_sum(), 0);
  EXPECT_EQ(harness_->Statistics(1).share_sum(), 1);
}

TEST_F(ShardQuorumTest, UpdateOfAllIsMadeAtOnce) {
  Begin(1, 0.5, {0, 1});
  EXPECT_EQ(Push(0, {.worker = 0, .value = 1}), "");
  EXPECT_EQ(Push(0.5, {.worker = 1, .value = 3}), "worker 0 applied@1, worker 1 applied@1");
  EXPECT_EQ(Next(), Deadlines::kNever);
  EXPECT_EQ(harness_->shard().Weights()[0], -2);
}

TEST_F(ShardQuorumTest, TickMakesTheUpdateFromTheDeadlineOn) {
  for (const double time : {1.0, 1.5}) {
    Begin(1, 0.5, {0, 1, 2});
    EXPECT_EQ(Push(0, {.worker = 0, .value = 1}), "");
    EXPECT_DOUBLE_EQ(Next(), 1);
    EXPECT_EQ(Tick(0.999), "");
    EXPECT_EQ(Tick(time), "worker 0 applied@1");
    EXPECT_EQ(Next(), Deadlines::kNever);
    EXPECT_EQ(Tick(time + 1), "") << "no update is made twice";
    EXPECT_EQ(harness_->shard().Weights(), std::vector<float>(4, -1));
    EXPECT_EQ(Push(time + 1, {.worker = 1, .value = 1}), "worker 1 late@1");
    EXPECT_EQ(Next(), Deadlines::kNever) << "a late contribution begins no update";
    EXPECT_EQ(Push(time + 2, {.worker = 1, .sequence = 2, .version = 1, .value = 1}), "");
  }
}

TEST_F(ShardQuorumTest, RequestAfterTheDeadlineMakesTheUpdateToo) {
  Begin(1, 0.5, {0, 1, 2});
  Push(0, {.worker = 0});
  EXPECT_EQ(Push(1.2, {.worker = 2}), "worker 0 applied@1, worker 2 applied@1")
      << "it was in before the tick";
}

TEST_F(ShardQuorumTest, GraceBeginsWithTheQuorum) {
  Begin(2, 0.5, {0, 1, 2, 3});
  EXPECT_EQ(Push(0, {.worker = 0}), "");
  EXPECT_EQ(Next(), Deadlines::kNever);
  EXPECT_EQ(Push(0.6, {.worker = 3}), "");
  EXPECT_DOUBLE_EQ(Next(), 1.3);
  EXPECT_EQ(Push(1, {.worker = 2}), "");
  EXPECT_DOUBLE_EQ(Next(), 1.3);
  EXPECT_EQ(Tick(1.3), "worker 0 applied@1, worker 2 applied@1, worker 3 applied@1");
}

TEST_F(ShardQuorumTest, WithoutGraceOrOverlapLeftTheQuorumMakesTheUpdate) {
  Begin(2, 0, {0, 1, 2});
  EXPECT_EQ(Push(0, {.worker = 0}), "");
  EXPECT_EQ(Push(0.1, {.worker = 1}), "worker 0 applied@1, worker 1 applied@1");
  Begin(2, 0.5, {0, 1, 2});
  EXPECT_EQ(Push(0, {.worker = 0}), "");
  EXPECT_EQ(Push(5, {.worker = 1}), "worker 0 applied@1, worker 1 applied@1");
}

TEST_F(ShardQuorumTest, WithoutATimedStepTheGraceIsTheLongest) {
  harness_ = std::make_unique<ShardHarness>(QuorumJob(1, 0.5), 4, 2, std::vector<uint32_t>{0, 1});
  Push(3, {.worker = 0});
  EXPECT_DOUBLE_EQ(Next(), 13);
}

TEST_F(ShardQuorumTest, AnswersThatTakeTimeShortenTheGrace) {
  Begin(1, 0.5, {0, 1});
  for (int i = 0; i < 100; ++i) harness_->shard().CountAnswer(0.4);
  Push(0, {.worker = 0});
  EXPECT_NEAR(Next(), 0.8, 1e-6);
}

TEST_F(ShardQuorumTest, BlocksHaveDeadlinesOfTheirOwn) {
  Begin(1, 0.5, {0, 1}, /*block_size=*/2);
  Push(0, {.worker = 0, .block = 0});
  Push(0.25, {.worker = 0, .block = 1});
  EXPECT_DOUBLE_EQ(Next(), 1);
  EXPECT_EQ(Push(0.5, {.worker = 1, .block = 0}), "worker 0 applied@1, worker 1 applied@1");
  EXPECT_DOUBLE_EQ(Next(), 1.25);
  EXPECT_EQ(Tick(1.25), "worker 0 applied@1");
  EXPECT_EQ(Push(1.3, {.worker = 1, .block = 1}), "worker 1 late@1");
  EXPECT_EQ(harness_->Statistics(1).late() + harness_->Statistics(1).applied(), 1u) << "one push";
}

TEST_F(ShardQuorumTest, LastMissingWorkerThatLeavesKeepsNobodyWaiting) {
  Begin(3, 0.5, {0, 1, 2});
  Push(0, {.worker = 0});
  EXPECT_EQ(Push(0.1, {.worker = 2}), "");
  harness_->SetRosters({MakeRoster(0, {0, 2})});
  EXPECT_EQ(Text(harness_->Take()), "worker 0 applied@1, worker 2 applied@1");
  EXPECT_EQ(Next(), Deadlines::kNever);
}

TEST_F(ShardQuorumTest, ContributionOfAWorkerThatLeavesTakesItsDeadlineAlong) {
  Begin(1, 0.5, {0, 1, 2});
  Push(0, {.worker = 0, .value = 1});
  harness_->SetRosters({MakeRoster(0, {1, 2})});
  EXPECT_EQ(Text(harness_->Take()), "");
  EXPECT_EQ(Next(), Deadlines::kNever);
  EXPECT_EQ(Tick(50), "");
  EXPECT_EQ(Push(60, {.worker = 1}), "") << "an update with times of its own";
  EXPECT_DOUBLE_EQ(Next(), 61);
}

// It may wait for another block, whose update waits for a worker that waits for this one.
TEST_F(ShardQuorumTest, QuorumDoesNotWaitForAWorkerThatWasLate) {
  Begin(2, 0, {0, 1, 2});
  Push(0, {.worker = 0});
  EXPECT_EQ(Push(1, {.worker = 1}), "worker 0 applied@1, worker 1 applied@1");
  harness_->SetRosters({WithIdle(MakeRoster(0, {0, 1, 2}), {1})});
  EXPECT_EQ(Push(2, {.worker = 0, .sequence = 2, .version = 1}), "");
  EXPECT_EQ(Push(3, {.worker = 2}), "worker 2 late@1, worker 0 applied@2");
  EXPECT_EQ(Push(4, {.worker = 0, .sequence = 3, .version = 2}), "") << "that is of the update before";
  EXPECT_EQ(Push(5, {.worker = 2, .sequence = 2, .version = 1}), "worker 2 late@2, worker 0 applied@3");
  EXPECT_EQ(Push(6, {.worker = 2, .sequence = 3, .version = 3}), "");
  EXPECT_EQ(Push(7, {.worker = 0, .sequence = 4, .version = 3}), "worker 0 applied@4, worker 2 applied@4");
}

TEST_F(ShardQuorumTest, WorkerThatIsLateTwiceIsOneWorker) {
  Begin(2, 0, {0, 1, 2});
  Push(0, {.worker = 0});
  EXPECT_EQ(Push(1, {.worker = 1}), "worker 0 applied@1, worker 1 applied@1");
  EXPECT_EQ(Push(2, {.worker = 2}), "worker 2 late@1");
  EXPECT_EQ(Push(3, {.worker = 2, .sequence = 2}), "worker 2 late@1") << "it has ignored the answer";
  EXPECT_EQ(Push(4, {.worker = 0, .sequence = 2, .version = 1}), "");
  EXPECT_EQ(Push(5, {.worker = 1, .sequence = 2, .version = 1}), "worker 0 applied@2, worker 1 applied@2");
}

TEST_F(ShardQuorumTest, QuorumWaitsForAWorkerThatWasLateWhenItIsInTimeAgain) {
  Begin(3, 0, {0, 1, 2});
  harness_->SetRosters({WithIdle(MakeRoster(0, {0, 1, 2}), {2})});
  Push(0, {.worker = 0});
  EXPECT_EQ(Push(1, {.worker = 1}), "worker 0 applied@1, worker 1 applied@1");
  EXPECT_EQ(Push(2, {.worker = 2}), "worker 2 late@1");
  harness_->SetRosters({MakeRoster(0, {0, 1, 2})});
  EXPECT_EQ(Push(3, {.worker = 2, .sequence = 2, .version = 1}), "");
  EXPECT_EQ(Push(4, {.worker = 0, .sequence = 2, .version = 1}), "");
  EXPECT_EQ(Push(5, {.worker = 1, .sequence = 2, .version = 1}),
            "worker 0 applied@2, worker 1 applied@2, worker 2 applied@2");
}

TEST_F(ShardQuorumTest, MinimumAboveTheActiveMembersIsAllOfThem) {
  Begin(3, 0.5, {0, 1, 2});
  harness_->SetRosters({WithIdle(MakeRoster(0, {0, 1, 2}), {2})});
  Push(0, {.worker = 0});
  EXPECT_EQ(Next(), Deadlines::kNever);
  EXPECT_EQ(Push(9, {.worker = 1}), "worker 0 applied@1, worker 1 applied@1");
}

// ------------------------------------------------------------------------------------------------ calls

TEST_F(ShardQuorumTest, FirstContributionCallsTheOthersOnce) {
  Begin(1, 0.5, {0, 1, 2, 3}, /*block_size=*/2);
  harness_->SetRosters({WithIdle(MakeRoster(0, {0, 1, 2, 3}), {3})});
  for (const uint32_t worker : {0, 1, 2, 3}) Connect(worker, absl::StrCat("connection ", worker));
  EXPECT_EQ(Push(0, {.worker = 1}), "connection 0 called@0, connection 2 called@0");
  EXPECT_EQ(Push(0.1, {.worker = 1, .block = 1}), "") << "of the same fragment";
  EXPECT_EQ(Push(0.2, {.worker = 0}), "");
  EXPECT_EQ(Push(0.3, {.worker = 2}), "worker 0 applied@1, worker 1 applied@1, worker 2 applied@1");
  EXPECT_EQ(Push(0.4, {.worker = 2, .block = 1}), "");
  EXPECT_EQ(Push(0.5, {.worker = 0, .block = 1}),
            "worker 0 applied@1, worker 1 applied@1, worker 2 applied@1");
  EXPECT_EQ(Push(1, {.worker = 0, .sequence = 2, .version = 1, .block = 1}),
            "connection 1 called@1, connection 2 called@1");
  EXPECT_EQ(Push(1, {.worker = 0, .sequence = 2, .version = 1}), "");
}

TEST_F(ShardQuorumTest, CallsGoOverTheNewestConnectionThatIsThere) {
  Begin(1, 0.5, {0, 1, 2});
  Connect(1, "older");
  Connect(1, "newer");
  Connect(2, "closed");
  sinks_.erase(2);
  EXPECT_EQ(Push(0, {.worker = 0}), "newer called@0");
}

TEST_F(ShardQuorumTest, ConnectionThatIsOpenedDuringTheUpdateIsCalled) {
  Begin(1, 0.5, {0, 1, 2});
  EXPECT_EQ(Connect(1, "before"), "");
  Push(0, {.worker = 0});
  EXPECT_EQ(Connect(1, "during"), "during called@0");
  EXPECT_EQ(Tick(1), "worker 0 applied@1");
  EXPECT_EQ(Connect(1, "after"), "");
}

TEST_F(ShardQuorumTest, NobodyIsCalledIfAllAreAwaited) {
  Begin(3, 0.5, {0, 1, 2});
  Connect(1, "connection");
  EXPECT_EQ(Push(0, {.worker = 0}), "");
  Begin(1, 0.5, {0});
  EXPECT_EQ(Push(0, {.worker = 0}), "worker 0 applied@1") << "it is alone";
}

// -------------------------------------------------------------------------------------------- properties

// Workers push, leave, join and become idle while time passes.
class RandomRun {
 public:
  RandomRun(uint32_t minimum, double grace, uint64_t seed)
      : random_(seed), harness_(QuorumJob(minimum, grace), 4, 2, {}) {
    harness_.SetStepSeconds(1);
    for (int i = 0; i < 4; ++i) Join();
  }

  void Step() {
    now_ += 0.01 * static_cast<double>(random_.Below(20));
    harness_.SetTime(now_);
    switch (const uint64_t what = random_.Below(100)) {
      case 0:
        Join();
        break;
      case 1:
        if (!workers_.empty()) Leave();
        break;
      default:
        what < 30 ? harness_.Tick(now_) : Push();
    }
    TakeAnswers();
  }

  // Lets all workers finish what they have begun.
  void Finish() {
    for (auto& [index, worker] : workers_) {
      while (worker.block < kBlocks) PushBlock(index, &worker);
    }
    // Workers that are done have nothing to do any more, so the others are the quorum.
    for (int i = 0; i < 100 && IsWaited(); ++i) {
      std::vector<uint32_t> members, idle;
      for (const auto& [index, worker] : workers_) {
        members.push_back(index);
        if (worker.open.empty()) idle.push_back(index);
      }
      harness_.SetRosters({WithIdle(MakeRoster(0, members), idle)});
      now_ += 10;
      harness_.Tick(now_);
      TakeAnswers();
    }
    EXPECT_FALSE(IsWaited()) << "a contribution was never answered";
    const ShardSnapshot snapshot = harness_.shard().Snapshot();
    for (int b = 0; b < kBlocks; ++b) {
      EXPECT_EQ(snapshot.state.blocks(b).samples(), applied_[b]);
      EXPECT_EQ(snapshot.state.blocks(b).late_samples(), late_[b]);
      EXPECT_GT(applied_[b], 50u);
      updates += snapshot.state.blocks(b).version();
    }
    late += late_[0];
    ExpectCounted(snapshot);
  }

  uint64_t updates = 0, late = 0, split = 0, by_all = 0, by_grace = 0, by_loss = 0;

 private:
  static constexpr int kBlocks = 2;
  struct Worker {
    uint64_t sequence = 0;
    int block = kBlocks;      // the next one to be sent
    std::set<uint32_t> open;  // blocks that are not answered
    uint64_t versions[kBlocks] = {};
  };

  // The report has each update and each contribution to it once.
  void ExpectCounted(const ShardSnapshot& snapshot) {
    const v1::ShardReport report = harness_.shard().Report();
    const v1::QuorumStatistics& counts = report.quorum();
    uint64_t versions = 0, counted = 0, merged = 0;
    for (const v1::BlockState& block : snapshot.state.blocks()) versions += block.version();
    for (int i = 0; i < counts.merged_values_size(); ++i) {
      counted += counts.merged_counts(i);
      merged += counts.merged_values(i) * counts.merged_counts(i);
    }
    EXPECT_EQ(counts.by_all() + counts.by_grace() + counts.by_loss(), versions);
    EXPECT_EQ(counted, versions);
    EXPECT_EQ(merged, applied_[0] + applied_[1]);
    double shares = 0;
    for (const v1::WorkerStatistics& worker : report.workers()) {
      shares += worker.share_sum();
      split += worker.split();
    }
    EXPECT_NEAR(shares, static_cast<double>(versions), 1e-9 * static_cast<double>(versions));
    by_all += counts.by_all();
    by_grace += counts.by_grace();
    by_loss += counts.by_loss();
  }

  bool IsWaited() const {
    return std::any_of(workers_.begin(), workers_.end(), [](const auto& worker) {
      return !worker.second.open.empty() || worker.second.block < kBlocks;
    });
  }
  void Join() {
    const uint32_t index = joined_++;
    Worker worker;
    const ShardSnapshot snapshot = harness_.shard().Snapshot();
    for (int b = 0; b < kBlocks; ++b) worker.versions[b] = snapshot.state.blocks(b).version();
    workers_[index] = worker;
    SetRosters();
  }
  void Leave() {
    auto worker = workers_.begin();
    std::advance(worker, random_.Below(workers_.size()));
    workers_.erase(worker);
    SetRosters();
  }
  void SetRosters() {
    std::vector<uint32_t> indexes;
    for (const auto& [index, worker] : workers_) indexes.push_back(index);
    harness_.SetRosters({MakeRoster(0, indexes)});
  }
  void Push() {
    if (workers_.empty()) return;
    auto worker = workers_.begin();
    std::advance(worker, random_.Below(workers_.size()));
    PushBlock(worker->first, &worker->second);
  }
  void PushBlock(uint32_t index, Worker* worker) {
    if (worker->block == kBlocks) {
      if (!worker->open.empty()) return;
      ++worker->sequence;
      worker->block = 0;
    }
    const auto block = static_cast<uint32_t>(worker->block++);
    worker->open.insert(block);
    ASSERT_TRUE(harness_
                    .Handle({.worker = index,
                             .sequence = worker->sequence,
                             .version = worker->versions[block],
                             .value = 0.001f,
                             .block = block})
                    .ok());
    TakeAnswers();
  }
  void TakeAnswers() {
    for (const Reply& reply : harness_.Take()) {
      const uint32_t block = reply.header.block;
      const auto index = static_cast<uint32_t>(std::stoi(reply.to.substr(reply.to.find(' ') + 1)));
      if (reply.header.fate == v1::Block::APPLIED) {
        ++applied_[block];
        // All members of an update are answered with its version.
        uint64_t& version = versions_[block];
        if (reply.header.version != version) in_update_[block].clear();
        ASSERT_TRUE(reply.header.version == version || reply.header.version == version + 1);
        version = reply.header.version;
        ASSERT_TRUE(in_update_[block].insert(index).second) << "a worker is in an update twice";
      } else {
        ASSERT_EQ(reply.header.fate, v1::Block::LATE);
        ++late_[block];
      }
      const auto worker = workers_.find(index);
      if (worker == workers_.end()) continue;
      ASSERT_EQ(reply.header.sequence, worker->second.sequence);
      ASSERT_EQ(worker->second.open.erase(block), 1u) << "answered twice";
      worker->second.versions[block] = reply.header.version;
    }
  }

  Random random_;
  ShardHarness harness_;
  double now_ = 0;
  uint32_t joined_ = 0;
  std::map<uint32_t, Worker> workers_;
  uint64_t versions_[kBlocks] = {};
  std::set<uint32_t> in_update_[kBlocks];
  uint64_t applied_[kBlocks] = {}, late_[kBlocks] = {};
};

TEST(ShardQuorumPropertyTest, EveryContributionHasOneFateAndNoWorkerIsInAnUpdateTwice) {
  uint64_t updates = 0, late = 0, split = 0, by_all = 0, by_grace = 0, by_loss = 0;
  for (const uint32_t minimum : {1, 2, 4}) {
    for (const double grace : {0.0, 0.5}) {
      for (uint64_t seed = 1; seed <= 10; ++seed) {
        SCOPED_TRACE(absl::StrCat("minimum ", minimum, ", grace ", grace, ", seed ", seed));
        RandomRun run(minimum, grace, seed);
        for (int step = 0; step < 2000; ++step) ASSERT_NO_FATAL_FAILURE(run.Step());
        run.Finish();
        updates += run.updates;
        late += run.late;
        split += run.split;
        by_all += run.by_all;
        by_grace += run.by_grace;
        by_loss += run.by_loss;
      }
    }
  }
  EXPECT_GT(updates, 1000u);
  EXPECT_GT(late, 1000u);
  for (const uint64_t times : {split, by_all, by_grace, by_loss}) EXPECT_GT(times, 100u);
}

}  // namespace
}  // namespace catchment
