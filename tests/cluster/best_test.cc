// Targets, patience and the best weights, from the evaluator's scores to the files, and over a restart.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/safetensors.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"
#include "worker/data/sources/load_data.h"

namespace catchment {
namespace {

using testing::HasSubstr;

constexpr char kBest[] = "model-best.safetensors";
constexpr int kInputs = 784, kHidden = 32, kClasses = 10;
constexpr int kEndless = 1000000;
constexpr uint64_t kCheckpointEvery = 100;  // updates

std::string Job(const std::string& evaluation, const std::string& more = "") {
  return SmallJob("downpour", absl::StrCat("workers: 2 batch_size: 32 epochs: ", kEndless,
                                           " checkpoint { every_updates: ", kCheckpointEvery,
                                           " } evaluation { every_epochs: 0.5 ", evaluation, " } ", more));
}

using Weights = std::map<std::string, std::vector<float>>;

// y = W x + b, W of shape (y, x)
std::vector<double> Dense(const Weights& weights, const std::string& name, const std::vector<double>& x) {
  const std::vector<float>& matrix = weights.at(name + ".weight");
  const std::vector<float>& bias = weights.at(name + ".bias");
  std::vector<double> y(bias.begin(), bias.end());
  for (size_t i = 0; i < y.size(); ++i) {
    for (size_t j = 0; j < x.size(); ++j) y[i] += double{matrix[i * x.size() + j]} * x[j];
  }
  return y;
}

struct Score {
  double loss = 0;
  double accuracy = 0;
};

// SmallJob's network over its 500 test digits, in plain loops.
Score ScoreOf(const Weights& weights) {
  v1::DrawnDigits options;
  options.set_train_samples(2000);
  options.set_test_samples(500);
  options.set_seed(1);
  const auto data = DrawDigits(options);
  EXPECT_TRUE(data.ok()) << data.status();
  Score score;
  std::vector<float> pixels(kInputs);
  for (int64_t i = 0; i < data->test.size(); ++i) {
    data->test.CopyInput(i, pixels.data());
    std::vector<double> hidden = Dense(weights, "dense1", {pixels.begin(), pixels.end()});
    for (double& value : hidden) value = std::max(0.0, value);
    const std::vector<double> logits = Dense(weights, "dense2", hidden);
    const auto largest = std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (double logit : logits) sum += std::exp(logit - *largest);
    score.loss += std::log(sum) + *largest - logits[data->test.label(i)];
    score.accuracy += largest - logits.begin() == data->test.label(i);
  }
  score.loss /= static_cast<double>(data->test.size());
  score.accuracy /= static_cast<double>(data->test.size());
  return score;
}

// Returns the evaluation of the best weights according to their file.
std::string KeptEvaluation(const TestCluster& cluster) {
  const auto file = SafetensorsFile::Open(cluster.out_dir() + "/" + kBest);
  return file.ok() ? (*file)->metadata().at("catchment.evaluation") : "";
}

// The file is of the best evaluation, and its weights score what the summary says.
void ExpectBestFileIsWhatTheSummarySays(const TestCluster& cluster) {
  const nlohmann::json summary = cluster.Summary();
  const auto file = SafetensorsFile::Open(cluster.out_dir() + "/" + kBest);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_TRUE(summary["best_evaluation"].is_number()) << summary.dump(2);
  EXPECT_EQ(summary["best_weights"], summary["best_evaluation"]);
  const auto& metadata = (*file)->metadata();
  EXPECT_EQ(metadata.at("catchment.evaluation"), absl::StrCat(summary["best_evaluation"].get<uint64_t>()));
  EXPECT_EQ(metadata.at("catchment.samples"), absl::StrCat(summary["best_at_samples"].get<uint64_t>()));
  EXPECT_EQ(std::stod(metadata.at("catchment.test_loss")), summary["best_test_loss"]);
  EXPECT_EQ(std::stod(metadata.at("catchment.test_accuracy")), summary["best_test_accuracy"]);
  const Score score = ScoreOf(cluster.Tensors(kBest));
  const double loss = summary["best_test_loss"];
  EXPECT_NEAR(score.loss, loss, 1e-4 * loss);
  // Two outputs may be equal to float32's precision.
  EXPECT_NEAR(score.accuracy, summary["best_test_accuracy"], 1.0 / 500 + 1e-9);
}

TEST(BestTest, AReachedTargetEndsTheJobAsDone) {
  TestCluster cluster({Job("target_accuracy: 0.8 keep_best: true"), /*servers=*/2});
  ASSERT_TRUE(cluster.Start(2));
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  const nlohmann::json summary = cluster.Summary();
  EXPECT_EQ(summary["phase"], "DONE") << summary.dump(2);
  EXPECT_THAT(summary.value("ended_early", ""), HasSubstr("reached evaluation.target_accuracy 0.8 after "));
  EXPECT_LT(summary["epochs"], kEndless);
  EXPECT_GT(summary["last_checkpoint"], 0);
  ASSERT_NO_FATAL_FAILURE(ExpectBestFileIsWhatTheSummarySays(cluster));
  // The last weights have a score, too.
  const Score last = ScoreOf(cluster.Tensors());
  EXPECT_NEAR(last.loss, summary["test_loss"], 1e-4 * last.loss);
}

// No loss falls by 10: the first evaluation stays the best.
TEST(BestTest, PatienceEndsTheJobAndTheBestWeightsAreOlderThanTheLast) {
  TestCluster cluster({Job("patience: 2 min_improvement: 10"), /*servers=*/2});
  ASSERT_TRUE(cluster.Start(2));
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  const nlohmann::json summary = cluster.Summary();
  EXPECT_EQ(summary["phase"], "DONE") << summary.dump(2);
  EXPECT_THAT(summary.value("ended_early", ""), HasSubstr("in 2 evaluations (evaluation.patience 2)"));
  EXPECT_GE(summary["evaluations_since_best"], 2);
  EXPECT_LT(summary["best_at_samples"], summary["samples"]);
  ASSERT_NO_FATAL_FAILURE(ExpectBestFileIsWhatTheSummarySays(cluster));
  EXPECT_GT(LargestDifference(cluster.Tensors(), cluster.Tensors(kBest)), 0);
}

TEST(BestTest, AJobThatIsKilledGoesOnFromItsBest) {
  // The loss on the test samples falls for much longer than the job runs, however fast the machine is.
  TestCluster::Options options{Job("keep_best: true", "optimizer { kind: SGD learning_rate: 0.0005 }"),
                               /*servers=*/2};
  double loss = 0, recorded = 0;
  {
    TestCluster cluster(options);
    ASSERT_TRUE(cluster.Start(2));
    uint64_t checkpoint = 0;
    ASSERT_TRUE(cluster.AwaitStatus("a best evaluation", [&](const v1::JobStatus& status) {
      recorded = status.best_test_loss();
      checkpoint = status.last_checkpoint();
      return status.best_evaluation() >= 2;
    }));
    // The next but one has begun after that, so it contains the evaluation. The best weights may be newer
    // than any checkpoint.
    ASSERT_TRUE(cluster.AwaitStatus("a checkpoint that contains it", [&](const v1::JobStatus& status) {
      return status.last_checkpoint() >= checkpoint + 2 * kCheckpointEvery;
    }));
    ASSERT_TRUE(cluster.AwaitOutput(cluster.server(0), "wrote the weights of evaluation"));
    cluster.KillAll();
    const auto file = SafetensorsFile::Open(cluster.out_dir() + "/" + kBest);
    ASSERT_TRUE(file.ok()) << file.status();
    loss = std::stod((*file)->metadata().at("catchment.test_loss"));
  }
  options.resume = AutoSwitch::kOn;
  TestCluster again(options);
  ASSERT_TRUE(again.StartServers());
  ASSERT_TRUE(again.AwaitStatus("the best of the first life", [recorded](const v1::JobStatus& status) {
    return status.best_evaluation() > 0 && status.best_test_loss() <= recorded;
  }));
  again.StartEvaluator();
  again.StartWorkers(2);
  // An evaluator that is asked to stop may have reported a better evaluation, and not have sent its weights
  // yet.
  for (int e = 0;; ++e) {
    ASSERT_TRUE(again.AwaitStatus(
        "a better one", [loss](const v1::JobStatus& status) { return status.best_test_loss() < loss; }));
    again.evaluator(e).Signal(SIGTERM);
    ASSERT_TRUE(again.AwaitExit(again.evaluator(e), 0));
    const absl::StatusOr<v1::JobStatus> status = again.Status();
    ASSERT_TRUE(status.ok()) << status.status();
    if (KeptEvaluation(again) == absl::StrCat(status->best_evaluation())) break;
    loss = status->best_test_loss();
    again.StartEvaluator();
  }
  again.server(0).Signal(SIGTERM);
  ASSERT_TRUE(again.AwaitOrderlyEnd());
  EXPECT_EQ(again.Summary()["phase"], "STOPPED");
  ASSERT_NO_FATAL_FAILURE(ExpectBestFileIsWhatTheSummarySays(again));
}

}  // namespace
}  // namespace catchment
