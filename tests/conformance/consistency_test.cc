// Every consistency makes exactly the updates of its definition. Each is compared with a reference of a few
// lines, in double precision and without versions, blocks or servers, whose only input is the order in which
// the workers pushed and left. The order is chosen at random among the workers that may continue, so the
// reference also determines which may.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "tests/conformance/in_process_parameters.h"
#include "tests/conformance/jobs.h"
#include "tests/conformance/layers.h"
#include "tests/conformance/least_squares.h"
#include "worker/algorithms/algorithm.h"

namespace catchment {
namespace {

constexpr int64_t kValues = 40;
constexpr int kWorkers = 5;
constexpr int kRounds = 40;
constexpr double kRate = 0.02;

const LeastSquares& Problem() {
  static const auto* const problem = new LeastSquares(kValues, 320, 1);
  return *problem;
}

// The batch of a worker; each worker has another batch size.
uint32_t Samples(int worker) { return 2 + worker; }
int64_t FirstRow(int worker, int round) { return 37 * worker + 11 * round; }

struct Pushed {
  std::vector<double> g;
  double samples = 0;
};

// SGD of workers i with weights x[i] on a center w.
class Reference {
 public:
  Reference() : w_(kValues, 0.0) {
    for (int i = 0; i < kWorkers; ++i) {
      x_[i] = w_;
      members_.insert(i);
    }
  }
  virtual ~Reference() = default;

  // Worker i's next gradient, at its weights.
  void Step(int i) {
    ASSERT_TRUE(MayGoOn(i)) << "worker " << i << " should have waited";
    const std::vector<float> x(x_[i].begin(), x_[i].end());
    std::vector<float> g(kValues);
    const int64_t first = FirstRow(i, rounds_[i]++);
    Problem().Gradient(first, first + Samples(i), x, absl::MakeSpan(g));
    Push(i, {{g.begin(), g.end()}, 1.0 * Samples(i)});
  }
  virtual void Leave(int i) { members_.erase(i); }
  virtual bool MayGoOn(int) const { return true; }

  const std::vector<double>& w() const { return w_; }
  int updates() const { return updates_; }
  int late() const { return late_; }

 protected:
  virtual void Push(int i, Pushed contribution) = 0;

  // w -= rate * sum b g / sum b
  void Update(const std::vector<Pushed>& contributions) {
    double samples = 0;
    for (const Pushed& c : contributions) samples += c.samples;
    for (const Pushed& c : contributions) {
      for (int64_t n = 0; n < kValues; ++n) w_[n] -= kRate * c.samples / samples * c.g[n];
    }
    ++updates_;
  }

  std::vector<double> w_;
  std::map<int, std::vector<double>> x_;
  std::map<int, int> rounds_;
  std::set<int> members_;
  int updates_ = 0;
  int late_ = 0;
};

class Groups final : public Reference {
 public:
  Groups(int groups, size_t backup_workers) : groups_(groups), backup_workers_(backup_workers) {}
  bool MayGoOn(int i) const override { return waiting_.count(i) == 0; }
  void Leave(int i) override {
    Reference::Leave(i);
    TryUpdate(i % groups_);
  }

 private:
  void Push(int i, Pushed contribution) override {
    const int group = i % groups_;
    if (seen_[i] < rounds_of_[group]) {  // its weights are of before the group's last update
      ++late_;
      return Send(i);
    }
    waiting_[i] = contribution;
    TryUpdate(group);
  }

  void TryUpdate(int group) {
    std::vector<int> in;
    size_t members = 0;
    for (int i = group; i < kWorkers; i += groups_) {
      members += members_.count(i);
      if (waiting_.count(i) > 0) in.push_back(i);
    }
    const size_t enough = members > backup_workers_ ? members - backup_workers_ : 1;
    if (in.empty() || in.size() < enough) return;
    std::vector<Pushed> contributions;
    for (int i : in) contributions.push_back(waiting_[i]);
    Update(contributions);
    ++rounds_of_[group];
    for (int i : in) {
      waiting_.erase(i);
      Send(i);
    }
  }

  void Send(int i) {
    x_[i] = w_;
    seen_[i] = rounds_of_[i % groups_];
  }

  const int groups_;
  const size_t backup_workers_;
  std::map<int, Pushed> waiting_;
  std::map<int, int> rounds_of_;  // of each group
  std::map<int, int> seen_;       // its group's round, by each worker
};

class Softsync final : public Reference {
 public:
  explicit Softsync(size_t n) : n_(n) {}
  void Leave(int i) override {
    Reference::Leave(i);
    Collect();
  }

 private:
  void Push(int i, Pushed contribution) override {
    queue_.push_back(contribution);
    Collect();
    x_[i] = w_;
  }

  void Collect() {
    const size_t batch = std::max<size_t>(1, members_.size() / n_);
    while (queue_.size() >= batch) {
      Update({queue_.begin(), queue_.begin() + batch});
      queue_.erase(queue_.begin(), queue_.begin() + batch);
    }
  }

  const size_t n_;
  std::deque<Pushed> queue_;
};

class Delay final : public Reference {
 public:
  explicit Delay(size_t delay) : delay_(delay) {}

 private:
  void Push(int i, Pushed contribution) override {
    queue_.push_back(contribution);
    if (queue_.size() > delay_) {
      Update({queue_.front()});
      queue_.pop_front();
    }
    x_[i] = w_;
  }

  const size_t delay_;
  std::deque<Pushed> queue_;
};

class Bounded final : public Reference {
 public:
  explicit Bounded(int bound) : bound_(bound) {}
  bool MayGoOn(int i) const override { return held_.count(i) == 0; }
  void Leave(int i) override {
    Reference::Leave(i);
    Release();
  }

 private:
  void Push(int i, Pushed contribution) override {
    Update({contribution});
    ++clock_[i];
    held_.insert(i);
    Release();
  }

  void Release() {
    int slowest = 1 << 30;
    for (int i : members_) slowest = std::min(slowest, clock_[i]);
    for (int i = 0; i < kWorkers; ++i) {
      if (clock_[i] <= slowest + bound_ && held_.erase(i) > 0) x_[i] = w_;
    }
  }

  const int bound_;
  std::map<int, int> clock_;
  std::set<int> held_;
};

class Limited final : public Reference {
 public:
  explicit Limited(int limit) : limit_(limit) {}

 private:
  void Push(int i, Pushed contribution) override {
    if (updates() - seen_[i] < limit_) {
      Update({contribution});
    } else {
      ++late_;
    }
    x_[i] = w_;
    seen_[i] = updates();
  }

  const int limit_;
  std::map<int, int> seen_;  // updates before its weights, by each worker
};

struct Mode {
  const char* name;
  const char* algorithm;
  std::function<std::unique_ptr<Reference>()> reference;
};

struct Outcome {
  std::vector<float> weights;
  std::vector<int> order;  // worker i pushed: i; left: -1 - i
  uint64_t version = 0;
  uint64_t late = 0;
};

Outcome Train(const v1::Job& job, uint64_t seed) {
  Outcome run;
  Random random(seed);
  // Once all have the first weights some are slower than others.
  const auto pick = [&random, turns = 0](const std::vector<int>& ready, int last) mutable {
    if (++turns < kWorkers) return VirtualCluster::NextInCircle(ready, last);
    const size_t a = random.Below(ready.size()), b = random.Below(ready.size());
    return ready[std::min(a, b)];
  };
  VirtualCluster cluster(job, std::vector<float>(kValues, 0.0f), kWorkers, {2, 16}, pick);
  std::vector<VirtualCluster::Work> works;
  for (int worker = 0; worker < kWorkers; ++worker) {
    works.push_back([&, worker](Parameters* parameters) {
      const auto algorithm = MakeAlgorithm(job, kValues, parameters);
      ASSERT_TRUE(algorithm->Start(0).ok());
      // Some leave before the end.
      for (int round = 0; round < kRounds - 5 * worker; ++round) {
        const auto gradient = InLayers([&](absl::Span<const float> w, absl::Span<float> g) {
          run.order.push_back(worker);
          const int64_t first = FirstRow(worker, round);
          Problem().Gradient(first, first + Samples(worker), w, g);
        });
        ASSERT_TRUE(algorithm->Run({Samples(worker), 0}, gradient).ok());
      }
      ASSERT_TRUE(algorithm->Finish().ok());
      run.late += algorithm->counts().late;
      run.order.push_back(-1 - worker);
      cluster.Leave(worker);
    });
  }
  cluster.Run(works);
  run.weights = cluster.Weights();
  run.version = cluster.shard(0).version();
  EXPECT_EQ(cluster.shard(1).version(), run.version);
  return run;
}

void Replay(const std::vector<int>& order, Reference* reference) {
  for (int event : order) event >= 0 ? reference->Step(event) : reference->Leave(-1 - event);
}

class ConsistencyTest : public testing::TestWithParam<Mode> {};

TEST_P(ConsistencyTest, MakesTheUpdatesOfItsDefinition) {
  const v1::Job job =
      PresetJob("downpour", kWorkers,
                "optimizer { kind: SGD learning_rate: 0.02 momentum: 0 } " +
                    std::string("algorithm { compensation { none {} } ") + GetParam().algorithm + " }");
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    const Outcome run = Train(job, seed);
    const auto reference = GetParam().reference();
    Replay(run.order, reference.get());
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
    EXPECT_EQ(run.version, static_cast<uint64_t>(reference->updates())) << "seed " << seed;
    EXPECT_EQ(run.late, static_cast<uint64_t>(reference->late())) << "seed " << seed;
    double moved = 0;
    for (int64_t n = 0; n < kValues; ++n) {
      ASSERT_NEAR(run.weights[n], reference->w()[n], 2e-5) << "seed " << seed << ", value " << n;
      moved = std::max(moved, std::abs(reference->w()[n]));
    }
    EXPECT_GT(moved, 0.05) << "the test would show nothing";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Modes, ConsistencyTest,
    testing::Values(Mode{"Synchronous", "consistency { synchronous {} }",
                         [] { return std::make_unique<Groups>(1, 0); }},
                    Mode{"BackupWorker", "consistency { synchronous { backup_workers: 1 } }",
                         [] { return std::make_unique<Groups>(1, 1); }},
                    Mode{"ThreeBackupWorkers", "consistency { synchronous { backup_workers: 3 } }",
                         [] { return std::make_unique<Groups>(1, 3); }},
                    Mode{"Hybrid", "consistency { grouped { groups: 2 } }",
                         [] { return std::make_unique<Groups>(2, 0); }},
                    Mode{"HybridWithBackupWorker", "consistency { grouped { groups: 2 backup_workers: 1 } }",
                         [] { return std::make_unique<Groups>(2, 1); }},
                    Mode{"OneSoftsync", "consistency { n_softsync { n: 1 } }",
                         [] { return std::make_unique<Softsync>(1); }},
                    Mode{"TwoSoftsync", "consistency { n_softsync { n: 2 } }",
                         [] { return std::make_unique<Softsync>(2); }},
                    Mode{"FiveSoftsync", "consistency { n_softsync { n: 5 } }",
                         [] { return std::make_unique<Softsync>(5); }},
                    Mode{"Asynchronous", "", [] { return std::make_unique<Delay>(0); }},
                    Mode{"Delay", "consistency { asynchronous { emulated_delay: 4 } }",
                         [] { return std::make_unique<Delay>(4); }},
                    Mode{"StalenessLimit", "consistency { asynchronous { staleness_limit: 4 } }",
                         [] { return std::make_unique<Limited>(4); }},
                    Mode{"FreshOnly", "consistency { asynchronous { staleness_limit: 1 } }",
                         [] { return std::make_unique<Limited>(1); }},
                    Mode{"Lockstep", "consistency { bounded_staleness { bound: 0 } }",
                         [] { return std::make_unique<Bounded>(0); }},
                    Mode{"Bounded", "consistency { bounded_staleness { bound: 3 } }",
                         [] { return std::make_unique<Bounded>(3); }}),
    [](const auto& info) { return info.param.name; });

// Worker 1 has nothing to do for a while: the others go on without it, and it comes back.
TEST(IdleTest, OthersGoOnWhileAWorkerHasNothingToDo) {
  constexpr int kPushes = 12;
  for (const char* algorithm :
       {"consistency { synchronous { backup_workers: 1 } }", "consistency { grouped { groups: 2 } }",
        "consistency { n_softsync { n: 1 } }", "consistency { bounded_staleness { bound: 0 } }",
        "consistency { bounded_staleness { bound: 2 } }",
        "consistency { asynchronous { emulated_delay: 3 } }",
        "consistency { asynchronous { staleness_limit: 2 } }"}) {
    const v1::Job job = PresetJob("downpour", 4, std::string("algorithm { ") + algorithm + " }");
    for (int rests_after = 0; rests_after < kPushes; ++rests_after) {
      VirtualCluster cluster(job, std::vector<float>(kValues, 1.0f), 4, {2, 16});
      std::vector<int> pushes(4, 0);
      const auto others = [&] { return std::min({pushes[0], pushes[2], pushes[3]}); };
      std::vector<VirtualCluster::Work> works;
      for (int worker = 0; worker < 4; ++worker) {
        works.push_back([&, worker](Parameters* parameters) {
          const auto algorithm = MakeAlgorithm(job, kValues, parameters);
          ASSERT_TRUE(algorithm->Start(0).ok());
          const auto small = InLayers([](absl::Span<const float> w, absl::Span<float> g) {
            for (size_t i = 0; i < w.size(); ++i) g[i] = 0.01f * w[i];
          });
          for (int push = 0; push < kPushes; ++push) {
            if (worker == 1 && push == rests_after) {
              ASSERT_TRUE(algorithm->Settle().ok());
              cluster.SetIdle(1, true);
              // The weights are asked for again and again, and the others have their turns.
              std::vector<float> weights(kValues);
              while (others() < kPushes - 1) ASSERT_TRUE(parameters->Pull(0, absl::MakeSpan(weights)).ok());
              cluster.SetIdle(1, false);
            }
            ASSERT_TRUE(algorithm->Run({1, 0}, small).ok());
            ++pushes[worker];
          }
          ASSERT_TRUE(algorithm->Finish().ok());
        });
      }
      cluster.Run(works);
      EXPECT_EQ(pushes, std::vector<int>(4, kPushes)) << algorithm << " after " << rests_after;
    }
  }
}

}  // namespace
}  // namespace catchment
