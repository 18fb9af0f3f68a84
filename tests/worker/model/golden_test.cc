// Agreement with PyTorch: loss and gradient of every kind of layer and loss, and the first steps of the
// examples' models; golden/make_golden.py says what is in the data.
#include <fstream>
#include <string>
#include <vector>

#include "common/job/job_text.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/worker/model/network_setup.h"

namespace catchment {
namespace {

constexpr char kFile[] = "tests/worker/model/golden/models.json";

const nlohmann::json& Golden() {
  static const nlohmann::json* const kGolden = [] {
    std::ifstream file(kFile);
    return new nlohmann::json(nlohmann::json::parse(file));
  }();
  return *kGolden;
}

// make_golden.py's noise().
std::vector<float> Noise(int64_t count, int64_t stream, float scale) {
  std::vector<float> values(count);
  for (int64_t i = 0; i < count; ++i) {
    auto x = static_cast<uint32_t>(i * 40503 + stream * 7919 + 12345);
    for (int round = 0; round < 2; ++round) x = (x ^ (x >> 16)) * 0x45d9f3bu;
    x ^= x >> 16;
    values[i] = scale * static_cast<float>(static_cast<double>(x >> 8) / 8388608 - 1);
  }
  return values;
}

SampleShape ShapeFrom(const nlohmann::json& input) {
  const std::vector<int64_t> dims = input.get<std::vector<int64_t>>();
  if (dims.size() == 1) return SampleShape::Vector(dims[0]);
  if (dims.size() == 2) return SampleShape::Sequence(dims[0], dims[1]);
  return {dims[0], dims[1], dims[2]};
}

struct GoldenSamples {
  explicit GoldenSamples(const nlohmann::json& of)
      : shape(ShapeFrom(of["input"])), labels(of["samples"].get<size_t>()), ids(labels.size()) {
    inputs = Noise(static_cast<int64_t>(labels.size()) * shape.size(), 2, 2);
    const int classes = of["classes"].get<int>();
    for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int32_t>(7 * i + 3) % classes;
  }
  int size() const { return static_cast<int>(labels.size()); }
  Minibatch Batch() const { return {inputs.data(), labels.data(), ids.data(), size()}; }

  SampleShape shape;
  std::vector<float> inputs;
  std::vector<int32_t> labels;
  std::vector<uint64_t> ids;
};

TEST(PyTorch, LayersAndLossesHaveItsLossAndGradient) {
  ASSERT_GE(Golden()["layers"].size(), 17u);
  for (const nlohmann::json& layer : Golden()["layers"]) {
    SCOPED_TRACE(layer["name"].get<std::string>());
    const GoldenSamples samples(layer);
    const auto network =
        Make({layer["model"].get<std::string>(), samples.shape, layer["classes"].get<int>()});
    const std::vector<float> weights = Noise(network->num_parameters(), 1, 0.5f);
    std::vector<float> gradient(weights.size());
    const Score score = network->Train(weights, samples.Batch(), absl::MakeSpan(gradient));
    const double loss = layer["loss"].get<double>();
    EXPECT_NEAR(score.loss_sum / samples.size(), loss, 1e-5 * loss);
    ExpectClose(gradient, layer["gradient"].get<std::vector<double>>(), 5e-5);
  }
}

// The example's model without its dropout.
v1::Model ModelOf(const std::string& name) {
  const auto job = LoadJob("examples/" + name + ".textproto");
  EXPECT_TRUE(job.ok()) << job.status();
  v1::Model model = job->model();
  model.clear_layers();
  for (const v1::Layer& layer : job->model().layers()) {
    if (!layer.has_dropout()) *model.add_layers() = layer;
  }
  return model;
}

std::vector<float> WeightsFrom(const nlohmann::json& tensors) {
  std::vector<float> weights;
  int64_t stream = 100;
  for (const nlohmann::json& tensor : tensors) {
    const auto size = tensor[0].get<int64_t>();
    const auto scale = tensor[2].get<float>();
    const bool constant = tensor[1].get<std::string>() == "constant";
    const std::vector<float> values = constant ? std::vector<float>(size, scale) : Noise(size, stream, scale);
    weights.insert(weights.end(), values.begin(), values.end());
    ++stream;
  }
  return weights;
}

class ExampleTest : public testing::TestWithParam<const char*> {};

// The learning rates in the data are so small that no training is chaotic: rounding, which differs between
// processors, changes the losses by less than a thousandth of what the steps take off them. A gradient that
// is a hundredth too long changes them by twice the tolerance.
TEST_P(ExampleTest, LosesAsPyTorchDoes) {
  for (const nlohmann::json& example : Golden()["steps"]) {
    if (example["name"].get<std::string>() != GetParam()) continue;
    const GoldenSamples samples(example);
    const auto made =
        Network::Create(ModelOf(GetParam()), samples.shape, example["classes"].get<int>(),
                        {.max_batch_size = samples.size()}, MakeCpuBackend({.deterministic = true}));
    ASSERT_TRUE(made.ok()) << made.status();
    std::vector<float> weights = WeightsFrom(example["tensors"]);
    ASSERT_EQ(static_cast<int64_t>(weights.size()), (*made)->num_parameters());
    std::vector<float> gradient(weights.size());
    const auto learning_rate = example["learning_rate"].get<float>();
    const auto losses = example["losses"].get<std::vector<double>>();
    for (size_t step = 0; step < losses.size(); ++step) {
      const Score score = (*made)->Train(weights, samples.Batch(), absl::MakeSpan(gradient));
      const double tolerance = step == 0 ? 1e-4 * losses[0] : 5e-3 * (losses[0] - losses[step]);
      EXPECT_NEAR(score.loss_sum / samples.size(), losses[step], tolerance) << "step " << step;
      for (size_t i = 0; i < weights.size(); ++i) weights[i] -= learning_rate * gradient[i];
    }
    return;
  }
  FAIL() << kFile << " does not have it";
}

INSTANTIATE_TEST_SUITE_P(Examples, ExampleTest,
                         testing::Values("mnist_cnn", "mnist_mlp", "hep_lstm", "resnet20_cifar10",
                                         "resnet50"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace catchment
