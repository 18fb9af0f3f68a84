#include "tests/benchmarks/apply_memory.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "common/base/random.h"

namespace catchment {
namespace {

constexpr int64_t kBlock = (1 << 20) / sizeof(float);  // Job.block_kib's default
constexpr int kVectors = 1 + kMaxStates + 2 * kGroup + 1;
// The fewest vectors that a pass goes over: weights, gradient, copy.
constexpr int kMinVectors = 3;

// Between two turns of one model.
int64_t ColdBytes() { return 4 * std::max<int64_t>(32 << 20, sysconf(_SC_LEVEL3_CACHE_SIZE)); }

}  // namespace

ApplyMemory::ApplyMemory(int64_t parameters, int threads)
    : parameters_(parameters),
      threads_(threads),
      bytes_(kVectors * parameters * static_cast<int64_t>(sizeof(float))) {
  const int64_t least = kMinVectors * parameters * static_cast<int64_t>(sizeof(float));
  const int64_t models = bytes_ <= kCachedBytes ? 1 : (ColdBytes() + least - 1) / least;
  for (int64_t i = 0; i < models; ++i) models_.push_back(MakeModel(i));
}

ApplyMemory::Model ApplyMemory::MakeModel(uint64_t seed) const {
  Model model(kVectors, std::vector<float>(parameters_, 0.0f));
  for (int v = 0; v < kVectors; ++v) {
    if (v >= 1 && v < 1 + kMaxStates) continue;  // states begin at zero
    Random random(Derive(seed, v));
    for (float& value : model[v]) value = static_cast<float>(random.Uniform(-1, 1));
  }
  return model;
}

BlockVectors ApplyMemory::Block(size_t model, int64_t block) {
  const int64_t begin = block * kBlock;
  int v = 0;
  const auto next = [&] { return models_[model][v++].data() + begin; };
  BlockVectors vectors;
  vectors.n = std::min(kBlock, parameters_ - begin);
  vectors.weights = next();
  for (float*& state : vectors.states) state = next();
  for (const float*& values : vectors.values) values = next();
  for (float*& answer : vectors.answers) answer = next();
  vectors.copy = next();
  return vectors;
}

double ApplyMemory::GbPerSecond(int64_t bytes_per_parameter, const Pass& pass) {
  const int64_t bytes = bytes_per_parameter * parameters_;
  const int64_t passes = (kMeasuredBytes + bytes - 1) / bytes;
  const int64_t blocks = (parameters_ + kBlock - 1) / kBlock;
  const auto work = [&](int thread) {
    for (int64_t p = 0; p < passes; ++p) {
      for (int64_t b = thread; b < blocks; b += threads_) pass(Block((next_ + p) % models_.size(), b));
    }
  };
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> others;
  for (int t = 1; t < threads_; ++t) others.emplace_back(work, t);
  work(0);
  for (std::thread& thread : others) thread.join();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  next_ += passes;
  return static_cast<double>(passes * bytes) / seconds.count() / 1e9;
}

}  // namespace catchment
