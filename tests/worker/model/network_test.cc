#include "worker/model/network.h"

#include <cmath>
#include <functional>
#include <limits>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "tests/worker/model/largest_allocation.h"
#include "tests/worker/model/network_setup.h"
#include "tests/worker/model/reference_network.h"

namespace catchment {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr char kMnistCnn[] = R"(
  layers { conv2d { filters: 32 kernel_size: 3 } } layers { relu {} }
  layers { conv2d { filters: 64 kernel_size: 3 } } layers { relu {} }
  layers { max_pool { size: 2 } } layers { dropout { rate: 0.25 } } layers { flatten {} }
  layers { dense { units: 128 } } layers { relu {} } layers { dropout { rate: 0.5 } }
  layers { dense { units: 10 } })";

// Every kind of layer, in and out of fusion, small.
constexpr char kSmallCnn[] = R"(
  layers { conv2d { filters: 5 kernel_size: 3 padding: 1 } } layers { relu {} }
  layers { max_pool { size: 2 } } layers { relu {} }
  layers { conv2d { filters: 18 kernel_size: 2 stride: 2 } } layers { dropout { rate: 0.3 } }
  layers { flatten {} } layers { dense { units: 7 } } layers { relu {} } layers { dropout { rate: 0.2 } }
  layers { dense { units: 4 } })";

struct GradientCase {
  const char* name;
  const char* model;
  SampleShape input;
  int classes = 4;
};

class GradientTest : public testing::TestWithParam<GradientCase> {};

// The reference's loss is differenced, in double precision; so neither its backward kernels nor ours are
// trusted.
TEST_P(GradientTest, EqualsFiniteDifferencesOfTheReferenceLoss) {
  const GradientCase c = GetParam();
  const auto network = Make({c.model, c.input, c.classes});
  const Samples samples(5, c.input, c.classes);
  const std::vector<float> weights = InitialWeights(*network);
  ReferenceNetwork reference(network->layers(), 3, network->loss());
  const std::vector<double> inputs(samples.inputs.begin(), samples.inputs.end());
  std::vector<double> moved(weights.begin(), weights.end()), differences(weights.size());
  for (size_t i = 0; i < weights.size(); ++i) {
    constexpr double kStep = 1e-6;
    moved[i] = weights[i] + kStep;
    const double above = reference.Loss(moved, inputs, samples.labels, samples.ids.data());
    moved[i] = weights[i] - kStep;
    const double below = reference.Loss(moved, inputs, samples.labels, samples.ids.data());
    moved[i] = weights[i];
    differences[i] = (above - below) / (2 * kStep);
  }
  ExpectClose(GradientOf(network.get(), weights, samples.Batch()), differences, 2e-5);
}

INSTANTIATE_TEST_SUITE_P(
    Models, GradientTest,
    testing::Values(
        GradientCase{"dense", "layers { dense { units: 4 } }", SampleShape::Vector(6)},
        GradientCase{"dense_relu",
                     "layers { dense { units: 5 } } layers { relu {} } layers { dense { units: 4 } }",
                     SampleShape::Vector(3)},
        GradientCase{"relu_alone",
                     "layers { dense { units: 5 } } layers { dropout { rate: 0.1 } } layers { relu {} } "
                     "layers { relu {} } layers { dense { units: 4 } }",
                     SampleShape::Vector(3)},
        GradientCase{
            "conv", "layers { conv2d { filters: 4 kernel_size: 3 } } layers { flatten {} }", {2, 3, 3}},
        GradientCase{"conv_relu_dense",
                     "layers { conv2d { filters: 17 kernel_size: 2 } } layers { relu {} } "
                     "layers { flatten {} } layers { dense { units: 4 } }",
                     {1, 4, 3}},
        GradientCase{"pool_first",
                     "layers { max_pool { size: 2 stride: 1 } } layers { flatten {} } "
                     "layers { dense { units: 4 } }",
                     {2, 4, 4}},
        GradientCase{"dropout_first",
                     "layers { dropout { rate: 0.5 } } layers { flatten {} } layers { dense { units: 4 } }",
                     {2, 2, 3}},
        GradientCase{"dropout_after_relu",
                     "layers { conv2d { filters: 3 kernel_size: 2 } } layers { relu {} } "
                     "layers { dropout { rate: 0.5 } } layers { flatten {} } layers { dense { units: 4 } }",
                     {1, 4, 4}},
        GradientCase{"two_convs",
                     "layers { conv2d { filters: 3 kernel_size: 3 padding: 1 } } "
                     "layers { conv2d { filters: 4 kernel_size: 2 stride: 2 } } layers { relu {} } "
                     "layers { max_pool { size: 2 } } layers { flatten {} }",
                     {1, 4, 4}},
        GradientCase{"all", kSmallCnn, {2, 9, 8}},
        GradientCase{"groups_no_bias",
                     "layers { conv2d { filters: 6 kernel_size: 3 groups: 2 bias: false padding: 1 } } "
                     "layers { relu {} } layers { flatten {} } layers { dense { units: 4 bias: false } }",
                     {4, 3, 3}},
        GradientCase{"batch_norm_relu",
                     "layers { conv2d { filters: 5 kernel_size: 2 } } layers { batch_norm {} } "
                     "layers { relu {} } layers { flatten {} } layers { dense { units: 4 } }",
                     {2, 4, 3}},
        GradientCase{"ghost_batch_norm_of_vectors",
                     "layers { dense { units: 6 } } layers { batch_norm { ghost_batch: 3 epsilon: 0.01 } } "
                     "layers { dropout { rate: 0.2 } } layers { dense { units: 4 } }",
                     SampleShape::Vector(3)},
        GradientCase{"batch_norm_first",
                     "layers { batch_norm {} } layers { flatten {} } layers { dense { units: 4 } }",
                     {3, 2, 3}},
        GradientCase{"layer_norm_of_images",
                     "layers { conv2d { filters: 3 kernel_size: 2 } } layers { layer_norm {} } "
                     "layers { flatten {} } layers { dense { units: 4 } }",
                     {1, 4, 4}},
        GradientCase{
            "layer_norm_of_vectors",
            "layers { layer_norm {} } layers { dense { units: 5 } } layers { layer_norm { epsilon: 0.1 } } "
            "layers { tanh {} } layers { dense { units: 4 } }",
            SampleShape::Vector(6)},
        GradientCase{"gelu_tanh_sigmoid_softmax",
                     "layers { dense { units: 6 } } layers { gelu {} } layers { dense { units: 5 } } "
                     "layers { tanh {} } layers { dropout { rate: 0.2 } } layers { dense { units: 5 } } "
                     "layers { sigmoid {} } layers { relu {} } layers { dense { units: 5 } } "
                     "layers { softmax {} } layers { dense { units: 4 } }",
                     SampleShape::Vector(3)},
        GradientCase{"pools",
                     "layers { conv2d { filters: 3 kernel_size: 2 padding: 1 } } layers { max_pool { size: 3 "
                     "stride: 2 padding: 1 } } layers { average_pool { size: 2 stride: 1 padding: 1 } } "
                     "layers { gelu {} } layers { global_average_pool {} } layers { dense { units: 4 } }",
                     {2, 5, 4}},
        GradientCase{"residual_of_the_data",
                     "layers { residual { layers { conv2d { filters: 2 kernel_size: 3 padding: 1 } } } } "
                     "layers { flatten {} } layers { dense { units: 4 } }",
                     {2, 3, 3}},
        GradientCase{
            "residual_blocks",
            "layers { conv2d { filters: 4 kernel_size: 3 padding: 1 bias: false } } layers { batch_norm {} } "
            "layers { relu {} } layers { residual { "
            "  layers { conv2d { filters: 4 kernel_size: 3 padding: 1 } } layers { batch_norm {} } "
            "  layers { relu {} } layers { conv2d { filters: 4 kernel_size: 3 padding: 1 } } "
            "  layers { batch_norm {} } } } layers { relu {} } layers { residual { "
            "  layers { conv2d { filters: 6 kernel_size: 3 padding: 1 stride: 2 } } layers { relu {} } "
            "  shortcut { conv2d { filters: 6 kernel_size: 1 stride: 2 bias: false } } "
            "  shortcut { batch_norm {} } } } layers { relu {} } "
            "layers { global_average_pool {} } layers { dense { units: 4 } }",
            {2, 4, 4}},
        GradientCase{
            "residuals_that_act_in_place",
            "layers { dense { units: 5 } } layers { relu {} } layers { residual { layers { relu {} } "
            "  layers { dropout { rate: 0.3 } } shortcut { dropout { rate: 0.4 } } } } "
            "layers { residual { layers { tanh {} } shortcut { residual { layers { relu {} } } } } } "
            "layers { relu {} } layers { dropout { rate: 0.2 } } layers { dense { units: 4 } }",
            SampleShape::Vector(4)},
        GradientCase{"lstm", "layers { lstm { units: 3 } } layers { dense { units: 4 } }",
                     SampleShape::Sequence(4, 2)},
        GradientCase{
            "lstms",
            "layers { lstm { units: 3 sequences: true } } layers { layer_norm {} } "
            "layers { residual { layers { lstm { units: 3 sequences: true } } } } layers { softmax {} } "
            "layers { dropout { rate: 0.2 } } layers { flatten {} } layers { dense { units: 4 } }",
            SampleShape::Sequence(3, 5)},
        GradientCase{"lstm_of_one_step", "layers { lstm { units: 4 } }", SampleShape::Sequence(1, 2)},
        GradientCase{"smoothed_softmax", "layers { dense { units: 4 } } loss { label_smoothing: 0.1 }",
                     SampleShape::Vector(3)},
        GradientCase{
            "sigmoid_cross_entropy",
            "layers { dense { units: 4 } } loss { kind: SIGMOID_CROSS_ENTROPY label_smoothing: 0.2 }",
            SampleShape::Vector(3)},
        GradientCase{
            "one_output_for_two_classes",
            "layers { dense { units: 1 } } loss { kind: SIGMOID_CROSS_ENTROPY label_smoothing: 0.2 }",
            SampleShape::Vector(3), 2},
        GradientCase{"mean_squared_error",
                     "layers { dense { units: 4 } } layers { softmax {} } loss { kind: MEAN_SQUARED_ERROR }",
                     SampleShape::Vector(3)}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(Network, MnistCnnHasItsParametersAndTheReferencesGradient) {
  const auto network = Make({kMnistCnn, {1, 28, 28}, 10, 4});
  EXPECT_EQ(network->num_parameters(), 1199882);
  EXPECT_EQ(network->tensors().size(), 8u);
  const Samples samples(3, {1, 28, 28}, 10);
  const std::vector<float> weights = InitialWeights(*network);
  std::vector<float> gradient(weights.size());
  const Score score = network->Train(weights, samples.Batch(), absl::MakeSpan(gradient));

  ReferenceNetwork reference(network->layers(), 3);
  const std::vector<double> weights64(weights.begin(), weights.end());
  const std::vector<double> inputs(samples.inputs.begin(), samples.inputs.end());
  const double loss = reference.Loss(weights64, inputs, samples.labels, samples.ids.data());
  EXPECT_NEAR(score.loss_sum / 3, loss, 1e-5);
  EXPECT_EQ(score.samples, 3);
  // A relu or a maximum near a tie may go the other way in single precision.
  ExpectClose(gradient, reference.Gradient(weights64, samples.ids.data()), 1e-3);
}

TEST(Network, EvaluateIsTheReferenceLossWithoutDropout) {
  const auto network = Make({kSmallCnn, {2, 9, 8}});
  const Samples samples(7, {2, 9, 8}, 4);
  const std::vector<float> weights = InitialWeights(*network);
  ReferenceNetwork reference(network->layers(), 3);
  const double loss = reference.Loss({weights.begin(), weights.end()},
                                     {samples.inputs.begin(), samples.inputs.end()}, samples.labels, nullptr);
  const Score score = network->Evaluate(weights, samples.Batch());
  EXPECT_NEAR(score.loss_sum / 7, loss, 1e-6);
  EXPECT_EQ(score.samples, 7);
}

TEST(Network, RaggedBatchIsTheSumOfItsParts) {
  const auto network = Make({kSmallCnn, {2, 9, 8}, 4, 11});
  const Samples samples(11, {2, 9, 8}, 4);
  const std::vector<float> weights = InitialWeights(*network);
  const std::vector<float> whole = GradientOf(network.get(), weights, samples.Batch());
  const Score whole_score = network->Evaluate(weights, samples.Batch());
  std::vector<double> sum(weights.size());
  Score score;
  const int cuts[] = {0, 1, 4, 9, 11};
  for (int part = 0; part < 4; ++part) {
    const Minibatch batch = samples.Batch(cuts[part], cuts[part + 1]);
    const std::vector<float> gradient = GradientOf(network.get(), weights, batch);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i] * batch.samples / 11.0;
    score += network->Evaluate(weights, batch);
  }
  ExpectClose(whole, sum, 1e-5);
  EXPECT_NEAR(score.loss_sum, whole_score.loss_sum, 1e-5);
  EXPECT_EQ(score.correct, whole_score.correct);
  EXPECT_EQ(score.samples, 11);
}

TEST(Network, LargestBatchChangesNoBitOfTheUsualOnes) {
  const auto one = Make({kSmallCnn, {2, 9, 8}, 4, 6, true});
  const auto other = Make({kSmallCnn, {2, 9, 8}, 4, 12, true, 1, 6});
  const Samples samples(12, {2, 9, 8}, 4);
  const std::vector<float> weights = InitialWeights(*one);
  for (const int size : {1, 3, 5, 6}) {
    const Minibatch batch = samples.Batch(0, size);
    EXPECT_EQ(GradientOf(other.get(), weights, batch), GradientOf(one.get(), weights, batch)) << size;
  }
  for (const int size : {7, 9, 12}) {
    const std::vector<float> first = GradientOf(one.get(), weights, samples.Batch(0, 6));
    const std::vector<float> second = GradientOf(one.get(), weights, samples.Batch(6, size));
    std::vector<double> mean(weights.size());
    for (size_t i = 0; i < mean.size(); ++i) mean[i] = (6.0 * first[i] + (size - 6.0) * second[i]) / size;
    ExpectClose(GradientOf(other.get(), weights, samples.Batch(0, size)), mean, 1e-5);
  }
}

TEST(Network, PaddingHoldsNothingOfTheBatchBefore) {
  const auto network = Make({kSmallCnn, {2, 9, 8}});
  const Samples samples(3, {2, 9, 8}, 4);
  const std::vector<float> weights = InitialWeights(*network);
  const std::vector<float> first = GradientOf(network.get(), weights, samples.Batch());
  Samples poison(4, {2, 9, 8}, 4);
  std::fill(poison.inputs.begin(), poison.inputs.end(), std::numeric_limits<float>::quiet_NaN());
  network->Evaluate(weights, poison.Batch());
  EXPECT_EQ(GradientOf(network.get(), weights, samples.Batch()), first);
}

TEST(Network, DeterministicNetworksGiveIdenticalBits) {
  for (int threads : {1, 2}) {
    const NetworkSetup setup = {kMnistCnn, {1, 28, 28}, 10, 6, true, threads};
    const auto one = Make(setup), other = Make(setup);
    const Samples samples(6, {1, 28, 28}, 10);
    const std::vector<float> weights = InitialWeights(*one);
    const std::vector<float> gradient = GradientOf(one.get(), weights, samples.Batch());
    EXPECT_EQ(GradientOf(other.get(), weights, samples.Batch()), gradient) << threads << " threads";
    EXPECT_EQ(GradientOf(one.get(), weights, samples.Batch()), gradient) << threads << " threads";
  }
}

TEST(Network, ThreadsChangeOnlyRounding) {
  NetworkSetup setup = {kSmallCnn, {2, 9, 8}};
  const auto one = Make(setup);
  setup.threads = 3;
  const auto three = Make(setup);
  const Samples samples(8, {2, 9, 8}, 4);
  const std::vector<float> weights = InitialWeights(*one);
  const std::vector<float> gradient = GradientOf(one.get(), weights, samples.Batch());
  ExpectClose(GradientOf(three.get(), weights, samples.Batch()), {gradient.begin(), gradient.end()}, 1e-5);
}

TEST(Network, MayBeRunByAnotherThreadThanMadeIt) {
  const auto network = Make({kSmallCnn, {2, 9, 8}});
  const Samples samples(8, {2, 9, 8}, 4);
  const std::vector<float> weights = InitialWeights(*network);
  const std::vector<float> here = GradientOf(network.get(), weights, samples.Batch());
  std::vector<float> there;
  std::thread([&] { there = GradientOf(network.get(), weights, samples.Batch()); }).join();
  EXPECT_EQ(there, here);
}

TEST(Network, TwoNetworksTrainAtTheSameTime) {
  const Samples samples(8, {2, 9, 8}, 4);
  std::vector<float> gradients[2];
  std::vector<std::thread> threads;
  for (auto& gradient : gradients) {
    threads.emplace_back([&] {
      const auto network = Make({kSmallCnn, {2, 9, 8}, 4, 8, true});
      for (int i = 0; i < 20; ++i)
        gradient = GradientOf(network.get(), InitialWeights(*network), samples.Batch());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(gradients[0], gradients[1]);
}

TEST(Network, DropoutFollowsSampleIds) {
  const auto network = Make({kSmallCnn, {2, 9, 8}});
  Samples samples(4, {2, 9, 8}, 4);
  const std::vector<float> weights = InitialWeights(*network);
  const std::vector<float> before = GradientOf(network.get(), weights, samples.Batch());
  EXPECT_EQ(GradientOf(network.get(), weights, samples.Batch()), before);
  samples.ids[2] += 1;
  EXPECT_NE(GradientOf(network.get(), weights, samples.Batch()), before);
}

// 2x9x8 -> 5x9x8 -> 5x4x4 -> 18x2x2
const std::vector<int64_t> kSmallCnnSizes = {5 * 2 * 9 + 5, 18 * 5 * 4 + 18, 72 * 7 + 7, 7 * 4 + 4};

// Follows a pass with two functions.
struct Follower final : PassObserver {
  void BeforeForward(Range range) override { before(range); }
  void AfterBackward(Range range) override { after(range); }
  std::function<void(Range)> before = [](Range) {};
  std::function<void(Range)> after = [](Range) {};
};

TEST(Network, ObserverSeesFinishedPartsLastLayerFirst) {
  const auto network = Make({kSmallCnn, {2, 9, 8}});
  const Samples samples(8, {2, 9, 8}, 4);
  const std::vector<float> weights = InitialWeights(*network);
  const std::vector<float> want = GradientOf(network.get(), weights, samples.Batch());
  std::vector<float> gradient(weights.size(), std::numeric_limits<float>::quiet_NaN());
  int64_t next = network->num_parameters();
  std::vector<int64_t> sizes;
  Follower follower;
  follower.after = [&](Range range) {
    EXPECT_EQ(range.end, next);
    next = range.begin;
    sizes.push_back(range.size());
    EXPECT_TRUE(
        std::equal(gradient.begin() + range.begin, gradient.begin() + range.end, want.begin() + range.begin));
    if (range.begin > 0) {
      EXPECT_TRUE(std::isnan(gradient[range.begin - 1]));
    }
  };
  network->Train(weights, samples.Batch(), absl::MakeSpan(gradient), &follower);
  EXPECT_EQ(next, 0);
  EXPECT_THAT(sizes, ElementsAreArray(kSmallCnnSizes.rbegin(), kSmallCnnSizes.rend()));
}

// A dense layer of 250 x 300 weights is computed in parts.
constexpr char kWideDense[] = R"(
  layers { flatten {} } layers { dense { units: 300 } } layers { relu {} } layers { dense { units: 130 } }
  layers { dense { units: 4 bias: false } })";

TEST(Network, WeightsOfAPartOfADenseLayerAreReadOnlyBetweenItsTwoCalls) {
  const auto network = Make({kWideDense, SampleShape::Vector(250)});
  const Samples samples(8, SampleShape::Vector(250), 4);
  const std::vector<float> weights = InitialWeights(*network);
  const std::vector<float> want = GradientOf(network.get(), weights, samples.Batch());
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> arriving(weights.size(), kNan), gradient(weights.size(), kNan);
  std::vector<Range> forward, backward;
  Follower follower;
  follower.before = [&](Range range) {
    EXPECT_EQ(range.begin, forward.empty() ? 0 : forward.back().end);
    forward.push_back(range);
    std::copy(weights.begin() + range.begin, weights.begin() + range.end, arriving.begin() + range.begin);
  };
  follower.after = [&](Range range) {
    backward.insert(backward.begin(), range);
    std::fill(arriving.begin() + range.begin, arriving.begin() + range.end, kNan);
    EXPECT_TRUE(
        std::equal(gradient.begin() + range.begin, gradient.begin() + range.end, want.begin() + range.begin));
  };
  network->Train(arriving, samples.Batch(), absl::MakeSpan(gradient), &follower);
  EXPECT_EQ(gradient, want);
  EXPECT_EQ(forward, backward);
  EXPECT_EQ(forward.back().end, network->num_parameters());
  // The first layer's weights, whose second part ends with its bias, the second layer's and the third's.
  EXPECT_EQ(forward, (std::vector<Range>{{0, 37500}, {37500, 75300}, {75300, 114430}, {114430, 114950}}));
}

// The weights arrive one layer at a time, and are released as soon as their gradient is reported.
TEST(Network, WeightsAreReadOnlyBetweenTheTwoCallsOfTheirLayer) {
  for (const bool deterministic : {false, true}) {
    const auto network = Make({kSmallCnn, {2, 9, 8}, 4, 8, deterministic});
    const Samples samples(8, {2, 9, 8}, 4);
    const std::vector<float> weights = InitialWeights(*network);
    const std::vector<float> want = GradientOf(network.get(), weights, samples.Batch());
    std::vector<float> arriving(weights.size(), std::numeric_limits<float>::quiet_NaN());
    std::vector<float> gradient(weights.size());
    std::vector<int64_t> sizes;
    Follower follower;
    follower.before = [&](Range range) {
      sizes.push_back(range.size());
      std::copy(weights.begin() + range.begin, weights.begin() + range.end, arriving.begin() + range.begin);
    };
    follower.after = [&](Range range) {
      std::fill(arriving.begin() + range.begin, arriving.begin() + range.end,
                std::numeric_limits<float>::quiet_NaN());
    };
    network->Train(arriving, samples.Batch(), absl::MakeSpan(gradient), &follower);
    EXPECT_EQ(gradient, want);
    EXPECT_EQ(sizes, kSmallCnnSizes);
  }
}

TEST(Network, TrainingLearnsSeparableData) {
  const auto network =
      Make({R"(layers { dense { units: 16 } } layers { relu {} } layers { dense { units: 3 } })",
            SampleShape::Vector(2), 3, 32});
  Samples samples(300, SampleShape::Vector(2), 3);
  for (int i = 0; i < 300; ++i) {  // three clusters
    samples.inputs[2 * i] = 0.3f * samples.inputs[2 * i] + 2 * std::cos(2.1f * samples.labels[i]);
    samples.inputs[2 * i + 1] = 0.3f * samples.inputs[2 * i + 1] + 2 * std::sin(2.1f * samples.labels[i]);
  }
  std::vector<float> weights = InitialWeights(*network), gradient(weights.size());
  double first = 0, last = 0;
  Score score;
  for (int epoch = 0; epoch < 20; ++epoch) {
    score = {};
    for (int begin = 0; begin < 300; begin += 32) {
      score +=
          network->Train(weights, samples.Batch(begin, std::min(300, begin + 32)), absl::MakeSpan(gradient));
      for (size_t i = 0; i < weights.size(); ++i) weights[i] -= 0.2f * gradient[i];
    }
    (epoch == 0 ? first : last) = score.loss_sum / 300;
  }
  EXPECT_LT(last, 0.1 * first);
  EXPECT_GT(score.correct, 290);
}

TEST(Network, SteadyStepsAllocateNoBuffers) {
  const auto network = Make({kMnistCnn, {1, 28, 28}, 10, 8});
  const Samples samples(8, {1, 28, 28}, 10);
  const std::vector<float> weights = InitialWeights(*network);
  std::vector<float> gradient(weights.size());
  for (int n : {8, 5, 3}) network->Train(weights, samples.Batch(0, n), absl::MakeSpan(gradient));
  ResetLargestAllocation();
  for (int n : {8, 6, 4, 3}) network->Train(weights, samples.Batch(0, n), absl::MakeSpan(gradient));
  EXPECT_LE(LargestAllocation(), 4096u);  // oneDNN's own bookkeeping of a run
}

TEST(Network, BadModelsAreRefusedByTheirField) {
  const auto refused =
      Network::Create(Parse("layers { dense { units: 10 } }"), {1, 28, 28}, 10, {}, MakeCpuBackend({}));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(refused.status().message()),
              HasSubstr("model.layers[0].dense: its input is 1x28x28"));
  const auto no_batch = Network::Create(Parse("layers { dense { units: 10 } }"), SampleShape::Vector(3), 10,
                                        {.max_batch_size = 0}, MakeCpuBackend({}));
  EXPECT_THAT(std::string(no_batch.status().message()), HasSubstr("batch_size"));
}

TEST(Network, ModelsTooLargeForMemoryAreRefused) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "a sanitizer's allocator ends the process instead of refusing";
#endif
  const auto refused =
      Network::Create(Parse("layers { conv2d { filters: 60000 kernel_size: 1 } } "
                            "layers { max_pool { size: 28 } } layers { flatten {} } "
                            "layers { dense { units: 10 } }"),
                      {1, 28, 28}, 10, {.max_batch_size = 1 << 14}, MakeCpuBackend({.deterministic = true}));
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted) << refused.status();
}

}  // namespace
}  // namespace catchment
