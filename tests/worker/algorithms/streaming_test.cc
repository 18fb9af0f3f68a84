// Compares fragments, overlap and blend of pseudo-gradients with the paper's steps in double precision, and
// with the algorithms that they are without them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "tests/conformance/in_process_parameters.h"
#include "tests/conformance/jobs.h"
#include "tests/conformance/layers.h"
#include "worker/algorithms/algorithm.h"

namespace catchment {
namespace {

constexpr int kSize = 400;
constexpr double kEta = 0.05, kMu = 0.5;

struct Streaming {
  int local_steps = 6;
  int fragments = 3;
  int overlap = 2;
  double blend = 0.5;
};

std::string Name(const Streaming& s) {
  return absl::StrCat("H ", s.local_steps, ", P ", s.fragments, ", tau ", s.overlap, ", alpha ", s.blend);
}

v1::Job MakeJob(const Streaming& s, int workers,
                const std::string& optimizer = "learning_rate: 0.7 momentum: 0.9 nesterov: true") {
  return PresetJob("local_sgd", workers,
                   absl::StrCat("algorithm { contribution { pseudo_gradient { local_steps: ", s.local_steps,
                                " fragments: ", s.fragments, " overlap_steps: ", s.overlap, " blend: ",
                                s.blend, " local_optimizer { learning_rate: ", kEta, " momentum: ", kMu,
                                " schedule { decay: CONSTANT } } } } } optimizer { ", optimizer, " }"));
}

double Start(int k) { return 5 - 0.01 * k; }
double Target(int worker, int k) { return worker + 0.002 * k; }
const std::vector<uint32_t> kSamples = {1, 2, 5};

std::vector<float> Initial() {
  std::vector<float> initial(kSize);
  for (int k = 0; k < kSize; ++k) initial[k] = static_cast<float>(Start(k));
  return initial;
}

// The gradient of (x - Target)^2 / 2 in every coordinate.
auto GradientOf(int worker) {
  return InLayers([worker](absl::Span<const float> x, absl::Span<float> g) {
    for (int k = 0; k < kSize; ++k) g[k] = static_cast<float>(x[k] - Target(worker, k));
  });
}

// A program that moves weights as the job's local optimizer does, for the differences that it is asked for.
class Program final : public LocalWeights {
 public:
  Program(const v1::PseudoGradient& config, int worker, const Parameters& parameters)
      : blend_(config.blend()), worker_(worker), parameters_(parameters) {}

  void MakeStep() {
    for (int k = 0; k < kSize; ++k) {
      const float g = static_cast<float>(x_[k] - Target(worker_, k));
      v_[k] = static_cast<float>(kMu) * v_[k] + g;
      x_[k] -= static_cast<float>(kEta) * v_[k];
    }
  }
  absl::Span<float> received() override { return absl::MakeSpan(y_); }
  absl::Span<float> sent() override { return absl::MakeSpan(d_); }
  void Restart() override { x_ = y_; }
  void Use(int fragment) override {
    Visit(fragment, [this](int64_t k) { x_[k] = blend_ * x_[k] + (1 - blend_) * y_[k]; });
  }
  absl::Status Write(int fragment) override {
    Visit(fragment, [this](int64_t k) { d_[k] = y_[k] - x_[k]; });
    return absl::OkStatus();
  }

 private:
  void Visit(int fragment, absl::FunctionRef<void(int64_t)> visit) const {
    const bool whole = parameters_.num_fragments() == 1;
    for (const Range& range : whole ? std::vector<Range>{{0, kSize}} : parameters_.fragment(fragment)) {
      for (int64_t k = range.begin; k < range.end; ++k) visit(k);
    }
  }

  const float blend_;
  const int worker_;
  const Parameters& parameters_;
  std::vector<float> x_ = std::vector<float>(kSize), y_ = x_, d_ = x_, v_ = x_;
};

// The center after `steps` steps of each worker. `lease`: the steps of the job's last lease.
std::vector<float> Train(const v1::Job& job, int steps, int lease, const VirtualCluster::Split& split = {},
                         VirtualCluster::Pick pick = VirtualCluster::NextInCircle, bool kept = false) {
  const int workers = static_cast<int>(job.workers());
  VirtualCluster cluster(job, Initial(), workers, split, std::move(pick));
  std::vector<VirtualCluster::Work> works;
  for (int worker = 0; worker < workers; ++worker) {
    works.push_back([&, worker](Parameters* parameters) {
      Program program(job.algorithm().contribution().pseudo_gradient(), worker, *parameters);
      const auto algorithm = MakeAlgorithm(job, kSize, parameters, {.kept = kept ? &program : nullptr});
      const auto make_step = [&](absl::Span<const float> x, absl::Span<float> g, PassObserver*) {
        EXPECT_TRUE(x.empty() && g.empty());
        program.MakeStep();
      };
      ASSERT_TRUE(algorithm->Start(0).ok());
      for (int t = 1; t <= steps; ++t) {
        Algorithm::Step step{.samples = kSamples[worker], .progress = 0};
        if (t > steps - lease) step.left = steps - t;
        ASSERT_TRUE((kept ? algorithm->Run(step, make_step) : algorithm->Run(step, GradientOf(worker))).ok());
      }
      ASSERT_TRUE(algorithm->Finish().ok());
      EXPECT_EQ(algorithm->counts().late, 0u);
    });
  }
  cluster.Run(works);
  return cluster.Weights();
}

// Coordinate k of the same, by the formulas alone: chunk c of 16 or more coordinates is in fragment c mod P.
double Expected(const Streaming& s, int k, int steps, int workers) {
  const int chunk = (kSize / (4 * s.fragments) + 15) / 16 * 16;
  const int p = s.fragments == 1 ? 0 : k / chunk % s.fragments;
  const int phase = static_cast<int>(std::ceil((p + 1.0) * s.local_steps / s.fragments));
  double all_samples = 0;
  for (int i = 0; i < workers; ++i) all_samples += kSamples[i];
  double w = Start(k), momentum = 0;
  struct Worker {
    double x, y, v = 0;
  };
  std::vector<Worker> locals(workers, {Start(k), Start(k)});
  std::map<int, double> answers;  // by the step at which they are used
  for (int t = 1; t <= steps; ++t) {
    for (int i = 0; i < workers; ++i) {
      locals[i].v = kMu * locals[i].v + (locals[i].x - Target(i, k));
      locals[i].x -= kEta * locals[i].v;
    }
    const auto use = [&] {
      if (answers.count(t) == 0) return;
      for (Worker& local : locals) {
        local.y = answers[t];
        local.x = s.blend * local.x + (1 - s.blend) * local.y;
      }
    };
    use();
    const bool last_round = t > steps - s.local_steps;
    const bool sends = last_round ? t == steps : (t - 1) % s.local_steps + 1 == phase;
    if (!sends) continue;
    double d = 0;
    for (int i = 0; i < workers; ++i) d += (locals[i].y - locals[i].x) * kSamples[i] / all_samples;
    momentum = 0.9 * momentum + d;
    w -= 0.7 * (d + 0.9 * momentum);
    answers[t + s.overlap] = w;
    if (s.overlap == 0) use();
  }
  return w;
}

const Streaming kCases[] = {{6, 3, 2, 0.5}, {6, 3, 0, 0}, {6, 1, 2, 0.25}, {6, 6, 5, 0},
                            {5, 3, 1, 0.5}, {4, 4, 3, 0}, {1, 1, 0, 0},    {7, 2, 6, 0.9}};

TEST(StreamingTest, FollowsThePaperStepByStep) {
  for (const Streaming& s : kCases) {
    const int steps = 8 * s.local_steps;
    const std::vector<float> center = Train(MakeJob(s, 3), steps, 2 * s.local_steps);
    for (int k = 0; k < kSize; ++k)
      ASSERT_NEAR(center[k], Expected(s, k, steps, 3), 2e-5) << Name(s) << ", coordinate " << k;
  }
}

TEST(StreamingTest, IsTheSameBitForBitIfAProgramKeepsTheWeights) {
  for (const Streaming& s : kCases) {
    const v1::Job job = MakeJob(s, 3, "momentum: 0.9 clip_norm: 0.5");
    const int steps = 4 * s.local_steps;
    EXPECT_EQ(Train(job, steps, s.local_steps),
              Train(job, steps, s.local_steps, {}, VirtualCluster::NextInCircle, /*kept=*/true))
        << Name(s);
  }
}

TEST(StreamingTest, IsTheSameBitForBitHoweverTheParametersAreSplitAndWhoeverComesFirst) {
  for (const Streaming& s : kCases) {
    v1::Job job = MakeJob(s, 3, "momentum: 0.9 clip_norm: 0.5");
    job.set_deterministic(true);
    const int steps = 4 * s.local_steps;
    const std::vector<float> center = Train(job, steps, s.local_steps);
    for (const ParameterSplit& split : {ParameterSplit{2, 1000}, {3, 7}, {5, 64}})
      EXPECT_EQ(Train(job, steps, s.local_steps, split), center) << Name(s) << ", " << split.num_shards;
    Random random(1);
    const auto any = [&random](const std::vector<int>& ready, int) {
      return ready[random.Below(ready.size())];
    };
    for (int i = 0; i < 3; ++i)
      EXPECT_EQ(Train(job, steps, s.local_steps, {2, 50}, any), center) << Name(s) << ", in any order";
  }
}

TEST(StreamingTest, OneRoundInFragmentsIsARoundOfTheWhole) {
  const std::vector<float> whole = Train(MakeJob({6, 1, 0, 0}, 3), 6, 6);
  for (const Streaming& s : {Streaming{6, 3, 0, 0}, {6, 3, 5, 0.5}, {6, 6, 2, 0}, {6, 2, 1, 0}})
    EXPECT_EQ(Train(MakeJob(s, 3), 6, 6), whole) << Name(s);
}

TEST(StreamingTest, WholeTensorsStayInOneFragment) {
  const v1::Job job = MakeJob({6, 3, 2, 0.5}, 3, "kind: LARS learning_rate: 0.7 momentum: 0.9");
  ParameterSplit one{1, 1 << 18, {100, 20, 60, 120, 100}}, two{2, 50, one.tensors};
  const std::vector<float> center = Train(job, 24, 6, one);
  EXPECT_EQ(Train(job, 24, 6, two), center);
  EXPECT_NE(center, Initial());
}

// ------------------------------------------------------------------- answers that arrive at any time

// A center with two fragments whose answers the test delivers.
class ManualCenter final : public Parameters {
 public:
  void Start(const Operation& operation) override {
    log.push_back(absl::StrCat(operation.kind == Operation::kPull ? "pull " : "push ", operation.fragment));
    operations_[operation.fragment] = operation;
    under_way_[operation.fragment] = true;
    done[operation.fragment] = operation.kind == Operation::kPull;
    if (operation.kind == Operation::kPull) Fill(operation, pulled);
  }
  void Ready(Range) override {}
  absl::Status Await(Range) override { return absl::OkStatus(); }
  absl::StatusOr<Outcome> Finish(int fragment) override {
    EXPECT_TRUE(std::exchange(under_way_[fragment], false)) << "no operation of fragment " << fragment;
    if (!done[fragment]) {
      log.push_back(absl::StrCat("wait ", fragment));
      Deliver(fragment, 100);
    }
    return Outcome{.non_finite = std::exchange(non_finite, false)};
  }
  bool IsDone(int fragment) const override { return done[fragment]; }
  int num_fragments() const override { return fragments; }
  std::vector<Range> fragment(int fragment) const override { return {{fragment * 64, fragment * 64 + 64}}; }

  void Deliver(int fragment, float value) {
    Fill(operations_[fragment], value);
    done[fragment] = true;
  }
  const Operation& operation(int fragment) const { return operations_[fragment]; }

  std::vector<std::string> log;
  bool done[2] = {true, true};
  bool non_finite = false;
  float pulled = 0;
  int fragments = 2;

 private:
  void Fill(const Operation& operation, float value) {
    for (const Range& range : fragment(operation.fragment))
      std::fill(operation.output.begin() + range.begin, operation.output.begin() + range.end, value);
  }
  Operation operations_[2];
  bool under_way_[2] = {false, false};
};

// A worker whose every step moves each weight by -1; its weights at the last step's beginning.
class ManualWorker {
 public:
  ManualWorker(const Streaming& s, const std::string& consistency, ManualCenter* center)
      : algorithm_(MakeAlgorithm(
            PresetJob("local_sgd", 1,
                      absl::StrCat("algorithm { consistency { ", consistency,
                                   " } contribution { pseudo_gradient { local_steps: ", s.local_steps,
                                   " fragments: 2 overlap_steps: ", s.overlap,
                                   " local_optimizer { learning_rate: 1 momentum: 0 "
                                   "schedule { decay: CONSTANT } } } } }")),
            128, center)) {
    EXPECT_TRUE(algorithm_->Start(0).ok());
    center->log.clear();
  }
  // Returns the first weight of each fragment at which the gradient was computed.
  std::vector<float> Step(Algorithm::Step step = {.samples = 1}) {
    std::vector<float> at;
    const auto gradient = InLayers([&at](absl::Span<const float> x, absl::Span<float> g) {
      at = {x[0], x[64]};
      std::fill(g.begin(), g.end(), 1.0f);
    });
    EXPECT_TRUE(algorithm_->Run(step, gradient).ok());
    return at;
  }
  Algorithm& algorithm() { return *algorithm_; }

 private:
  std::unique_ptr<Algorithm> algorithm_;
};

using Log = std::vector<std::string>;
using Weights = std::vector<float>;

TEST(StreamingTest, AsynchronousWorkersUseAnAnswerWhenItHasArrivedAndWaitForItWhenItsFragmentIsDueAgain) {
  ManualCenter center;
  ManualWorker worker({4, 2, 3, 0}, "asynchronous {}", &center);
  EXPECT_EQ(worker.Step(), (Weights{0, 0}));
  EXPECT_EQ(worker.Step(), (Weights{-1, -1}));  // fragment 0 is pushed
  EXPECT_EQ(center.operation(0).samples, 2u);
  EXPECT_EQ(worker.Step(), (Weights{-2, -2}));
  EXPECT_EQ(center.operation(0).input[0], 2) << "kept while the next gradient is computed";
  center.Deliver(0, 50);
  EXPECT_EQ(worker.Step(), (Weights{-3, -3}));  // the answer is used, and fragment 1 is pushed
  EXPECT_EQ(worker.Step(), (Weights{50, -4}));
  EXPECT_EQ(worker.Step(), (Weights{49, -5}));  // fragment 0 is pushed
  EXPECT_EQ(center.operation(0).input[0], 2) << "from where the answer was used";
  EXPECT_EQ(center.operation(0).samples, 4u) << "each sample is in one push";
  EXPECT_EQ(center.operation(0).steps, 6u);
  EXPECT_EQ(center.log, (Log{"push 0", "push 1", "push 0"}));
  worker.Step();
  worker.Step();  // fragment 1 is due, and its answer has not arrived
  EXPECT_EQ(center.log, (Log{"push 0", "push 1", "push 0", "wait 1", "push 1"}));
  EXPECT_EQ(worker.Step(), (Weights{46, 100}));
}

TEST(StreamingTest, SynchronousWorkersUseAnAnswerAtItsStepHoweverEarlyItArrives) {
  ManualCenter center;
  ManualWorker worker({4, 2, 2, 0}, "synchronous {}", &center);
  for (int i = 0; i < 2; ++i) worker.Step();
  center.Deliver(0, 50);
  EXPECT_EQ(worker.Step(), (Weights{-2, -2}));
  EXPECT_EQ(worker.Step(), (Weights{-3, -3}));
  EXPECT_EQ(worker.Step(), (Weights{50, -4}));
  EXPECT_EQ(worker.Step(), (Weights{49, -5}));  // the answer for fragment 1 has not arrived
  EXPECT_EQ(center.log, (Log{"push 0", "push 1", "wait 1", "push 0"}));
  EXPECT_EQ(worker.Step(), (Weights{48, 100}));
}

TEST(StreamingTest, SettlesBeforeACheckpointWithoutUsingTheAnswers) {
  ManualCenter center;
  ManualWorker worker({4, 2, 2, 0}, "synchronous {}", &center);
  for (int i = 0; i < 4; ++i) worker.Step();
  EXPECT_EQ(center.log, (Log{"push 0", "wait 0", "push 1"}));
  EXPECT_EQ(worker.Step({.samples = 1, .settle = true}), (Weights{100, -4}));
  EXPECT_EQ(center.log.back(), "wait 1");
  EXPECT_EQ(worker.Step(), (Weights{99, -5})) << "its answer is used after the step";
  EXPECT_EQ(worker.Step(), (Weights{98, 100}));
}

TEST(StreamingTest, WorkerThatIsNoLongerFiniteContinuesFromTheWholeCenter) {
  ManualCenter center;
  ManualWorker worker({4, 2, 0, 0}, "synchronous {}", &center);
  worker.Step();
  center.pulled = 7;
  center.non_finite = true;
  worker.Step();
  EXPECT_EQ(center.log, (Log{"push 0", "wait 0", "pull 0", "pull 1"}));
  EXPECT_EQ(worker.algorithm().counts().non_finite, 1u);
  EXPECT_EQ(worker.Step(), (Weights{7, 7}));
}

TEST(StreamingTest, WorkerThatIsNoLongerFiniteAwaitsAndDropsTheAnswersOnTheirWay) {
  ManualCenter center;
  ManualWorker worker({4, 2, 3, 0}, "asynchronous {}", &center);
  for (int i = 0; i < 4; ++i) worker.Step();
  center.pulled = 7;
  center.non_finite = true;
  center.Deliver(1, 50);
  worker.Step();
  EXPECT_EQ(center.log, (Log{"push 0", "push 1", "wait 0", "pull 0", "pull 1"}));
  EXPECT_EQ(worker.Step(), (Weights{7, 7}));  // fragment 0 is pushed
  EXPECT_EQ(worker.Step(), (Weights{6, 6}));
  EXPECT_EQ(center.log.back(), "push 0");
}

TEST(StreamingTest, FragmentsTakeTurnsAgainAfterTheEndOfTheWork) {
  ManualCenter center;
  ManualWorker worker({4, 2, 0, 0}, "asynchronous {}", &center);
  for (int i = 0; i < 3; ++i) worker.Step();
  ASSERT_TRUE(worker.algorithm().Finish().ok());
  EXPECT_EQ(center.log, (Log{"push 0", "wait 0", "push 0", "push 1", "wait 0", "wait 1"}));
  center.log.clear();
  worker.Step();
  EXPECT_EQ(center.log, Log{});
  worker.Step();
  EXPECT_EQ(center.log, (Log{"push 0", "wait 0"}));
}

// Otherwise the version of a checkpoint has all of a worker's steps.
TEST(StreamingTest, WeightsAreInACheckpointWithFragmentsOrOverlap) {
  const auto has_weights = [](int fragments, int overlap, bool at_version) {
    ManualCenter center;
    center.fragments = fragments;
    ManualWorker worker({4, fragments, overlap, 0}, "synchronous {}", &center);
    WorkerState state;
    worker.algorithm().ListState(at_version, &state);
    return !state.vectors.empty();
  };
  EXPECT_FALSE(has_weights(1, 0, true));
  EXPECT_TRUE(has_weights(2, 0, true));
  EXPECT_TRUE(has_weights(1, 2, true));
  EXPECT_TRUE(has_weights(2, 2, true));
  EXPECT_FALSE(has_weights(2, 2, false));
}

// The state of a worker at the end of a lease continues in another worker as it would have in the same one.
TEST(StreamingTest, StateContinuesInAnotherWorker) {
  const Streaming s{4, 2, 3, 0};
  const auto advance = [](ManualWorker* worker, ManualCenter* center) {
    std::vector<Weights> at;
    for (int i = 0; i < 9; ++i) at.push_back(worker->Step());
    return std::pair(at, center->log);
  };
  ManualCenter center, other_center;
  ManualWorker worker(s, "synchronous {}", &center), other(s, "synchronous {}", &other_center);
  for (int i = 0; i < 8; ++i) worker.Step();
  ASSERT_TRUE(worker.algorithm().Settle().ok());
  WorkerState from, to;
  worker.algorithm().ListState(/*at_version=*/true, &from);
  other.algorithm().ListState(/*at_version=*/true, &to);
  ASSERT_EQ(from.vectors.size(), to.vectors.size());
  for (size_t i = 0; i < from.vectors.size(); ++i)
    std::copy(from.vectors[i].values.begin(), from.vectors[i].values.end(), to.vectors[i].values.begin());
  for (size_t i = 0; i < from.numbers.size(); ++i) *to.numbers[i].value = *from.numbers[i].value;
  center.log.clear();
  EXPECT_EQ(advance(&other, &other_center), advance(&worker, &center));
}

}  // namespace
}  // namespace catchment
