// Networks on data.table, in one process: real targets are met, and the kind of file makes no difference.
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/job/validate.h"
#include "tests/worker/data/idx_files.h"
#include "tests/worker/model/network_setup.h"
#include "worker/data/sources/load_data.h"
#include "worker/data/table/formats.h"

namespace catchment {
namespace {

v1::Job Job(const std::string& file, const std::string& model) {
  v1::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat("batch_size: 32 model { ", model, " } data { table { shape: 2 targets: 2 train: '", file,
                   "' directory: '", TestDirectory(), "' } }"),
      &job));
  const auto complete = FillDefaultsAndValidate(job);
  EXPECT_TRUE(complete.ok()) << complete.status();
  return complete.value_or(job);
}

struct Trained {
  std::vector<float> weights;
  double loss = 0;  // mean over the last pass
};

// Plain SGD over whole minibatches in the file's order.
Trained Train(const v1::Job& job, int epochs, float learning_rate) {
  const auto data = LoadData(job, {});
  EXPECT_TRUE(data.ok()) << data.status();
  const Dataset& train = data->train;
  const int batch = static_cast<int>(job.batch_size());
  auto network = Network::Create(job.model(), train.input_shape(), train.target(), {.max_batch_size = batch},
                                 MakeCpuBackend({.deterministic = true}));
  EXPECT_TRUE(network.ok()) << network.status();
  Trained trained;
  trained.weights = InitialWeights(**network);
  std::vector<float> inputs(batch * 2), targets(batch * 2), gradient(trained.weights.size());
  std::vector<uint64_t> ids(batch);
  for (int epoch = 0; epoch < epochs; ++epoch) {
    Score score;
    for (int64_t begin = 0; begin + batch <= train.size(); begin += batch) {
      for (int i = 0; i < batch; ++i) {
        train.CopyInput(begin + i, inputs.data() + 2 * i);
        train.CopyTargets(begin + i, targets.data() + 2 * i);
      }
      score += (*network)->Train(trained.weights, {inputs.data(), nullptr, ids.data(), batch, targets.data()},
                                 absl::MakeSpan(gradient));
      for (size_t i = 0; i < gradient.size(); ++i) trained.weights[i] -= learning_rate * gradient[i];
    }
    trained.loss = score.loss_sum / static_cast<double>(score.samples);
  }
  return trained;
}

// u = 2 a - 3 b + 1 and v = b / 2.
void WriteLinearRows(const std::string& name) {
  Random random(3);
  std::string rows;
  for (int i = 0; i < 256; ++i) {
    const double a = random.Uniform(-1, 1), b = random.Uniform(-1, 1);
    absl::StrAppend(&rows, a, ",", b, ",", 2 * a - 3 * b + 1, ",", b / 2, "\n");
  }
  WriteFile(TestDirectory(), name, rows);
}

TEST(TableTrainingTest, FindsALinearMap) {
  WriteLinearRows("rows.csv");
  const v1::Job job = Job("rows.csv", "layers { dense { units: 2 } } loss { kind: MEAN_SQUARED_ERROR }");
  const Trained trained = Train(job, 100, 0.5f);
  const float expected[] = {2, -3, 0, 0.5f, 1, 0};  // dense1.weight, 2 x 2, and dense1.bias
  ASSERT_EQ(trained.weights.size(), 6u);
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(trained.weights[i], expected[i], 1e-4) << i;
  EXPECT_LT(trained.loss, 1e-9);
}

TEST(TableTrainingTest, FindsShares) {
  std::string rows;
  Random random(4);
  for (int i = 0; i < 256; ++i) {
    const double a = random.Uniform(-1, 1), b = random.Uniform(-1, 1);
    absl::StrAppend(&rows, a, ",", b, ",", 1 / (1 + std::exp(-(a - b))), ",", 1 / (1 + std::exp(-2 * a - 1)),
                    "\n");
  }
  WriteFile(TestDirectory(), "rows.csv", rows);
  const v1::Job job = Job("rows.csv", "layers { dense { units: 2 } } loss { kind: SIGMOID_CROSS_ENTROPY }");
  const Trained trained = Train(job, 400, 4);
  const float expected[] = {1, -1, 2, 0, 0, 1};
  for (int i = 0; i < 6; ++i) EXPECT_NEAR(trained.weights[i], expected[i], 1e-3) << i;
}

TEST(TableTrainingTest, CsvAndPackedShardsTrainTheSameBits) {
  const std::string model =
      "layers { dense { units: 8 } } layers { relu {} } layers { dense { units: 2 } } "
      "loss { kind: MEAN_SQUARED_ERROR }";
  WriteLinearRows("rows.csv");
  const v1::Job csv = Job("rows.csv", model);
  const auto data = LoadData(csv, {});
  ASSERT_TRUE(data.ok()) << data.status();
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(
        WriteShard(absl::StrCat(TestDirectory(), "/", i, ".shard"), data->train, 64 * i, 64 * (i + 1)).ok());
  }
  EXPECT_EQ(Train(csv, 3, 0.1f).weights, Train(Job("*.shard", model), 3, 0.1f).weights);
}

}  // namespace
}  // namespace catchment
