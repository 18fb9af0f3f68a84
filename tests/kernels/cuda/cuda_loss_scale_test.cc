// Training in float16 with a scaled loss, in plain loops on the processor: the course of the scale, and what
// leaves the network.
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/loader.h"
#include "worker/model/network.h"

namespace catchment {
namespace {

constexpr char kOnHost[] = "./tests/kernels/cuda/cuda_plugin_on_host.so";
constexpr int kBatch = 8, kInputs = 12, kClasses = 4;
// Two layers, the gradients of both of float16's range.
constexpr char kModel[] =
    "layers { dense { units: 16 } } layers { relu {} } layers { dropout { rate: 0.2 } } "
    "layers { dense { units: 4 } }";

std::unique_ptr<Network> MakeNetwork(const std::string& text, CatchmentCudaPrecision precision,
                                     Network::Options options) {
  v1::Model model;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &model));
  options.max_batch_size = kBatch;
  auto network = Network::Create(model, SampleShape::Vector(kInputs), kClasses, options,
                                 *MakeCudaBackend(**OpenCudaPlugin(kOnHost), {.precision = precision}));
  EXPECT_TRUE(network.ok()) << network.status();
  return *std::move(network);
}

std::unique_ptr<Network> Scaled(float scale, uint32_t period = 2000, const std::string& model = kModel) {
  return MakeNetwork(model, CATCHMENT_CUDA_FLOAT16, {.loss_scale = scale, .loss_scale_period = period});
}

std::vector<float> RandomValues(int64_t size, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(random.Uniform(-0.5, 0.5));
  return values;
}

struct Samples {
  std::vector<float> inputs = RandomValues(kBatch * kInputs, 7);
  std::vector<int32_t> labels = {0, 1, 2, 3, 3, 2, 1, 0};
  std::vector<uint64_t> ids = {1, 2, 3, 4, 5, 6, 7, 8};

  Minibatch batch() const { return {inputs.data(), labels.data(), ids.data(), kBatch}; }
};

struct Step {
  Score score;
  std::vector<float> gradient;
};

Step Train(Network* network, const Samples& samples, const std::vector<float>& weights) {
  Step step{{}, std::vector<float>(weights.size(), NAN)};
  step.score = network->Train(weights, samples.batch(), absl::MakeSpan(step.gradient));
  return step;
}

bool AllFinite(const std::vector<float>& values) {
  for (const float value : values) {
    if (!std::isfinite(value)) return false;
  }
  return true;
}

TEST(LossScaleTest, AMinibatchIsTakenAgainUntilNothingOverflows) {
  const Samples samples;
  const std::unique_ptr<Network> network = Scaled(0x1p30f);
  const std::vector<float> weights = RandomValues(network->num_parameters(), 3);
  const Step retaken = Train(network.get(), samples, weights);
  EXPECT_TRUE(AllFinite(retaken.gradient));
  const float scale = network->loss_scale();
  EXPECT_LT(scale, 0x1p30f);

  const std::unique_ptr<Network> at_once = Scaled(scale);
  const Step first = Train(at_once.get(), samples, weights);
  EXPECT_EQ(at_once->loss_scale(), scale) << "it was enough";
  EXPECT_EQ(retaken.gradient, first.gradient) << "bit by bit";
  EXPECT_EQ(retaken.score.loss_sum, first.score.loss_sum);
  EXPECT_EQ(retaken.score.correct, first.score.correct);

  const std::unique_ptr<Network> twice = Scaled(2 * scale);
  Train(twice.get(), samples, weights);
  EXPECT_EQ(twice->loss_scale(), scale) << "twice as much overflowed";
}

TEST(LossScaleTest, GradientsAreUnscaled) {
  const Samples samples;
  std::vector<float> weights;
  std::vector<std::vector<float>> gradients;
  for (const float scale : {1.0f, 256.0f, 65536.0f}) {
    const std::unique_ptr<Network> network = Scaled(scale);
    weights = RandomValues(network->num_parameters(), 3);
    gradients.push_back(Train(network.get(), samples, weights).gradient);
    EXPECT_EQ(network->loss_scale(), scale);
  }
  const std::unique_ptr<Network> exact = MakeNetwork(kModel, CATCHMENT_CUDA_FLOAT32, {});
  const std::vector<float> want = Train(exact.get(), samples, weights).gradient;
  float largest = 0;
  for (const float value : want) largest = std::max(largest, std::fabs(value));
  for (size_t i = 0; i < want.size(); ++i) {
    // Two layers forward and backward: four products of factors with eleven bits.
    for (const std::vector<float>& gradient : gradients)
      ASSERT_NEAR(gradient[i], want[i], 8 * 0x1p-11 * largest) << i;
    // Away from the smallest numbers a power of two changes no bit.
    ASSERT_EQ(gradients[1][i], gradients[2][i]) << i;
  }
}

// The case that needs scaling: the network is sure of the correct class, e^-18 from certain, and the gradient
// of the second layer's outputs is about 2^-29, below half of float16's smallest number.
TEST(LossScaleTest, SmallGradientsAreNotLost) {
  Samples samples;
  samples.labels.assign(kBatch, 0);
  for (const float scale : {1.0f, 65536.0f}) {
    const std::unique_ptr<Network> network = Scaled(scale);
    std::vector<float> weights = RandomValues(network->num_parameters(), 3);
    weights[weights.size() - kClasses] = 18;
    const std::vector<float> gradient = Train(network.get(), samples, weights).gradient;
    float largest = 0;
    for (size_t i = 0; i < kInputs * 16; ++i) largest = std::max(largest, std::fabs(gradient[i]));
    EXPECT_EQ(largest > 0, scale > 1) << scale;
  }
}

TEST(LossScaleTest, DoublesAfterAPeriodWithoutOverflow) {
  const Samples samples;
  const std::unique_ptr<Network> network = Scaled(4, 3);
  const std::vector<float> weights = RandomValues(network->num_parameters(), 3);
  std::vector<float> scales;
  for (int i = 0; i < 7; ++i) {
    Train(network.get(), samples, weights);
    scales.push_back(network->loss_scale());
  }
  EXPECT_EQ(scales, (std::vector<float>{4, 4, 8, 8, 8, 16, 16}));
}

TEST(LossScaleTest, AnOverflowBeginsThePeriodAnew) {
  LossScale scale(8, 3);
  scale.Good();
  scale.Good();
  EXPECT_TRUE(scale.Overflow());
  EXPECT_EQ(scale.value(), 4);
  scale.Good();
  scale.Good();
  EXPECT_EQ(scale.value(), 4);
  scale.Good();
  EXPECT_EQ(scale.value(), 8);
}

TEST(LossScaleTest, StaysWithinItsBounds) {
  LossScale scale(LossScale::kLargest, 1);
  scale.Good();
  EXPECT_EQ(scale.value(), LossScale::kLargest);
  LossScale least(2, 1);
  EXPECT_TRUE(least.Overflow());
  EXPECT_EQ(least.value(), 1);
  EXPECT_FALSE(least.Overflow());
  EXPECT_EQ(least.value(), 1);
}

// The bias is not a factor of a product, so the loss is finite; its gradient is too large for float16.
TEST(LossScaleTest, AnOverflowAtAScaleOfOneGoesOut) {
  const Samples samples;
  const std::unique_ptr<Network> network =
      Scaled(16, 2000, "layers { dense { units: 4 } } loss { kind: MEAN_SQUARED_ERROR }");
  std::vector<float> weights(network->num_parameters(), 0.1f);
  for (size_t i = weights.size() - kClasses; i < weights.size(); ++i) weights[i] = 1e7f;
  const Step step = Train(network.get(), samples, weights);
  EXPECT_TRUE(std::isfinite(step.score.loss_sum));
  EXPECT_FALSE(AllFinite(step.gradient));
  EXPECT_EQ(network->loss_scale(), 1);
}

TEST(LossScaleTest, ALossThatIsNotFiniteLeavesTheScaleAlone) {
  Samples samples;
  samples.inputs[5] = 1e5f;  // infinite in float16
  const std::unique_ptr<Network> network = Scaled(1024);
  const Step step = Train(network.get(), samples, RandomValues(network->num_parameters(), 3));
  EXPECT_FALSE(std::isfinite(step.score.loss_sum));
  EXPECT_FALSE(AllFinite(step.gradient));
  EXPECT_EQ(network->loss_scale(), 1024);
}

class Follower final : public PassObserver {
 public:
  explicit Follower(const std::vector<float>* gradient) : gradient_(*gradient) {}
  void BeforeForward(Range layer) override { absl::StrAppend(&calls, "f", layer.begin, "-", layer.end, " "); }
  void AfterBackward(Range layer) override {
    absl::StrAppend(&calls, "b", layer.begin, "-", layer.end, AllFinite(gradient_) ? " " : "! ");
  }
  std::string calls;

 private:
  const std::vector<float>& gradient_;
};

TEST(LossScaleTest, WhoFollowsIsToldOnceOfWhatIsFinite) {
  const Samples samples;
  const std::unique_ptr<Network> network = Scaled(0x1p30f);
  const std::vector<float> weights = RandomValues(network->num_parameters(), 3);
  std::vector<float> gradient(weights.size(), NAN);
  Follower follower(&gradient);
  network->Train(weights, samples.batch(), absl::MakeSpan(gradient), &follower);
  EXPECT_LT(network->loss_scale(), 0x1p30f) << "it was taken again";
  EXPECT_EQ(follower.calls, "f0-208 f208-276 b0-276 ");
}

// Four clouds of points; the loss after some steps of gradient descent.
double LossAfterTraining(CatchmentCudaPrecision precision) {
  const std::unique_ptr<Network> network = MakeNetwork(kModel, precision, {});
  Random random(5);
  std::vector<float> weights = RandomValues(network->num_parameters(), 3);
  const std::vector<float> centers = RandomValues(kClasses * kInputs, 9);
  Samples samples;
  double loss = 0;
  constexpr int kSteps = 300, kAveraged = 100;
  for (int step = 0; step < kSteps; ++step) {
    for (int i = 0; i < kBatch * kInputs; ++i) {
      const int label = samples.labels[i / kInputs];
      samples.inputs[i] =
          2 * centers[label * kInputs + i % kInputs] + 0.5f * static_cast<float>(random.Normal());
    }
    for (uint64_t& id : samples.ids) id += kBatch;
    const Step taken = Train(network.get(), samples, weights);
    if (step >= kSteps - kAveraged) loss += taken.score.loss_sum / kBatch / kAveraged;
    for (size_t i = 0; i < weights.size(); ++i) weights[i] -= 0.05f * taken.gradient[i];
  }
  return loss;
}

TEST(PrecisionTest, SixteenBitsLearnWhatFloat32Learns) {
  const double want = LossAfterTraining(CATCHMENT_CUDA_FLOAT32);
  EXPECT_LT(want, 0.6) << "it learns; by chance 1.39";
  EXPECT_NEAR(LossAfterTraining(CATCHMENT_CUDA_TF32), want, 0.02 * want);
  EXPECT_NEAR(LossAfterTraining(CATCHMENT_CUDA_BFLOAT16), want, 0.05 * want);
  EXPECT_NEAR(LossAfterTraining(CATCHMENT_CUDA_FLOAT16), want, 0.02 * want);
}

}  // namespace
}  // namespace catchment
