// The passes of the `apply` benchmark do what their figures say.
#include "tests/benchmarks/apply_passes.h"

#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace catchment {
namespace {

constexpr int64_t kValues = 3000;

ModelVectors Fresh() {
  ModelVectors model(kValues);
  for (size_t v = 0; v < model.all.size(); ++v) model.all[v].assign(kValues, 0.5f + static_cast<float>(v));
  return model;
}

// Returns whether each vector has changed, in its last value, too.
std::vector<bool> Changed(const ModelVectors& model) {
  const ModelVectors fresh = Fresh();
  std::vector<bool> changed;
  for (size_t v = 0; v < model.all.size(); ++v) changed.push_back(model.all[v].back() != fresh.all[v].back());
  return changed;
}

TEST(ApplyPasses, TriadWritesTheVectorsThatTheRuleWrites) {
  for (const ApplyPass& pass : ApplyPasses()) {
    ModelVectors of_rule = Fresh(), of_triad = Fresh();
    const std::unique_ptr<Rule> rule = MakeRule(pass.job);
    // A learning rate of 1e-6 moves 0.5 by less than a rounding error in one step of some.
    for (int i = 0; i < 10; ++i) ApplyRule(pass, *rule, of_rule.Block(0, kValues));
    pass.triad(0.5f, of_triad.Block(0, kValues));
    EXPECT_EQ(Changed(of_triad), Changed(of_rule)) << pass.name;
  }
}

TEST(ApplyPasses, TriadWithZeroLeavesWhatIsRead) {
  for (const ApplyPass& pass : ApplyPasses()) {
    ModelVectors model = Fresh();
    pass.triad(0, model.Block(0, kValues));
    for (int v = 0; v < 1 + kMaxStates + kGroup; ++v)
      EXPECT_EQ(model.all[v], Fresh().all[v]) << pass.name << " " << v;
  }
}

TEST(ApplyPasses, TrafficIsCountedAsTheHelpSays) {
  std::vector<int64_t> bytes;
  for (const ApplyPass& pass : ApplyPasses()) bytes.push_back(BytesPerParameter(pass, *MakeRule(pass.job)));
  EXPECT_EQ(bytes, (std::vector<int64_t>{16, 24, 24, 24, 32, 24, 32, 32, 24, 24, 32, 28, 16, 40}));
}

}  // namespace
}  // namespace catchment
