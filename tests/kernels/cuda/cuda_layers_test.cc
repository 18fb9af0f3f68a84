// The CUDA layers against the CPU's, as networks: losses, gradients, scores. OnDevice: on a device where
// there is one.
// OnHost: in plain loops on the processor, the same layers with another device.h and gemm.h under them.
// OnPtx...: what nvcc makes of all of them, executed on the processor (tests/kernels/cuda/ptx), in several
// orders of the streams.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/job/initializer.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/loader.h"
#include "worker/model/network.h"

namespace catchment {
namespace {

constexpr char kOnHost[] = "./tests/kernels/cuda/cuda_plugin_on_host.so";
constexpr char kOnPtx[] = "./tests/kernels/cuda/ptx/cuda_plugin_on_ptx.so";
constexpr char kReal[] = "./kernels/cuda/libcatchment_cuda.so";
constexpr int kBatch = 6;

// deploy/gpu/run.sh says where the plugin is.
const char* OfDevice() {
  const char* const path = std::getenv("CATCHMENT_CUDA_PLUGIN");
  return path != nullptr ? path : kReal;
}

struct Place {
  std::string name;
  const char* plugin;
  const char* order;   // of the streams, $CATCHMENT_PTX_ORDER
  bool cudnn = false;  // $CATCHMENT_PTX_CUDNN

  friend void PrintTo(const Place& place, std::ostream* out) { *out << place.name; }
};

const Place kPlaces[] = {{"OnHost", kOnHost, ""},
                         {"OnDevice", OfDevice(), "eager"},
                         {"OnPtxEager", kOnPtx, "eager"},
                         {"OnPtxLazy", kOnPtx, "lazy"},
                         {"OnPtxCopiesInFirst", kOnPtx, "first:1"},
                         {"OnPtxCopiesOutFirst", kOnPtx, "first:2"},
                         {"OnPtxRandom1", kOnPtx, "random:1"},
                         {"OnPtxRandom2", kOnPtx, "random:2"},
                         {"OnPtxRandom3", kOnPtx, "random:3"},
                         {"OnPtxWithCudnnLazy", kOnPtx, "lazy", true},
                         {"OnPtxWithCudnnRandom4", kOnPtx, "random:4", true}};

struct Case {
  std::string name;
  std::string model;
  SampleShape input;
  int classes = 4;
  int targets = 0;  // real numbers of a sample, in place of classes

  friend void PrintTo(const Case& c, std::ostream* out) { *out << c.name << ": " << c.model; }

  // Returns whether the gradient jumps somewhere: among rounded values another one may be the maximum, or
  // above zero.
  bool has_jumps() const {
    return model.find("relu") != std::string::npos || model.find("max_pool") != std::string::npos;
  }
};

constexpr SampleShape kImage = {3, 9, 7};

std::vector<Case> Cases() {
  const std::string end = " layers { flatten {} } layers { dense { units: 4 } }";
  return {
      {"Dense", "layers { dense { units: 4 } }", SampleShape::Vector(13)},
      {"DenseWithoutBias",
       "layers { dense { units: 5 bias: false } } layers { relu {} } "
       "layers { dense { units: 6 } } layers { relu {} }"
       "layers { dense { units: 4 } }",
       SampleShape::Vector(13)},
      {"DenseOfAnImage", "layers { flatten {} } layers { dense { units: 4 } }", kImage},
      {"Convolution", "layers { conv2d { filters: 5 kernel_size: 3 } } layers { relu {} }" + end, kImage},
      {"StridesAndPadding",
       "layers { conv2d { filters: 4 kernel_size: 3 stride: 2 padding: 1 } }"
       "layers { conv2d { filters: 6 kernel_size: 2 padding: 1 stride: 3 bias: false } }" +
           end,
       kImage},
      {"Groups",
       "layers { conv2d { filters: 6 kernel_size: 3 groups: 3 } } layers { relu {} }"
       "layers { conv2d { filters: 4 kernel_size: 2 groups: 2 stride: 2 } }" +
           end,
       kImage},
      {"OneByOne",
       "layers { conv2d { filters: 5 kernel_size: 1 } } layers { relu {} }"
       "layers { conv2d { filters: 3 kernel_size: 1 stride: 2 } }" +
           end,
       kImage},
      // Packs of eight and of four values, rows of patches that are filled up, and ranges of columns that
      // sums have.
      {"PacksOfChannels",
       "layers { conv2d { filters: 8 kernel_size: 3 } } layers { relu {} } "
       "layers { conv2d { filters: 12 kernel_size: 1 } }"
       "layers { conv2d { filters: 16 kernel_size: 2 stride: 2 groups: 2 } } layers { relu {} }"
       "layers { average_pool { size: 2 } }" +
           end,
       kImage},
      {"ManyChannels",
       "layers { conv2d { filters: 132 kernel_size: 1 } } layers { batch_norm {} } layers { relu {} }"
       "layers { conv2d { filters: 8 kernel_size: 1 } } layers { batch_norm {} }" +
           end,
       kImage},
      // Sums whose rows several blocks divide.
      {"ManyRows",
       "layers { conv2d { filters: 8 kernel_size: 3 } } layers { batch_norm {} } "
       "layers { conv2d { filters: 3 kernel_size: 3 stride: 5 } }" +
           end,
       {3, 32, 29}},
      // With 16 bits, values and gradients that are stored as factors.
      {"RoundedActivations",
       "layers { conv2d { filters: 8 kernel_size: 3 bias: false } } layers { batch_norm {} }"
       "layers { conv2d { filters: 8 kernel_size: 1 bias: false } } "
       "layers { batch_norm {} } layers { relu {} }"
       "layers { conv2d { filters: 8 kernel_size: 3 padding: 1 bias: false } }"
       "layers { residual { layers { conv2d { filters: 8 kernel_size: 1 bias: false } } "
       "layers { batch_norm {} } } }" +
           end,
       kImage},
      // The same of forks.
      {"ForkedActivations",
       "layers { conv2d { filters: 8 kernel_size: 3 bias: false } }"
       "layers { residual { layers { batch_norm {} } layers { conv2d { filters: 8 kernel_size: 1 "
       "bias: false } } } }"
       "layers { batch_norm {} } layers { residual { layers { conv2d { filters: 8 kernel_size: 1 } } } }" +
           end,
       kImage},
      // The same of sums, and of convolutions with groups, strides and several chunks; the pooling reads
      // float32.
      {"RoundedSums",
       "layers { conv2d { filters: 8 kernel_size: 3 bias: false } } "
       "layers { batch_norm {} } layers { relu {} }"
       "layers { residual { layers { conv2d { filters: 16 kernel_size: 3 padding: 1 stride: 2 bias: false } }"
       "                    layers { batch_norm {} } layers { relu {} }"
       "                    layers { conv2d { filters: 16 kernel_size: 3 padding: 1 groups: 4 bias: false } }"
       "                    layers { batch_norm { ghost_batch: 4 } }"
       "                    shortcut { conv2d { filters: 16 kernel_size: 1 stride: 2 bias: false } }"
       "                    shortcut { batch_norm {} } } } layers { relu {} }"
       "layers { residual { layers { conv2d { filters: 16 kernel_size: 1 } } layers { relu {} } } } "
       "layers { relu {} }"
       "layers { residual { layers { conv2d { filters: 16 kernel_size: 5 padding: 2 bias: false } } } }"
       "layers { residual { layers { batch_norm {} } } } layers { relu {} } "
       "layers { average_pool { size: 2 } }" +
           end,
       kImage},
      // Convolutions that cuDNN computes if it is found, and one of 1 x 1 that needs no patches.
      {"FilledUnits",
       "layers { conv2d { filters: 8 kernel_size: 1 } }"
       "layers { conv2d { filters: 16 kernel_size: 3 stride: 2 padding: 1 } }"
       "layers { conv2d { filters: 16 kernel_size: 3 padding: 1 } }"
       "layers { conv2d { filters: 16 kernel_size: 3 padding: 1 } }"
       "layers { conv2d { filters: 8 kernel_size: 2 padding: 1 bias: false } }"
       "layers { conv2d { filters: 16 kernel_size: 1 stride: 2 bias: false } }" +
           end,
       kImage},
      // The gradient of so many weights is cuDNN's in 16 bits, too.
      {"WideWindow",
       "layers { conv2d { filters: 1856 kernel_size: 3 stride: 3 } }"
       "layers { conv2d { filters: 8 kernel_size: 3 stride: 3 padding: 1 } }" +
           end,
       kImage},
      {"FilledUnitsWithRelu",
       "layers { conv2d { filters: 8 kernel_size: 3 } } layers { relu {} }"
       "layers { conv2d { filters: 16 kernel_size: 3 } } layers { relu {} }"
       "layers { conv2d { filters: 8 kernel_size: 2 bias: false } } layers { relu {} }" +
           end,
       kImage},
      // With 2^11 values of patches in a chunk, the second convolution's chunks have four samples, and two.
      {"UnevenChunks",
       "layers { conv2d { filters: 3 kernel_size: 3 padding: 1 } } "
       "layers { conv2d { filters: 6 kernel_size: 5 stride: 2 } }" +
           end,
       kImage},
      // Rows that a block computes in place of a warp.
      {"LongRows",
       "layers { dense { units: 1030 } } layers { layer_norm {} } layers { softmax {} } "
       "layers { dense { units: 1027 } }",
       SampleShape::Vector(13), 1027},
      {"MaxPool",
       "layers { conv2d { filters: 4 kernel_size: 3 padding: 1 } } "
       "layers { max_pool { size: 3 stride: 2 padding: 1 } }"
       "layers { max_pool { size: 2 stride: 1 } }" +
           end,
       kImage},
      {"AveragePool",
       "layers { conv2d { filters: 4 kernel_size: 3 } } layers { average_pool { size: 3 stride: 2 "
       "padding: 1 } }" +
           end,
       kImage},
      {"GlobalAveragePool",
       "layers { conv2d { filters: 4 kernel_size: 3 } } layers { global_average_pool {} } "
       "layers { dense { units: 4 } }",
       kImage},
      {"Activations",
       "layers { conv2d { filters: 4 kernel_size: 3 } } layers { gelu {} } layers { flatten {} }"
       "layers { dense { units: 8 } } layers { tanh {} } layers { dense { units: 7 } } layers { sigmoid {} }"
       "layers { dense { units: 6 } } layers { softmax {} } layers { relu {} } layers { dense { units: 4 } }",
       kImage},
      {"DropoutOfAnImage",
       "layers { conv2d { filters: 5 kernel_size: 3 } } layers { dropout { rate: 0.4 } } "
       "layers { flatten {} }"
       "layers { dropout { rate: 0.2 } } layers { dense { units: 4 } }",
       kImage},
      {"ReluOfAFlatImage",
       "layers { conv2d { filters: 5 kernel_size: 3 } } layers { flatten {} } "
       "layers { relu {} } layers { dense { units: 4 } }",
       kImage},
      {"LossOfAFlatImage",
       "layers { conv2d { filters: 2 kernel_size: 2 stride: 1 } } layers { flatten {} }",
       {1, 3, 2}},
      {"BatchNorm",
       "layers { conv2d { filters: 5 kernel_size: 3 bias: false } } "
       "layers { batch_norm {} } layers { relu {} }" +
           end,
       kImage},
      {"BatchNormOfVectors",
       "layers { dense { units: 9 } } layers { batch_norm { epsilon: 0.01 } } layers { dense { units: 4 } }",
       SampleShape::Vector(13)},
      {"GhostBatches",
       "layers { conv2d { filters: 5 kernel_size: 3 } } layers { batch_norm { ghost_batch: 2 } }" + end,
       kImage},
      {"LayerNorm",
       "layers { conv2d { filters: 5 kernel_size: 3 } } layers { layer_norm {} } layers { flatten {} }"
       "layers { dense { units: 8 } } layers { layer_norm {} } layers { dense { units: 4 } }",
       kImage},
      {"Residual",
       "layers { conv2d { filters: 4 kernel_size: 3 padding: 1 } } "
       "layers { batch_norm {} } layers { relu {} }"
       "layers { residual { layers { conv2d { filters: 4 kernel_size: 3 padding: 1 } } "
       "layers { batch_norm {} } } }"
       "layers { relu {} }"
       "layers { residual { layers { conv2d { filters: 6 kernel_size: 3 padding: 1 stride: 2 } }"
       "                    layers { relu {} } layers { conv2d { filters: 6 kernel_size: 3 padding: 1 } }"
       "                    shortcut { conv2d { filters: 6 kernel_size: 1 stride: 2 } } } }" +
           end,
       kImage},
      {"ResidualOfAFlatImage",
       "layers { conv2d { filters: 2 kernel_size: 3 stride: 3 } } layers { flatten {} }"
       "layers { residual { layers { dense { units: 12 } } } } layers { dense { units: 4 } }",
       kImage},
      {"LstmOfManyUnits", "layers { lstm { units: 260 } } layers { dense { units: 4 } }",
       SampleShape::Sequence(3, 3)},
      {"Lstm", "layers { lstm { units: 5 } } layers { dense { units: 4 } }", SampleShape::Sequence(7, 3)},
      {"LstmOfSequences",
       "layers { lstm { units: 5 sequences: true } } layers { layer_norm {} } layers { lstm { units: 4 "
       "sequences: true } } layers { softmax {} } layers { flatten {} } layers { dense { units: 4 } }",
       SampleShape::Sequence(7, 3)},
      {"SmoothedLabels", "layers { dense { units: 4 } } loss { label_smoothing: 0.2 }",
       SampleShape::Vector(13)},
      {"SigmoidOfTwoClasses",
       "layers { dense { units: 1 } } loss { kind: SIGMOID_CROSS_ENTROPY label_smoothing: 0.1 }",
       SampleShape::Vector(13), 2},
      {"SigmoidOfFourClasses", "layers { dense { units: 4 } } loss { kind: SIGMOID_CROSS_ENTROPY }",
       SampleShape::Vector(13)},
      {"MeanSquaredError", "layers { dense { units: 4 } } loss { kind: MEAN_SQUARED_ERROR }",
       SampleShape::Vector(13)},
      {"MeanSquaredErrorOfTargets", "layers { dense { units: 3 } } loss { kind: MEAN_SQUARED_ERROR }",
       SampleShape::Vector(13), 0, 3},
      {"SigmoidOfTargets", "layers { dense { units: 3 } } loss { kind: SIGMOID_CROSS_ENTROPY }",
       SampleShape::Vector(13), 0, 3},
      {"SigmoidOfOneTarget", "layers { dense { units: 1 } } loss { kind: SIGMOID_CROSS_ENTROPY }",
       SampleShape::Vector(13), 0, 1},
  };
}

std::vector<float> RandomValues(int64_t size, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(random.Uniform(-1, 1));
  return values;
}

void ExpectClose(const std::vector<float>& got, const std::vector<float>& want) {
  float largest = 1e-3f;
  for (float value : want) largest = std::max(largest, std::fabs(value));
  for (size_t i = 0; i < want.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], 1e-4 * largest) << "at " << i << " of " << want.size();
  }
}

void ExpectClose(const Score& got, const Score& want) {
  EXPECT_NEAR(got.loss_sum, want.loss_sum, 1e-4 * std::max(1.0, want.loss_sum));
  EXPECT_EQ(got.correct, want.correct);
  EXPECT_EQ(got.samples, want.samples);
}

// |got - want| / |want|, Euclidean.
double Distance(const std::vector<float>& got, const std::vector<float>& want) {
  double difference = 0, size = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    difference += (double{got[i]} - want[i]) * (double{got[i]} - want[i]);
    size += double{want[i]} * want[i];
  }
  return std::sqrt(difference / size);
}

class LayersTest : public testing::TestWithParam<std::tuple<Place, Case>> {
 protected:
  void SetUp() override { Open(CATCHMENT_CUDA_FLOAT32); }

  void Open(CatchmentCudaPrecision precision) {
    const Place& place = std::get<0>(GetParam());
    // Read when the backend makes its first stream; all of those before are gone.
    cuda_.reset();
    setenv("CATCHMENT_PTX_ORDER", place.order, /*overwrite=*/1);
    setenv("CATCHMENT_PTX_CUDNN", place.cudnn ? "1" : "0", /*overwrite=*/1);
    const auto plugin = OpenCudaPlugin(place.plugin);
    if (!plugin.ok()) GTEST_SKIP() << plugin.status().message();
    if (const auto devices = ListCudaDevices(**plugin); !devices.ok())
      GTEST_SKIP() << devices.status().message();
    cuda_ = Make(*MakeCudaBackend(**plugin, {.precision = precision}));
    cpu_ = Make(MakeCpuBackend({.deterministic = true}));
    weights_.resize(cpu_->num_parameters());
    InitializeParameters(cpu_->layers(), 5, {0, cpu_->num_parameters()}, weights_.data());
    // Biases and norms begin at values that hide mistakes.
    const std::vector<float> noise = RandomValues(cpu_->num_parameters(), 6);
    for (size_t i = 0; i < noise.size(); ++i) weights_[i] += 0.1f * noise[i];
  }

  static std::unique_ptr<Network> Make(std::unique_ptr<Backend> backend) {
    const Case& c = std::get<1>(GetParam());
    v1::Model model;
    EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(c.model, &model)) << c.model;
    auto network =
        Network::Create(model, c.input, c.targets > 0 ? TargetShape::Real(c.targets) : TargetShape(c.classes),
                        {.max_batch_size = kBatch, .seed = 3}, std::move(backend));
    EXPECT_TRUE(network.ok()) << network.status();
    return *std::move(network);
  }

  // The next minibatch; what it points to is of this call alone.
  Minibatch Batch(int samples) {
    const Case& c = std::get<1>(GetParam());
    inputs_ = RandomValues(samples * c.input.size(), ++drawn_);
    labels_.clear();
    ids_.clear();
    for (int i = 0; i < samples; ++i) {
      if (c.targets == 0) labels_.push_back(static_cast<int32_t>((i + drawn_) % c.classes));
      ids_.push_back(100 * drawn_ + i);
    }
    targets_ = RandomValues(samples * c.targets, drawn_ + 1000);
    for (float& target : targets_) target = 0.5f + 0.5f * target;
    return {inputs_.data(), labels_.data(), ids_.data(), samples, c.targets > 0 ? targets_.data() : nullptr};
  }

  void Rewind() { drawn_ = 0; }

  std::unique_ptr<Network> cuda_, cpu_;
  std::vector<float> weights_;

 private:
  uint64_t drawn_ = 0;
  std::vector<float> inputs_;
  std::vector<int32_t> labels_;
  std::vector<float> targets_;
  std::vector<uint64_t> ids_;
};

TEST_P(LayersTest, TrainLikeTheCpus) {
  // Full, padded, and after each other; with memory that is pinned and memory that is not.
  for (const int samples : {kBatch, 5, 1, 3, kBatch}) {
    SCOPED_TRACE(samples);
    const Minibatch batch = Batch(samples);
    std::vector<float> got(weights_.size(), NAN), want(weights_.size(), NAN);
    std::vector<std::unique_ptr<Pinning>> pinned;
    if (samples != 1) pinned.push_back(cuda_->Pin(weights_));
    if (samples > 3) pinned.push_back(cuda_->Pin(got));
    const auto values = static_cast<size_t>(samples * std::get<1>(GetParam()).input.size());
    if (samples > 1) pinned.push_back(cuda_->Pin({batch.inputs, values}));
    ExpectClose(cuda_->Train(weights_, batch, absl::MakeSpan(got)),
                cpu_->Train(weights_, batch, absl::MakeSpan(want)));
    ExpectClose(got, want);
  }
}

// A factor of b significant bits is off by 2^-b at most; of TF32 by 2^-10, since tensor cores may drop the
// bits that they do not read (precision.h). Errors of the products of some layers, forward and
// backward, are of signs of their own; ten times that is far below what a wrong index or a lost factor makes.
TEST_P(LayersTest, TrainInFewerBits) {
  for (const auto& [precision, bits] :
       {std::pair(CATCHMENT_CUDA_TF32, 10), std::pair(CATCHMENT_CUDA_BFLOAT16, 8),
        std::pair(CATCHMENT_CUDA_FLOAT16, 11)}) {
    Open(precision);
    if (cuda_ == nullptr) return;
    for (const int samples : {kBatch, 5}) {
      SCOPED_TRACE(absl::StrCat("precision ", precision, ", ", samples, " samples"));
      const Minibatch batch = Batch(samples);
      std::vector<float> got(weights_.size(), NAN), want(weights_.size(), NAN);
      const Score got_score = cuda_->Train(weights_, batch, absl::MakeSpan(got));
      const Score want_score = cpu_->Train(weights_, batch, absl::MakeSpan(want));
      const double tolerance = std::ldexp(std::get<1>(GetParam()).has_jumps() ? 100.0 : 10.0, -bits);
      EXPECT_NEAR(got_score.loss_sum, want_score.loss_sum, tolerance * std::max(1.0, want_score.loss_sum));
      EXPECT_LT(Distance(got, want), tolerance);
      // cuBLAS may, but need not, take TF32 where it is asked for.
      if (precision != CATCHMENT_CUDA_TF32) {
        EXPECT_GT(Distance(got, want), 0x1p-16) << "nothing was rounded";
      }
    }
  }
}

TEST_P(LayersTest, ScoreLikeTheCpus) {
  for (Network* network : {cuda_.get(), cpu_.get()}) {
    int left = 2;
    network->EstimateStatistics(weights_, [&](Minibatch* batch) {
      if (left > 0) *batch = Batch(2 + left);
      return left-- > 0;
    });
    // Both draw the same.
    if (network == cuda_.get()) Rewind();
  }
  const Minibatch batch = Batch(5);
  ExpectClose(cuda_->Evaluate(weights_, batch), cpu_->Evaluate(weights_, batch));
}

std::vector<std::tuple<Place, Case>> Everywhere() {
  std::vector<std::tuple<Place, Case>> all;
  for (const Case& c : Cases()) {
    for (const Place& place : kPlaces) {
      if (!place.cudnn || c.model.find("conv2d") != std::string::npos) all.emplace_back(place, c);
    }
  }
  return all;
}

// One model, as PTX.
class ConvolutionsTest : public LayersTest {};

TEST_P(ConvolutionsTest, SayHowTheyAreComputed) {
  if (cuda_ == nullptr) return;
  EXPECT_EQ(cuda_->device().find("convolutions"), std::string::npos) << "FLOAT32 stays with patches";
  Open(CATCHMENT_CUDA_BFLOAT16);
  const bool cudnn = std::get<0>(GetParam()).cudnn, wide = std::get<1>(GetParam()).name == "WideWindow";
  const std::string by = cudnn ? " by an emulated cuDNN" : " with patches: no emulated cuDNN";
  const std::string gradients = cudnn && !wide ? " (5 gradients of weights with patches)" : "";
  const std::string device = cuda_->device();
  EXPECT_EQ(device.substr(device.rfind(", ")),
            absl::StrCat(wide ? ", 1" : ", 5", " convolutions", by, gradients));
}

std::vector<std::tuple<Place, Case>> FilledUnitsOnPtx() {
  std::vector<std::tuple<Place, Case>> all;
  for (const auto& [place, c] : Everywhere()) {
    if (place.plugin == kOnPtx && (c.name == "FilledUnits" || c.name == "WideWindow"))
      all.emplace_back(place, c);
  }
  return all;
}

std::string NameOf(const testing::TestParamInfo<std::tuple<Place, Case>>& info) {
  return std::get<1>(info.param).name + std::get<0>(info.param).name;
}
INSTANTIATE_TEST_SUITE_P(, LayersTest, testing::ValuesIn(Everywhere()), NameOf);
INSTANTIATE_TEST_SUITE_P(, ConvolutionsTest, testing::ValuesIn(FilledUnitsOnPtx()), NameOf);

}  // namespace
}  // namespace catchment
