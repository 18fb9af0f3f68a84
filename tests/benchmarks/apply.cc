// Measures how fast updates are applied: see the usage. The passes are in apply_passes.cc.
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <iostream>
#include <thread>

#include "common/base/clock.h"
#include "common/base/random.h"
#include "common/base/text.h"
#include "tests/benchmarks/apply_passes.h"
#include "tests/benchmarks/benchmark.h"

namespace catchment {
namespace {

constexpr int64_t kBlock = (1 << 20) / sizeof(float);  // Job.block_kib's default
constexpr int64_t kMeasuredBytes = 64 << 20;

// The vectors of models of one size, over which passes go block by block.
//
// A small model (all its vectors fit the second-level cache) is one copy, passed over again and again: the
// figure is the cache's. For a larger one there are enough copies, used in turn, that none is in the cache
// when its turn comes: the figure is the memory's.
class ApplyMemory {
 public:
  ApplyMemory(int64_t parameters, int threads) : parameters_(parameters), threads_(threads) {
    // The fewest vectors that a pass goes over: weights, gradient, copy.
    const int64_t least = 3 * parameters * static_cast<int64_t>(sizeof(float));
    const int64_t between_turns = 4 * std::max<int64_t>(32 << 20, sysconf(_SC_LEVEL3_CACHE_SIZE));
    for (int64_t i = 0; i < (cold() ? (between_turns + least - 1) / least : 1); ++i) {
      models_.emplace_back(parameters);
      FillAtRandom(i, &models_.back());
    }
  }

  bool cold() const {
    return BlockVectors::kVectors * parameters_ * static_cast<int64_t>(sizeof(float)) > 1 << 20;
  }

  // Passes over whole models, of `bytes_per_parameter`, until kMeasuredBytes have moved; returns GB/s (1e9).
  // Thread t takes every threads-th block, from block t on.
  double GbPerSecond(int64_t bytes_per_parameter, const std::function<void(const BlockVectors&)>& pass) {
    const int64_t bytes = bytes_per_parameter * parameters_;
    const int64_t passes = (kMeasuredBytes + bytes - 1) / bytes;
    const auto work = [&](int thread) {
      for (int64_t p = 0; p < passes; ++p) {
        for (int64_t begin = thread * kBlock; begin < parameters_; begin += threads_ * kBlock)
          pass(models_[(next_ + p) % models_.size()].Block(begin, std::min(kBlock, parameters_ - begin)));
      }
    };
    const SteadyClock clock;
    const double start = clock.Now();
    std::vector<std::thread> others;
    for (int t = 1; t < threads_; ++t) others.emplace_back(work, t);
    work(0);
    for (std::thread& thread : others) thread.join();
    next_ += passes;
    return static_cast<double>(passes * bytes) / (clock.Now() - start) / 1e9;
  }

 private:
  static void FillAtRandom(uint64_t seed, ModelVectors* model) {
    for (int v = 0; v < BlockVectors::kVectors; ++v) {
      if (v >= 1 && v < 1 + kMaxStates) continue;  // states begin at zero
      Random random(Derive(seed, v));
      for (float& value : model->all[v]) value = static_cast<float>(random.Uniform(-1, 1));
    }
  }

  const int64_t parameters_;
  const int threads_;
  std::vector<ModelVectors> models_;
  size_t next_ = 0;
};

class Apply final : public Benchmark {
 public:
  Apply() {
    for (const ApplyPass& pass : ApplyPasses()) optimizers_.push_back(pass.name);
  }

  void AddFlags(FlagSet* flags) override {
    AddNames(flags, "optimizer", &optimizers_, "Only these passes.");
    AddNumbers(flags, "parameters", 1, 1'000'000'000, &parameters_, "Only models of these sizes.");
    flags->AddInt("rounds", "N", 1, &rounds_, "Measurements of each figure. Default 25.");
    flags->AddInt("threads", "N", 1, &threads_, "Threads that share the blocks. Default 1.");
  }

  absl::Status Run(const std::string&, std::vector<Row>* rows) override {
    for (const int64_t parameters : parameters_) {
      std::cerr << Count(parameters) << " parameters: ";
      Measure(parameters, rows);
    }
    return absl::OkStatus();
  }

 private:
  void Measure(int64_t parameters, std::vector<Row>* rows) {
    ApplyMemory memory(parameters, threads_);
    std::vector<std::string> names;
    std::vector<Pass> passes;  // a pass, its triad, memcpy; the next pass
    for (const ApplyPass& pass : ApplyPasses()) {
      if (std::find(optimizers_.begin(), optimizers_.end(), pass.name) == optimizers_.end()) continue;
      names.push_back(pass.name);
      const std::shared_ptr<Rule> rule = MakeRule(pass.job);
      const int64_t bytes = BytesPerParameter(pass, *rule);
      passes.push_back([&memory, &pass, rule, bytes] {
        return memory.GbPerSecond(bytes, [&](const BlockVectors& block) { ApplyRule(pass, *rule, block); });
      });
      passes.push_back([&memory, &pass, bytes] {
        return memory.GbPerSecond(bytes, [&](const BlockVectors& block) { pass.triad(0, block); });
      });
      passes.push_back([&memory] {
        return memory.GbPerSecond(2 * sizeof(float), [](const BlockVectors& block) {
          std::memcpy(block.copy, block.values[0], block.n * sizeof(float));
        });
      });
    }
    const auto figures = InTurns(rounds_, passes);
    for (size_t i = 0; i < names.size(); ++i) {
      const std::vector<double>*pass = &figures[3 * i], *triad = pass + 1, *copy = pass + 2;
      rows->push_back({{"optimizer", names[i]},
                       {"parameters", parameters},
                       {"cold", memory.cold()},
                       {"threads", threads_},
                       {"gb_per_s", Median(*pass)},
                       {"triad_gb_per_s", Median(*triad)},
                       {"memcpy_gb_per_s", Median(*copy)},
                       {"ratio_to_triad", MedianRatio(*pass, *triad)},
                       {"ratio_to_memcpy", MedianRatio(*pass, *copy)}});
    }
  }

  std::vector<std::string> optimizers_;
  std::vector<int64_t> parameters_ = {14'000, 1'200'000, 11'000'000};
  int rounds_ = 25;
  int threads_ = 1;
};

}  // namespace

const BenchmarkKind kApply = {
    "apply",
    R"(Times the pass over memory that applies a gradient to the weights, as a server does it: block by block of 1
MiB, through the job's rule, the copy of the fresh weights that goes back to the worker included. Beside it,
taking turns in the same run and on the same memory, run a plain loop that reads and writes the same vectors
(the triad) and memcpy. Figures are medians over the rounds, ratios too: of the ratios within a round.

GB/s (1e9 bytes) counts what the program reads and writes, 4 bytes a value, in place twice; not what a cache
reads before it writes a line. SGD moves 16 bytes a parameter, momentum 24, Adam 32; memcpy 8. LARS, LARC and
LAMB, here with a tensor a block, read twice, for the norms; it is counted once.
"of triad" is what is left of the memory's speed: 1.00 means that the arithmetic costs nothing.

14,000 parameters stay in the cache: the rate is the cache's. Of larger models there are enough copies, taken
in turn, for each to come from memory ("cold").
)",
    {{"pass", "optimizer"},
     {"parameters", "parameters"},
     {"cold", "cold"},
     {"GB/s", "gb_per_s", 1},
     {"triad", "triad_gb_per_s", 1},
     {"memcpy", "memcpy_gb_per_s", 1},
     {"of triad", "ratio_to_triad", 2},
     {"of memcpy", "ratio_to_memcpy", 2}},
    MakeBenchmark<Apply>};

}  // namespace catchment
