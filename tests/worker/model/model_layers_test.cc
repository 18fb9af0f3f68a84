// Networks against the reference, forward and backward, over shapes that are tiny, ragged and large. Each
// begins with a layer of parameters, so that what follows is held to its input's gradient too.
#include <functional>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/model/largest_allocation.h"
#include "tests/worker/model/network_setup.h"
#include "tests/worker/model/reference_network.h"

namespace catchment {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;

struct LayerCase {
  const char* name;
  std::string model;
  SampleShape input;
  int classes;
  int samples;
  int batch_size;  // of the kernels; what is above `samples` is padding
  double tolerance = 5e-5;
};

class LayersTest : public testing::TestWithParam<LayerCase> {};

TEST_P(LayersTest, EqualReferenceForwardAndBackward) {
  const LayerCase c = GetParam();
  const Samples samples(c.samples, c.input, c.classes);
  for (const bool deterministic : {false, true}) {
    const auto network =
        Make({c.model, c.input, c.classes, c.batch_size, deterministic, deterministic ? 2 : 1});
    const std::vector<float> weights = InitialWeights(*network);
    ReferenceNetwork reference(network->layers(), 3, network->loss());
    const std::vector<double> weights64(weights.begin(), weights.end());
    const double loss = reference.Loss(weights64, {samples.inputs.begin(), samples.inputs.end()},
                                       samples.labels, samples.ids.data());
    std::vector<float> gradient(weights.size(), std::numeric_limits<float>::quiet_NaN());
    const Score score = network->Train(weights, samples.Batch(), absl::MakeSpan(gradient));
    EXPECT_NEAR(score.loss_sum / c.samples, loss, 1e-5 * loss);
    ExpectClose(gradient, reference.Gradient(weights64, samples.ids.data()), c.tolerance);
    EXPECT_EQ(GradientOf(network.get(), weights, samples.Batch()), gradient);
  }
}

// A convolution, a layer, and a dense layer with few outputs.
std::string Between(const std::string& filters, const std::string& layers) {
  return "layers { conv2d { filters: " + filters + " kernel_size: 3 padding: 1 } } " + layers +
         " layers { global_average_pool {} } layers { dense { units: 3 } }";
}

std::string Behind(const std::string& units, const std::string& layers) {
  return "layers { dense { units: " + units + " } } " + layers + " layers { dense { units: 3 } }";
}

const char kBatchNorm[] = "layers { batch_norm {} } layers { relu {} }";
const char kGhosts[] = "layers { batch_norm { ghost_batch: 4 } }";
const char kBlock[] =
    "layers { residual { layers { batch_norm {} } layers { relu {} } layers { conv2d { filters: 17 "
    "kernel_size: 3 padding: 1 bias: false } } } } layers { relu {} }";

INSTANTIATE_TEST_SUITE_P(
    Shapes, LayersTest,
    testing::Values(
        LayerCase{"batch_norm_tiny", Between("1", kBatchNorm), {1, 1, 1}, 3, 2, 2},
        LayerCase{"batch_norm_ragged", Between("17", kBatchNorm), {3, 7, 5}, 3, 5, 8, 3e-4},
        LayerCase{"batch_norm_odd_planes", Between("3", kBatchNorm), {1, 7, 7}, 3, 3, 4, 3e-4},
        LayerCase{"batch_norm_large", Between("32", kBatchNorm), {3, 24, 24}, 3, 16, 16, 3e-4},
        LayerCase{"ghosts", Between("16", kGhosts), {3, 6, 6}, 3, 11, 16, 3e-4},
        LayerCase{"ghosts_of_vectors", Behind("33", kGhosts), SampleShape::Vector(7), 3, 10, 16, 3e-4},
        LayerCase{"batch_norm_of_flat_images",
                  "layers { conv2d { filters: 5 kernel_size: 3 } } layers { flatten {} } "
                  "layers { batch_norm {} } layers { dense { units: 3 } }",
                  {2, 6, 5},
                  3,
                  6,
                  8,
                  3e-4},
        LayerCase{"blocks", Between("17", kBlock), {3, 9, 7}, 3, 6, 8, 3e-4},
        LayerCase{"blocks_of_blocks", Between("17", std::string(kBlock) + kBlock), {3, 6, 6}, 3, 8, 8, 3e-4},
        LayerCase{"grouped",
                  Between("24", "layers { conv2d { filters: 36 kernel_size: 3 groups: 12 bias: false } }"),
                  {3, 9, 9},
                  3,
                  4,
                  4},
        LayerCase{"depthwise",
                  Between("16", "layers { conv2d { filters: 16 kernel_size: 3 groups: 16 } }"),
                  {3, 9, 9},
                  3,
                  4,
                  4},
        LayerCase{"padded_pools",
                  Between("18",
                          "layers { max_pool { size: 3 stride: 2 padding: 1 } } "
                          "layers { average_pool { size: 3 stride: 1 padding: 1 } }"),
                  {3, 11, 8},
                  3,
                  5,
                  8},
        LayerCase{
            "average_pool_large", Between("32", "layers { average_pool { size: 2 } }"), {3, 32, 32}, 3, 4, 4},
        LayerCase{"activation_functions_of_images",
                  Between("19", "layers { gelu {} } layers { tanh {} } layers { sigmoid {} }"),
                  {2, 5, 7},
                  3,
                  3,
                  4},
        LayerCase{"activation_functions_of_vectors",
                  Behind("1000", "layers { gelu {} } layers { tanh {} } layers { softmax {} }"),
                  SampleShape::Vector(3), 3, 5, 8},
        LayerCase{"softmax_of_one", Behind("1", "layers { softmax {} } layers { dense { units: 2 } }"),
                  SampleShape::Vector(3), 3, 1, 1},
        LayerCase{"layer_norm_large", Behind("1024", "layers { layer_norm {} }"), SampleShape::Vector(9), 3,
                  7, 8},
        LayerCase{
            "layer_norm_of_images", Between("17", "layers { layer_norm {} }"), {3, 6, 5}, 3, 3, 4, 2e-4},
        LayerCase{"lstm_tiny", "layers { lstm { units: 1 } } layers { dense { units: 3 } }",
                  SampleShape::Sequence(1, 1), 3, 1, 1},
        LayerCase{"lstm_ragged",
                  "layers { lstm { units: 13 sequences: true } } layers { lstm { units: 7 } } "
                  "layers { dense { units: 3 } }",
                  SampleShape::Sequence(5, 3), 3, 5, 8},
        LayerCase{"lstms_divided_among_threads",
                  "layers { lstm { units: 40 sequences: true } } layers { lstm { units: 33 } } "
                  "layers { dense { units: 3 } }",
                  SampleShape::Sequence(6, 19), 3, 29, 31},
        LayerCase{"lstm_large", "layers { lstm { units: 50 } } layers { dense { units: 3 } }",
                  SampleShape::Sequence(50, 19), 3, 20, 32}),
    [](const auto& info) { return std::string(info.param.name); });

constexpr char kNormed[] =
    "layers { conv2d { filters: 5 kernel_size: 3 } } layers { batch_norm { ghost_batch: 3 } } "
    "layers { relu {} } layers { flatten {} } layers { dense { units: 6 } } "
    "layers { batch_norm {} } layers { dense { units: 3 } }";

// Gives samples begin .. end-1 in minibatches of `size`.
std::function<bool(Minibatch*)> InBatches(const Samples& samples, int begin, int end, int size) {
  return [&samples, begin, end, size](Minibatch* batch) mutable {
    if (begin >= end) return false;
    *batch = samples.Batch(begin, std::min(end, begin + size));
    begin += size;
    return true;
  };
}

double LossOf(Network* network, const std::vector<float>& weights, const Minibatch& batch) {
  return network->Evaluate(weights, batch).loss_sum / batch.samples;
}

// With the statistics of the very samples that are scored, the loss is that of a training pass.
TEST(BatchNormStatistics, OfTheMinibatchItselfGiveItsTrainingLoss) {
  const char model[] =
      "layers { conv2d { filters: 5 kernel_size: 3 } } layers { batch_norm {} } layers { relu {} } "
      "layers { flatten {} } layers { dense { units: 3 } }";
  const auto network = Make({model, {2, 6, 5}, 3, 8});
  const Samples samples(7, {2, 6, 5}, 3);
  const std::vector<float> weights = InitialWeights(*network);
  std::vector<float> gradient(weights.size());
  const double training = network->Train(weights, samples.Batch(), absl::MakeSpan(gradient)).loss_sum / 7;
  network->EstimateStatistics(weights, InBatches(samples, 0, 7, 7));
  EXPECT_NEAR(LossOf(network.get(), weights, samples.Batch()), training, 1e-5);
  // Each sample by itself is scored with the same statistics, whatever comes with it.
  double sum = 0;
  for (int i = 0; i < 7; ++i) sum += LossOf(network.get(), weights, samples.Batch(i, i + 1));
  EXPECT_NEAR(sum / 7, training, 1e-5);
}

// The first batch_norm's input does not depend on statistics, so it has the moments of all samples, however
// they come.
TEST(BatchNormStatistics, OfManyMinibatchesAreThoseOfAllTheirSamples) {
  const char model[] =
      "layers { conv2d { filters: 5 kernel_size: 3 } } layers { batch_norm { ghost_batch: 3 } } "
      "layers { relu {} } layers { flatten {} } layers { dense { units: 3 } }";
  const auto network = Make({model, {2, 6, 5}, 3, 16});
  const Samples samples(16, {2, 6, 5}, 3);
  const std::vector<float> weights = InitialWeights(*network);
  network->EstimateStatistics(weights, InBatches(samples, 0, 16, 16));
  const double whole = LossOf(network.get(), weights, samples.Batch());
  network->EstimateStatistics(weights, InBatches(samples, 0, 16, 5));
  EXPECT_NEAR(LossOf(network.get(), weights, samples.Batch()), whole, 1e-5);
  network->EstimateStatistics(weights, InBatches(samples, 0, 4, 4));
  EXPECT_GT(std::fabs(LossOf(network.get(), weights, samples.Batch()) - whole), 1e-4);
}

// By the names and in the shapes of PyTorch's buffers.
TEST(BatchNormStatistics, AreReturnedWithNames) {
  const auto network =
      Make({"layers { name: \"norm\" batch_norm {} } layers { flatten {} } layers { dense { units: 3 } }",
            {2, 1, 2},
            3,
            8});
  Samples samples(4, {2, 1, 2}, 3);
  samples.inputs = {1, 2, 10, 10, 3, 4, 10, 10, 1, 2, 10, 10, 3, 4, 30, 30};
  network->EstimateStatistics(InitialWeights(*network), InBatches(samples, 0, 4, 2));
  const std::vector<Trainable::Statistic> statistics = network->statistics();
  ASSERT_EQ(statistics.size(), 2u);
  EXPECT_EQ(statistics[0].name, "norm.running_mean");
  EXPECT_THAT(statistics[0].values, ElementsAre(FloatNear(2.5f, 1e-5f), FloatNear(15, 1e-5f)));
  EXPECT_EQ(statistics[1].name, "norm.running_var");
  EXPECT_THAT(statistics[1].values, ElementsAre(FloatNear(1.25f, 1e-5f), FloatNear(75, 1e-4f)));
}

TEST(BatchNormStatistics, TrainingLeavesThemAlone) {
  const auto network = Make({kNormed, {2, 6, 5}, 3, 8});
  const Samples samples(8, {2, 6, 5}, 3), others(8, {2, 6, 5}, 3, 2);
  const std::vector<float> weights = InitialWeights(*network);
  network->EstimateStatistics(weights, InBatches(samples, 0, 8, 8));
  const double before = LossOf(network.get(), weights, samples.Batch());
  GradientOf(network.get(), weights, others.Batch());
  EXPECT_EQ(LossOf(network.get(), weights, samples.Batch()), before);
}

// Channels far from 0 in relation to their spread keep their variance.
TEST(BatchNorm, LargeMeansCostLittlePrecision) {
  const auto network = Make(
      {"layers { batch_norm {} } layers { flatten {} } layers { dense { units: 3 } }", {2, 12, 12}, 3, 8});
  Samples samples(8, {2, 12, 12}, 3);
  for (float& value : samples.inputs) value = 1000 + value;
  const std::vector<float> weights = InitialWeights(*network);
  ReferenceNetwork reference(network->layers(), 3);
  const double loss = reference.Loss({weights.begin(), weights.end()},
                                     {samples.inputs.begin(), samples.inputs.end()}, samples.labels, nullptr);
  std::vector<float> gradient(weights.size());
  EXPECT_NEAR(network->Train(weights, samples.Batch(), absl::MakeSpan(gradient)).loss_sum / 8, loss,
              2e-3 * loss);
}

TEST(Layers, SteadyStepsAllocateNoBuffers) {
  const auto network = Make({Between("17", kBlock), {3, 9, 7}, 3, 8});
  const auto recurrent =
      Make({"layers { lstm { units: 40 } } layers { tanh {} } layers { dense { units: 3 } }",
            SampleShape::Sequence(9, 20), 3, 8});
  for (Network* one : {network.get(), recurrent.get()}) {
    const Samples samples(8, one->layers().front().input, 3);
    const std::vector<float> weights = InitialWeights(*one);
    std::vector<float> gradient(weights.size());
    for (int n : {8, 5}) one->Train(weights, samples.Batch(0, n), absl::MakeSpan(gradient));
    ResetLargestAllocation();
    for (int n : {8, 6}) one->Train(weights, samples.Batch(0, n), absl::MakeSpan(gradient));
    EXPECT_LE(LargestAllocation(), 4096u);  // oneDNN's own bookkeeping of a run
  }
}

}  // namespace
}  // namespace catchment
