// The passes over memory that the `apply` benchmark times, each with a plain loop of the same traffic.
//
// Shapes: all vectors of a block hold `n` float32 values.
// Units: traffic is counted as the program asks for it, 4 bytes for each value read and each value written. A
// value that is changed in place counts twice; what a cache reads before it writes a line is not counted.
#ifndef CATCHMENT_TESTS_BENCHMARKS_APPLY_PASSES_H_
#define CATCHMENT_TESTS_BENCHMARKS_APPLY_PASSES_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "proto/job.pb.h"
#include "server/rules/rule.h"

namespace catchment {

// Contributions in the cases that have several.
inline constexpr int kGroup = 4;
inline constexpr int kMaxStates = 2;

struct BlockVectors {
  static constexpr int kVectors = 2 + kMaxStates + 2 * kGroup;

  int64_t n = 0;
  float* weights = nullptr;
  std::array<float*, kMaxStates> states{};
  std::array<const float*, kGroup> values{};  // contributions: gradients, or workers' weights
  std::array<float*, kGroup> answers{};       // elastic differences
  float* copy = nullptr;                      // of the fresh weights
};

// The vectors of a whole model: weights, states, values, answers, copy.
struct ModelVectors {
  explicit ModelVectors(int64_t n) : all(BlockVectors::kVectors, std::vector<float>(n)) {}
  BlockVectors Block(int64_t begin, int64_t n);

  std::vector<std::vector<float>> all;
};

struct ApplyPass {
  std::string name;  // "adam"
  v1::Job job;       // of which the rule is made
  int contributions = 1;
  // Reads and writes the vectors that the rule reads and writes; with s = 0 all that it reads stays as it
  // was.
  void (*triad)(float s, const BlockVectors& block) = nullptr;
};

const std::vector<ApplyPass>& ApplyPasses();

// Returns the number of bytes that an update reads and writes per parameter.
int64_t BytesPerParameter(const ApplyPass& pass, const Rule& rule);

// One update of the block. `rule` is made of pass.job.
void ApplyRule(const ApplyPass& pass, const Rule& rule, const BlockVectors& block);

}  // namespace catchment

#endif  // CATCHMENT_TESTS_BENCHMARKS_APPLY_PASSES_H_
