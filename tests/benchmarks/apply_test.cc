// The passes of the `apply` benchmark do what their figures say, and its rows have the promised keys.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "nlohmann/json.hpp"
#include "tests/benchmarks/apply_case.h"

namespace catchment {
namespace {

constexpr int64_t kValues = 3000;

// weights, states, values, answers, copy
struct Vectors {
  Vectors() : all(2 + kMaxStates + 2 * kGroup) {
    for (size_t v = 0; v < all.size(); ++v) all[v].assign(kValues, 0.5f + static_cast<float>(v));
  }

  BlockVectors Block() {
    BlockVectors block;
    int v = 0;
    block.n = kValues;
    block.weights = all[v++].data();
    for (float*& state : block.states) state = all[v++].data();
    for (const float*& values : block.values) values = all[v++].data();
    for (float*& answer : block.answers) answer = all[v++].data();
    block.copy = all[v++].data();
    return block;
  }

  // In their last value, too.
  std::vector<bool> Changed() const {
    const Vectors fresh;
    std::vector<bool> changed;
    for (size_t v = 0; v < all.size(); ++v) changed.push_back(all[v].back() != fresh.all[v].back());
    return changed;
  }

  std::vector<std::vector<float>> all;
};

TEST(ApplyCases, TriadWritesTheVectorsThatTheRuleWrites) {
  for (const ApplyCase& c : ApplyCases()) {
    Vectors of_rule, of_triad;
    const std::unique_ptr<Rule> rule = MakeRule(c.job);
    // A learning rate of 1e-6 moves 0.5 by less than a rounding error in one step of some.
    for (int i = 0; i < 10; ++i) ApplyRule(c, *rule, of_rule.Block());
    c.triad(0.5f, of_triad.Block());
    EXPECT_EQ(of_triad.Changed(), of_rule.Changed()) << c.name;
  }
}

TEST(ApplyCases, TriadWithZeroLeavesWhatIsRead) {
  for (const ApplyCase& c : ApplyCases()) {
    Vectors vectors;
    const Vectors before;
    c.triad(0, vectors.Block());
    for (int v = 0; v < 1 + kMaxStates + kGroup; ++v)
      EXPECT_EQ(vectors.all[v], before.all[v]) << c.name << " " << v;
  }
}

TEST(ApplyCases, TrafficIsCountedAsTheHelpSays) {
  std::vector<int64_t> bytes;
  for (const ApplyCase& c : ApplyCases()) bytes.push_back(BytesPerParameter(c, *MakeRule(c.job)));
  EXPECT_EQ(bytes, (std::vector<int64_t>{16, 24, 24, 24, 32, 24, 32, 32, 24, 24, 32, 28, 16, 40}));
}

TEST(Apply, WritesItsRows) {
  const std::string file = testing::TempDir() + "/rows.json";
  const std::string command =
      "tests/benchmarks/apply --rounds=1 --parameters=1000 --optimizer=adam --json=" + file;
  ASSERT_EQ(std::system(command.c_str()), 0);
  std::ifstream in(file);
  const nlohmann::json rows = nlohmann::json::parse(in);
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0]["optimizer"], "adam");
  EXPECT_EQ(rows[0]["parameters"], 1000);
  for (const char* key : {"gb_per_s", "ratio_to_triad", "ratio_to_memcpy", "triad_gb_per_s", "threads"}) {
    EXPECT_GT(rows[0].value(key, 0.0), 0) << key;
  }
}

TEST(Apply, RefusesAnUnknownPass) { EXPECT_NE(std::system("tests/benchmarks/apply --optimizer=adem"), 0); }

}  // namespace
}  // namespace catchment
