// Jobs with each codec train, on real daemons, to nearly what they do with float32, and send the bytes they
// should.
#include "absl/strings/str_cat.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

constexpr int kEpochs = 40;

nlohmann::json Train(const std::string& name, const std::string& compression) {
  TestCluster cluster({SmallJob("downpour", absl::StrCat("workers: 2 batch_size: 32 epochs: ", kEpochs,
                                                         " compression { ", compression, " }")),
                       /*servers=*/2, TestDirectory() + "/" + name});
  EXPECT_TRUE(cluster.Start(2));
  EXPECT_TRUE(cluster.AwaitOrderlyEnd());
  return cluster.Summary();
}

// With float32, trained once for all cases.
const nlohmann::json& Plain() {
  static const nlohmann::json* const kSummary = new nlohmann::json(Train("plain", ""));
  return *kSummary;
}

double BytesOfAPush(const nlohmann::json& summary) {
  return summary.value("bytes_pushed", 0.0) / summary.value("pushes_applied", 1.0);
}

struct Case {
  std::string name, compression;
  double push;  // bytes, of float32's
};

class CodecsTest : public testing::TestWithParam<Case> {};

TEST_P(CodecsTest, TrainsToNearlyTheLossOfFloat32) {
  const nlohmann::json& plain = Plain();
  const nlohmann::json coded = Train("coded", GetParam().compression);
  EXPECT_LT(coded.value("test_loss", 9.0), plain.value("test_loss", 0.0) + 0.15) << coded.dump(2);
  EXPECT_GE(coded.value("test_accuracy", 0.0), 0.85) << coded.dump(2);
  EXPECT_NEAR(BytesOfAPush(coded), GetParam().push * BytesOfAPush(plain), 0.001 * BytesOfAPush(plain));
  EXPECT_EQ(coded["pushes_non_finite"], 0);
}

INSTANTIATE_TEST_SUITE_P(
    All, CodecsTest,
    testing::Values(Case{"Bfloat16", "push: BFLOAT16 pull: BFLOAT16", 0.5},
                    Case{"Float16", "push: FLOAT16 pull: FLOAT16", 0.5},
                    Case{"TopK", "push: TOP_K top_k_fraction: 0.1 pull: FLOAT16", 0.2},
                    Case{"SparseLoCo", "push: TOP_K top_k_fraction: 0.1 residual_decay: 0.95", 0.2},
                    Case{"Int8", "push: INT8", 0.2539}, Case{"E2m1", "push: E2M1 pull: FLOAT16", 0.1329},
                    Case{"E3m0", "push: E3M0 residual_decay: 0.95", 0.1329}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace catchment
