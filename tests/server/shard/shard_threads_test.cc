// Many threads on one shard: nothing is lost, nothing is counted twice. Worth a run under ThreadSanitizer.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "common/base/mutex.h"
#include "server/edge/train_stream.h"
#include "server/shard/shard.h"
#include "tests/server/shard/shard_harness.h"

namespace catchment {
namespace {

constexpr int kWorkers = 4;

// Holds one worker's answers until it takes them.
class Inbox final : public AnswerSink {
 public:
  void Deliver(Answer answer) override {
    MutexLock lock(&mu_);
    answers_.push_back(std::move(answer));
    changed_.Notify();
  }
  std::vector<Answer> Take(size_t count) {
    MutexLock lock(&mu_);
    changed_.Wait(&mu_, [&] { return answers_.size() >= count; });
    return std::move(answers_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<Answer> answers_ ABSL_GUARDED_BY(mu_);
};

// A worker that pushes ones, all blocks at once, and waits for the answers.
class Pusher {
 public:
  Pusher(Shard* shard, uint32_t worker, const std::atomic<double>* now = nullptr)
      : shard_(*shard),
        worker_(worker),
        now_(now),
        inbox_(std::make_shared<Inbox>()),
        versions_(shard->num_blocks(), 0) {}

  void Push(uint64_t sequence) {
    for (int block = 0; block < shard_.num_blocks(); ++block) {
      const BlockHeader header{.operation = v1::Block::PUSH_PULL,
                               .sequence = sequence,
                               .version = versions_[block],
                               .block = static_cast<uint32_t>(block),
                               .samples = 1,
                               .steps = sequence};
      Request request = MakeRequest(worker_, IncarnationOf(worker_), header, inbox_);
      request.contribution.values = shard_.pool()->Get(shard_.block_range(block).size());
      std::fill_n(request.contribution.values->data(), request.contribution.values->size(), 1.0f);
      std::vector<Answer> answers;
      ASSERT_TRUE(shard_.Handle(std::move(request), now_ == nullptr ? 0 : now_->load(), &answers).ok());
      Deliver(&answers);
    }
    for (const Answer& answer : inbox_->Take(versions_.size())) {
      const bool applied = answer.header.fate == v1::Block::APPLIED;
      late_ += answer.header.fate == v1::Block::LATE;
      ASSERT_TRUE(applied || answer.header.fate == v1::Block::ACCEPTED ||
                  answer.header.fate == v1::Block::LATE);
      ASSERT_GE(answer.header.version, versions_[answer.header.block] + applied);
      versions_[answer.header.block] = answer.header.version;
      for (int64_t i = 1; i < answer.payload->size(); ++i) {
        ASSERT_EQ(answer.payload->data()[i], answer.payload->data()[0])
            << "a block is one version throughout";
      }
    }
  }

  // Returns the blocks that came too late for their update.
  uint64_t late() const { return late_; }

 private:
  Shard& shard_;
  const uint32_t worker_;
  const std::atomic<double>* const now_;  // null: time stands still
  const std::shared_ptr<Inbox> inbox_;
  uint64_t late_ = 0;
  std::vector<uint64_t> versions_;
};

struct Size {
  int64_t values, block_size;
};
// Blocks that threads come to at once, and one so long that they meet in it.
constexpr Size kManyBlocks = {200, 48}, kLongBlock = {1 << 16, 1 << 16};

void Hammer(const v1::Job& job, const Size& size, int pushes, int expected_version, float expected_weight) {
  const ParameterLayout layout = FlatLayout(size.values, 1, size.block_size);
  std::vector<uint64_t> checkpoints;
  Shard::Contents contents;
  contents.weights.assign(size.values, 0.0f);
  Shard shard(job, layout, 0, std::move(contents), [&](std::unique_ptr<PendingSnapshot> snapshot) {
    checkpoints.push_back(snapshot->Finish().state.checkpoint());
  });
  std::vector<uint32_t> workers;
  for (uint32_t worker = 0; worker < kWorkers; ++worker) workers.push_back(worker);
  std::atomic<uint64_t> generation{0};
  const auto set_rosters = [&] {
    v1::ShardCommand command;
    command.set_generation(++generation);
    *command.add_rosters() = MakeRoster(0, workers);
    // Ahead of where the shard is, or already passed when it hears of it.
    command.set_checkpoint(shard.version() / 10 * 10 + 10);
    command.set_checkpoint_version(command.checkpoint());
    std::vector<Answer> answers;
    shard.SetRosters(command, /*now=*/0, &answers);
    Deliver(&answers);
  };
  set_rosters();

  std::vector<std::thread> threads;
  for (uint32_t worker : workers) {
    threads.emplace_back([&shard, worker, pushes] {
      Pusher pusher(&shard, worker);
      for (int i = 0; i < pushes; ++i) pusher.Push(i + 1);
    });
  }
  std::atomic<bool> done{false};
  std::thread onlooker([&] {
    uint64_t last = 0;
    while (!done) {
      const v1::ShardReport report = shard.Report();
      EXPECT_GE(report.version(), last);
      last = report.version();
      EXPECT_EQ(shard.Snapshot().weights.size(), static_cast<size_t>(size.values));
      set_rosters();
    }
  });
  for (std::thread& thread : threads) thread.join();
  done = true;
  onlooker.join();

  EXPECT_EQ(shard.version(), static_cast<uint64_t>(expected_version));
  EXPECT_EQ(shard.Weights(), std::vector<float>(size.values, expected_weight));
  EXPECT_TRUE(std::is_sorted(checkpoints.begin(), checkpoints.end(), std::less_equal<uint64_t>()));
  ASSERT_FALSE(checkpoints.empty());
  EXPECT_EQ(checkpoints.front(), 10u) << "announced before the first push";
  uint64_t applied = 0, in_table = 0;
  const v1::ShardReport report = shard.Report();
  for (const v1::WorkerStatistics& statistics : report.workers()) {
    applied += statistics.applied();
    for (uint64_t count : statistics.staleness_counts()) in_table += count;
    EXPECT_EQ(statistics.duplicate() + statistics.late() + statistics.non_finite(), 0u);
  }
  EXPECT_EQ(applied, static_cast<uint64_t>(kWorkers * pushes));
  EXPECT_EQ(in_table, applied);
  EXPECT_EQ(shard.Report().samples(), applied);
}

TEST(ShardThreadsTest, AsynchronousPushesAreAllAppliedOnce) {
  Hammer(GradientJob(false), kManyBlocks, 250, 250 * kWorkers, -250.0f * kWorkers);
  Hammer(GradientJob(false), kLongBlock, 100, 100 * kWorkers, -100.0f * kWorkers);
}

TEST(ShardThreadsTest, SynchronousRoundsTakeOneContributionOfEach) {
  Hammer(GradientJob(true), kManyBlocks, 250, 250, -250.0f);
  Hammer(GradientJob(true), kLongBlock, 50, 50, -50.0f);
}

TEST(ShardThreadsTest, GroupsTakeOneContributionOfEachMember) {
  Hammer(GradientJobWith("consistency { grouped { groups: 2 } }"), kManyBlocks, 250, 500, -500.0f);
}

TEST(ShardThreadsTest, AcceptedPushesAreAllAppliedOnce) {
  Hammer(GradientJobWith("consistency { n_softsync { n: 1 } }"), kManyBlocks, 250, 250, -250.0f);
}

TEST(ShardThreadsTest, LockstepReleasesWhoItHolds) {
  const v1::Job job = GradientJobWith("consistency { bounded_staleness { bound: 0 } }");
  Hammer(job, kManyBlocks, 250, 250 * kWorkers, -250.0f * kWorkers);
}

// Receives calls over connections that open and close.
struct CountingSink final : AnswerSink {
  explicit CountingSink(std::atomic<uint64_t>* calls) : calls(*calls) {}
  void Deliver(Answer answer) override { calls += answer.header.operation == v1::Block::CALL; }
  std::atomic<uint64_t>& calls;
};

TEST(ShardThreadsTest, DeadlinesPassWhilePushesGoOn) {
  constexpr int kPushes = 200;
  const v1::Job job = GradientJobWith(
      "consistency { quorum { minimum: 1 grace: 0.5 longest_grace_seconds: 1 } } "
      "contribution { pseudo_gradient { local_steps: 1 overlap_steps: 2 } }");
  const ParameterLayout layout = FlatLayout(kManyBlocks.values, 1, kManyBlocks.block_size);
  Shard::Contents contents;
  contents.weights.assign(kManyBlocks.values, 0.0f);
  Shard shard(job, layout, 0, std::move(contents), [](std::unique_ptr<PendingSnapshot>) {});
  std::vector<uint32_t> workers;
  for (uint32_t worker = 0; worker < kWorkers; ++worker) workers.push_back(worker);
  uint64_t generation = 0;
  const auto set_rosters = [&](double now) {
    v1::ShardCommand command;
    command.set_generation(++generation);
    command.set_step_seconds(0.5);
    *command.add_rosters() = MakeRoster(0, workers);
    std::vector<Answer> answers;
    shard.SetRosters(command, now, &answers);
    Deliver(&answers);
  };
  set_rosters(0);

  std::atomic<double> now{0};
  std::atomic<uint64_t> late{0}, calls{0};
  std::vector<std::thread> threads;
  for (uint32_t worker : workers) {
    threads.emplace_back([&, worker] {
      Pusher pusher(&shard, worker, &now);
      for (int i = 0; i < kPushes; ++i) pusher.Push(i + 1);
      late += pusher.late();
    });
  }
  std::atomic<bool> done{false};
  std::thread timer([&] {
    while (!done) {
      now = now + 0.01;
      std::vector<Answer> answers;
      if (shard.NextDeadline() <= now) shard.Tick(now, &answers);
      Deliver(&answers);
    }
  });
  std::thread connections([&] {
    while (!done) {
      const auto sink = std::make_shared<CountingSink>(&calls);
      for (uint32_t worker : workers) {
        std::vector<Answer> due = shard.Connected(worker, IncarnationOf(worker), sink);
        Deliver(&due);
      }
      shard.CountAnswer(0.001);
      set_rosters(now);
      for (uint32_t worker : workers) shard.Disconnected(worker, IncarnationOf(worker), /*by_peer=*/true);
    }
  });
  for (std::thread& thread : threads) thread.join();
  done = true;
  timer.join();
  connections.join();

  uint64_t applied = 0;
  const ShardSnapshot snapshot = shard.Snapshot();
  for (const v1::BlockState& block : snapshot.state.blocks()) applied += block.samples();
  EXPECT_EQ(applied + late, static_cast<uint64_t>(kWorkers * kPushes * shard.num_blocks()));
  const v1::QuorumStatistics counts = shard.Report().quorum();
  uint64_t merged = 0, versions = 0;
  for (int i = 0; i < counts.merged_values_size(); ++i)
    merged += counts.merged_values(i) * counts.merged_counts(i);
  for (const v1::BlockState& block : snapshot.state.blocks()) versions += block.version();
  EXPECT_EQ(merged, applied);
  EXPECT_EQ(counts.by_all() + counts.by_grace() + counts.by_loss(), versions);
  EXPECT_GT(calls, 0u);
}

// Snapshots that begin, and are copied, while pushes go on.
class Snapshots {
 public:
  void Add(std::unique_ptr<PendingSnapshot> snapshot) {
    MutexLock lock(&mu_);
    waiting_.push_back(std::move(snapshot));
    changed_.Notify();
  }
  std::unique_ptr<PendingSnapshot> Take() {
    MutexLock lock(&mu_);
    changed_.Wait(&mu_, [&] { return !waiting_.empty(); });
    std::unique_ptr<PendingSnapshot> first = std::move(waiting_.front());
    waiting_.erase(waiting_.begin());
    return first;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<std::unique_ptr<PendingSnapshot>> waiting_ ABSL_GUARDED_BY(mu_);
};

// Every push takes 1 from each value of a block, and leaves the sum of all gradients in the momentum.
void CheckIsOneMoment(const ShardSnapshot& snapshot, int64_t block_size) {
  for (int b = 0; b < snapshot.state.blocks_size(); ++b) {
    const uint64_t version = snapshot.state.blocks(b).version();
    const int64_t end = std::min<int64_t>((b + 1) * block_size, snapshot.weights.size());
    for (int64_t i = b * block_size; i < end; ++i) {
      ASSERT_EQ(snapshot.weights[i], -static_cast<float>(version)) << "value " << i << " of block " << b;
      ASSERT_EQ(snapshot.states[0][i], version == 0 ? 0.0f : 1.0f) << "value " << i << " of block " << b;
    }
    uint64_t marked = 0;
    for (const v1::Watermark& watermark : snapshot.state.watermarks()) {
      const auto& partial = watermark.partial();
      marked += watermark.sequence() + std::count(partial.begin(), partial.end(), static_cast<uint32_t>(b));
    }
    ASSERT_EQ(marked, version) << "the pushes that the watermarks say are in block " << b;
  }
}

TEST(ShardThreadsTest, SnapshotsAreOfOneMomentWhilePushesGoOn) {
  constexpr int kPushes = 200, kSnapshots = 30;
  v1::Job job = GradientJob(false);
  // Momentum that forgets all but the last gradient: a state to be copied, and weights that count the pushes.
  job.mutable_optimizer()->set_momentum(1e-30f);
  for (const Size& size : {kManyBlocks, kLongBlock}) {
    const ParameterLayout layout = FlatLayout(size.values, 1, size.block_size);
    Shard::Contents contents;
    contents.weights.assign(size.values, 0.0f);
    Snapshots begun;
    Shard shard(job, layout, 0, std::move(contents),
                [&](std::unique_ptr<PendingSnapshot> snapshot) { begun.Add(std::move(snapshot)); });
    v1::ShardCommand command;
    command.set_generation(1);
    std::vector<uint32_t> workers;
    for (uint32_t worker = 0; worker < kWorkers; ++worker) workers.push_back(worker);
    *command.add_rosters() = MakeRoster(0, workers);
    std::vector<Answer> answers;
    shard.SetRosters(command, /*now=*/0, &answers);

    std::vector<std::thread> threads;
    for (uint32_t worker : workers) {
      threads.emplace_back([&shard, worker] {
        Pusher pusher(&shard, worker);
        for (int i = 0; i < kPushes; ++i) pusher.Push(i + 1);
      });
    }
    threads.emplace_back([&] {
      for (int i = 0; i < kSnapshots; ++i) shard.Checkpoint(i + 1);
    });
    threads.emplace_back([&] {
      for (int i = 0; i < kSnapshots; ++i) CheckIsOneMoment(shard.Snapshot(), size.block_size);
    });
    for (int i = 0; i < kSnapshots; ++i) CheckIsOneMoment(begun.Take()->Finish(), size.block_size);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(shard.Weights(), std::vector<float>(size.values, -1.0f * kPushes * kWorkers));
  }
}

}  // namespace
}  // namespace catchment
