// Real daemons on a machine without memfd_create: programs train over a file in its place.
#include "tests/common/base/without_memfd.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/safetensors.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

TEST(WithoutMemfdTest, ProgramsTrain) {
  // In all processes that this one starts.
  if (!ForbidMemfd()) GTEST_SKIP() << "this system allows no seccomp filter";
  const std::string rows = TestDirectory() + "/rows.csv";
  WriteTable(rows, 240, 6, 3);
  const std::string weights = TestDirectory() + "/initial.safetensors";
  const std::vector<float> values(48, 0.1f);
  const auto first = [&](size_t n) { return absl::MakeConstSpan(values).first(n); };
  const absl::Status written = WriteSafetensors(weights,
                                                {{"dense1.weight", {8, 6}, first(48)},
                                                 {"dense1.bias", {8}, first(8)},
                                                 {"dense2.weight", {3, 8}, first(24)},
                                                 {"dense2.bias", {3}, first(3)}},
                                                {});
  ASSERT_TRUE(written.ok()) << written;
  TestCluster cluster(
      {.job = absl::StrCat(
           "model { external { tensors { name: 'dense1.weight' shape: 8 shape: 6 } "
           "tensors { name: 'dense1.bias' shape: 8 } tensors { name: 'dense2.weight' shape: 3 shape: 8 } "
           "tensors { name: 'dense2.bias' shape: 3 } } initial_weights: '",
           weights,
           "' } data { external { train_samples: 240 } } "
           "batch_size: 16 epochs: 2 workers: 2 device: CPU algorithm { preset: 'sync' }"),
       .program = absl::StrCat("exec python3 tests/cluster/attached_program.py ", rows)});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(2);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd()) << cluster.LastWords();
  EXPECT_EQ(cluster.Summary()["phase"], "DONE");
}

}  // namespace
}  // namespace catchment
