// Each CPU kernel against its reference, over ragged, tiny and larger shapes.
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"
#include "kernels/cpu/activation.h"
#include "kernels/cpu/context.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/exponential.h"
#include "kernels/dropout_mask.h"
#include "tests/kernels/reference/losses.h"
#include "tests/kernels/reference/reference.h"

namespace catchment {
namespace {

std::vector<float> RandomValues(int64_t size, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(random.Uniform(-1, 1));
  return values;
}

std::vector<double> ToDouble(const std::vector<float>& values) { return {values.begin(), values.end()}; }

// Close in relation to the largest value: sums of thousands of products, and Winograd's transforms, round.
void ExpectClose(const std::vector<float>& got, const std::vector<double>& want, const char* what,
                 double tolerance = 3e-5) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 1e-6;
  for (double value : want) largest = std::max(largest, std::fabs(value));
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_NEAR(got[i], want[i], tolerance * largest) << what << " at " << i << " of " << got.size();
  }
}

// One kernel between an input and an output that the test reads and writes in plain order.
class KernelTester {
 public:
  KernelTester(KernelSpec spec, bool deterministic, int threads = 1)
      : spec_(spec), backend_(MakeCpuBackend({.threads = threads, .deterministic = deterministic})) {
    source_ = *backend_->CreateSource(spec.layer.input, spec.batch_size);
    auto kernel = backend_->CreateKernel(spec, {source_->output()});
    EXPECT_TRUE(kernel.ok()) << kernel.status();
    kernel_ = *std::move(kernel);
  }

  std::vector<float> Forward(const std::vector<float>& input, const std::vector<float>& parameters,
                             Pass pass) {
    source_->Load(input.data(), pass.samples);
    for (pass.part = 0; pass.part < kernel_->parts(); ++pass.part) {
      kernel_->Forward(parameters.data(), pass);
    }
    return Read(Cpu(kernel_->output()).value());
  }

  // Returns the gradient of the input.
  std::vector<float> Backward(const std::vector<float>& d_output, const std::vector<float>& parameters,
                              Pass pass, std::vector<float>* gradient) {
    Write(d_output, Cpu(kernel_->output()).gradient());
    for (pass.part = kernel_->parts(); pass.part-- > 0;) {
      kernel_->Backward(parameters.data(), pass, gradient->data());
    }
    return Read(Cpu(source_->output()).gradient());
  }

 private:
  static const CpuActivation& Cpu(Activation* activation) { return *static_cast<CpuActivation*>(activation); }

  static void Reorder(dnnl::memory from, dnnl::memory to) {
    dnnl::stream stream(from.get_engine());
    dnnl::reorder(from, to).execute(stream, from, to);
  }

  static std::vector<float> Read(const dnnl::memory& memory) {
    const dnnl::memory plain(PlainLayout(memory.get_desc().dims()), memory.get_engine());
    Reorder(memory, plain);
    const float* data = static_cast<const float*>(plain.get_data_handle());
    return {data, data + plain.get_desc().get_size() / sizeof(float)};
  }

  static void Write(std::vector<float> values, const dnnl::memory& memory) {
    Reorder(dnnl::memory(PlainLayout(memory.get_desc().dims()), memory.get_engine(), values.data()), memory);
  }

  KernelSpec spec_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Source> source_;
  std::unique_ptr<Kernel> kernel_;
};

struct ConvCase {
  int64_t channels, height, width, filters, size, stride, padding;
  int batch;
  bool relu, deterministic;
};

void PrintTo(const ConvCase& c, std::ostream* out) {
  *out << c.batch << "x" << c.channels << "x" << c.height << "x" << c.width << " by " << c.filters << " of "
       << c.size << " stride " << c.stride << " padding " << c.padding << (c.relu ? " relu" : "")
       << (c.deterministic ? " deterministic" : "");
}

LayerShape WindowLayer(LayerKind kind, const reference::Window& w) {
  return {.name = "layer1",
          .kind = kind,
          .input = {w.channels, w.height, w.width},
          .output = {w.filters, w.out_height(), w.out_width()},
          .fan_in = w.channels * w.size * w.size,
          .kernel_size = w.size,
          .stride = w.stride,
          .padding = w.padding};
}

class CpuConv2dTest : public testing::TestWithParam<ConvCase> {};

TEST_P(CpuConv2dTest, EqualsReferenceForwardAndBackward) {
  const ConvCase c = GetParam();
  const reference::Window w = {c.channels, c.height, c.width, c.filters, c.size, c.stride, c.padding};
  const int64_t weights = c.filters * c.channels * c.size * c.size;
  KernelTester tester({.layer = WindowLayer(LayerKind::kConv2D, w), .batch_size = c.batch, .relu = c.relu},
                      c.deterministic);
  const Pass pass = {.mode = PassMode::kTraining, .samples = c.batch};
  const auto in = RandomValues(c.batch * w.in_size(), 1), parameters = RandomValues(weights + c.filters, 2);
  const auto d_out = RandomValues(c.batch * w.out_size(), 3);

  const auto parameters64 = ToDouble(parameters);
  std::vector<double> out(d_out.size()), d64 = ToDouble(d_out), d_in(in.size()),
                                         d_parameters(parameters.size());
  reference::Conv2dForward(c.batch, w, ToDouble(in).data(), parameters64.data(),
                           parameters64.data() + weights, out.data());
  const auto got = tester.Forward(in, parameters, pass);
  if (c.relu) {
    reference::ReluForward(out.size(), out.data());
    reference::ReluBackward(out.size(), ToDouble(got).data(), d64.data());  // rounding decides near zero
  }
  ExpectClose(got, out, "output");
  reference::Conv2dBackwardData(c.batch, w, d64.data(), parameters64.data(), d_in.data());
  reference::Conv2dBackwardWeights(c.batch, w, ToDouble(in).data(), d64.data(), d_parameters.data(),
                                   d_parameters.data() + weights);
  std::vector<float> gradient(parameters.size(), std::numeric_limits<float>::quiet_NaN());
  const auto got_d_in = tester.Backward(d_out, parameters, pass, &gradient);
  ExpectClose(got_d_in, d_in, "input gradient");
  ExpectClose(gradient, d_parameters, "parameter gradient");
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, CpuConv2dTest,
    testing::Values(
        ConvCase{1, 1, 1, 1, 1, 1, 0, 1, false, false}, ConvCase{1, 5, 4, 3, 3, 1, 0, 2, true, false},
        ConvCase{1, 28, 28, 32, 3, 1, 0, 5, true, false}, ConvCase{3, 9, 7, 5, 3, 2, 1, 3, true, false},
        ConvCase{17, 8, 8, 19, 3, 1, 1, 2, false, false}, ConvCase{32, 26, 26, 64, 3, 1, 0, 3, true, false},
        ConvCase{16, 13, 11, 10, 5, 3, 2, 1, true, false}, ConvCase{8, 6, 6, 16, 1, 1, 0, 4, false, false},
        ConvCase{1, 28, 28, 32, 3, 1, 0, 5, true, true}, ConvCase{32, 26, 26, 64, 3, 1, 0, 2, true, true},
        ConvCase{3, 9, 7, 5, 3, 2, 1, 3, false, true}, ConvCase{7, 10, 10, 33, 4, 1, 0, 2, true, true}));

struct DenseCase {
  int64_t inputs, units;
  int batch;
  bool relu;
};

class CpuDenseTest : public testing::TestWithParam<DenseCase> {};

TEST_P(CpuDenseTest, EqualsReferenceForwardAndBackward) {
  const auto [inputs, units, batch, relu] = GetParam();
  KernelTester tester({.layer = {.name = "dense1",
                                 .kind = LayerKind::kDense,
                                 .input = SampleShape::Vector(inputs),
                                 .output = SampleShape::Vector(units),
                                 .fan_in = inputs},
                       .batch_size = batch,
                       .relu = relu},
                      false);
  const Pass pass = {.mode = PassMode::kTraining, .samples = batch};
  const auto in = RandomValues(batch * inputs, 1), parameters = RandomValues(units * (inputs + 1), 2);
  const auto d_out = RandomValues(batch * units, 3);

  const auto parameters64 = ToDouble(parameters);
  std::vector<double> out(d_out.size()), d64 = ToDouble(d_out), d_in(in.size()),
                                         d_parameters(parameters.size());
  reference::DenseForward(batch, inputs, units, ToDouble(in).data(), parameters64.data(),
                          parameters64.data() + units * inputs, out.data());
  const auto got = tester.Forward(in, parameters, pass);
  if (relu) {
    reference::ReluForward(out.size(), out.data());
    reference::ReluBackward(out.size(), ToDouble(got).data(), d64.data());
  }
  ExpectClose(got, out, "output");
  reference::DenseBackwardData(batch, inputs, units, d64.data(), parameters64.data(), d_in.data());
  reference::DenseBackwardWeights(batch, inputs, units, ToDouble(in).data(), d64.data(), d_parameters.data(),
                                  d_parameters.data() + units * inputs);
  std::vector<float> gradient(parameters.size(), std::numeric_limits<float>::quiet_NaN());
  const auto got_d_in = tester.Backward(d_out, parameters, pass, &gradient);
  ExpectClose(got_d_in, d_in, "input gradient");
  ExpectClose(gradient, d_parameters, "parameter gradient");
}

INSTANTIATE_TEST_SUITE_P(Shapes, CpuDenseTest,
                         testing::Values(DenseCase{1, 1, 1, false}, DenseCase{3, 2, 1, true},
                                         DenseCase{17, 13, 5, true}, DenseCase{784, 256, 33, true},
                                         DenseCase{700, 203, 9, true}, DenseCase{129, 10, 128, false}));

class CpuMaxPoolTest : public testing::TestWithParam<ConvCase> {};

TEST_P(CpuMaxPoolTest, EqualsReferenceForwardAndBackward) {
  const ConvCase c = GetParam();
  const reference::Window w = {c.channels, c.height, c.width, c.channels, c.size, c.stride, 0};
  KernelTester tester({.layer = WindowLayer(LayerKind::kMaxPool, w), .batch_size = c.batch}, false);
  const Pass pass = {.mode = PassMode::kTraining, .samples = c.batch};
  const auto in = RandomValues(c.batch * w.in_size(), 1), d_out = RandomValues(c.batch * w.out_size(), 3);
  std::vector<double> out(d_out.size()), d_in(in.size());
  std::vector<int64_t> where(d_out.size());
  reference::MaxPoolForward(c.batch, w, ToDouble(in).data(), out.data(), where.data());
  ExpectClose(tester.Forward(in, {}, pass), out, "output", 0);
  reference::MaxPoolBackward(c.batch, w, ToDouble(d_out).data(), where.data(), d_in.data());
  std::vector<float> none;
  ExpectClose(tester.Backward(d_out, {}, pass, &none), d_in, "input gradient", 1e-6);
}

INSTANTIATE_TEST_SUITE_P(Shapes, CpuMaxPoolTest,
                         testing::Values(ConvCase{1, 2, 2, 0, 2, 2, 0, 1}, ConvCase{3, 7, 5, 0, 2, 2, 0, 3},
                                         ConvCase{16, 9, 9, 0, 3, 2, 0, 2}, ConvCase{5, 6, 8, 0, 3, 1, 0, 2},
                                         ConvCase{64, 24, 24, 0, 2, 2, 0, 4}));

TEST(CpuRelu, EqualsReferenceForwardAndBackward) {
  const SampleShape shape = {5, 7, 3};
  KernelTester tester({.layer = {.kind = LayerKind::kRelu, .input = shape, .output = shape}, .batch_size = 3},
                      false);
  const Pass pass = {.mode = PassMode::kTraining, .samples = 3};
  const auto in = RandomValues(315, 1), d_out = RandomValues(315, 2);
  std::vector<double> out = ToDouble(in), d_in = ToDouble(d_out);
  reference::ReluForward(315, out.data());
  ExpectClose(tester.Forward(in, {}, pass), out, "output", 0);
  reference::ReluBackward(315, out.data(), d_in.data());
  std::vector<float> none;
  ExpectClose(tester.Backward(d_out, {}, pass, &none), d_in, "input gradient", 0);
}

KernelSpec DropoutSpec(const SampleShape& shape, float rate, int batch) {
  return {.layer = {.kind = LayerKind::kDropout, .input = shape, .output = shape, .rate = rate},
          .index = 4,
          .batch_size = batch,
          .seed = 9};
}

TEST(CpuDropout, EqualsReferenceForwardAndBackward) {
  for (const SampleShape& shape : {SampleShape{5, 7, 3}, SampleShape::Vector(1), SampleShape::Vector(1000)}) {
    KernelTester tester(DropoutSpec(shape, 0.3f, 3), false);
    const uint64_t ids[] = {77, 1, uint64_t{1} << 40};
    const Pass pass = {.mode = PassMode::kTraining, .samples = 3, .sample_ids = ids};
    const auto in = RandomValues(3 * shape.size(), 1);
    std::vector<double> out = ToDouble(in);
    reference::Dropout(3, shape.size(), 0.3f, 9, 4, ids, out.data());
    ExpectClose(tester.Forward(in, {}, pass), out, "output", 1e-6);
    std::vector<float> none;
    ExpectClose(tester.Backward(in, {}, pass, &none), out, "input gradient", 1e-6);
  }
}

TEST(CpuDropout, DoesNothingOutsideTraining) {
  KernelTester tester(DropoutSpec({5, 7, 3}, 0.5f, 2), false);
  const auto in = RandomValues(210, 1);
  ExpectClose(tester.Forward(in, {}, {.mode = PassMode::kScoring, .samples = 2}), ToDouble(in), "output", 0);
}

TEST(DropoutMask, ZeroesTheRateOfValuesIndependentlyOfSampleLayerAndSeed) {
  const int kSize = 1 << 16;
  const uint32_t threshold = DropoutThreshold(0.25f);
  const DropoutKey keys[] = {MakeDropoutKey(1, 2, 3), MakeDropoutKey(1, 2, 4), MakeDropoutKey(1, 3, 3),
                             MakeDropoutKey(2, 2, 3)};
  for (int other = 0; other < 4; ++other) {
    int dropped = 0, both = 0, neighbours = 0;
    for (int i = 0; i < kSize; ++i) {
      const bool here = DropoutHash(keys[0], i) < threshold, there = DropoutHash(keys[other], i) < threshold;
      dropped += there;
      both += here && there;
      neighbours += there && DropoutHash(keys[other], i + 1) < threshold;
    }
    EXPECT_NEAR(dropped, kSize * 0.25, 5 * std::sqrt(kSize * 0.25 * 0.75)) << other;
    EXPECT_NEAR(neighbours, kSize * 0.0625, 5 * std::sqrt(kSize * 0.0625)) << other;
    if (other > 0) {
      EXPECT_NEAR(both, kSize * 0.0625, 5 * std::sqrt(kSize * 0.0625)) << other;
    }
  }
}

TEST(DropoutMask, RatesAtTheEdges) {
  EXPECT_EQ(DropoutThreshold(0.0f), 0u);
  EXPECT_GT(DropoutThreshold(0.99999994f), 0xfffffe00u);
}

class LossTester {
 public:
  LossTester(int batch, int classes) : backend_(MakeCpuBackend({})) {
    source_ = *backend_->CreateSource(SampleShape::Vector(classes), batch);
    loss_ = *backend_->CreateLoss({.num_outputs = classes, .batch_size = batch}, source_->output());
  }

  Score Run(const std::vector<float>& logits, const std::vector<int32_t>& labels) {
    source_->Load(logits.data(), static_cast<int>(labels.size()));
    loss_->Run(labels.data(), nullptr, static_cast<int>(labels.size()), true);
    return loss_->AwaitScore();
  }

  std::vector<float> gradient() const {
    const auto* activation = static_cast<CpuActivation*>(source_->output());
    return {activation->gradient_data(), activation->gradient_data() + activation->stored_values()};
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Source> source_;
  std::unique_ptr<Loss> loss_;
};

TEST(CpuLoss, EqualsReferenceAndZeroesPadding) {
  LossTester tester(4, 7);
  std::vector<float> logits = RandomValues(21, 5);
  for (float& logit : logits) logit *= 20;
  const std::vector<int32_t> labels = {6, 0, 3};
  std::vector<double> gradient(28);
  const double loss = reference::SoftmaxCrossEntropy<double>(3, 7, 0, ToDouble(logits).data(), labels.data(),
                                                             gradient.data());
  const Score score = tester.Run(logits, labels);
  EXPECT_NEAR(score.loss_sum, loss, 1e-5 * loss);
  EXPECT_EQ(score.samples, 3);
  ExpectClose(tester.gradient(), gradient, "gradient", 1e-5);
}

TEST(CpuLoss, CountsTheFirstOfEqualLogitsAndNeverNan) {
  LossTester tester(4, 3);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(tester.Run({1, 1, 0, 1, 1, 0, 0, 0, 1, nan, 0, 1}, {0, 1, 2, 0}).correct, 2);
}

TEST(CpuLoss, HugeLogitsStayFinite) {
  LossTester tester(1, 3);
  const Score score = tester.Run({1e4f, -1e4f, 0}, {1});
  EXPECT_NEAR(score.loss_sum, 2e4, 1e-2);
  for (float value : tester.gradient()) EXPECT_TRUE(std::isfinite(value));
}

TEST(CpuLoss, OneOutputForTwoClassesIsRightBySign) {
  const auto backend = MakeCpuBackend({});
  const auto source = *backend->CreateSource(SampleShape::Vector(1), 4);
  const auto loss = *backend->CreateLoss(
      {.kind = LossSpec::Kind::kSigmoidCrossEntropy, .num_outputs = 1, .batch_size = 4}, source->output());
  const float outputs[] = {2, -1, 3, 1000};
  source->Load(outputs, 4);
  const int32_t labels[] = {1, 0, 0, 1};
  loss->Run(labels, nullptr, 4, false);
  const Score score = loss->AwaitScore();
  EXPECT_EQ(score.correct, 3);
  // log(1 + e^-2) + log(1 + e^-1) + log(1 + e^3) + 0
  EXPECT_NEAR(score.loss_sum, 0.126928 + 0.313262 + 3.048587, 1e-5);
}

// Three samples of a batch of four, with two outputs: by the formulas of proto/job.proto, in double
// precision.
void ExpectRealTargets(LossSpec::Kind kind, const std::function<double(double z, double t)>& loss_of,
                       const std::function<double(double z, double t)>& slope_of) {
  const auto backend = MakeCpuBackend({});
  const auto source = *backend->CreateSource(SampleShape::Vector(2), 4);
  const auto loss = *backend->CreateLoss({.kind = kind, .num_outputs = 2, .batch_size = 4}, source->output());
  const float outputs[] = {2, -1, 0.5, 30, -40, 0}, targets[] = {0.25, 1, 0, 0.75, 0.5, 0};
  source->Load(outputs, 3);
  loss->Run(nullptr, targets, 3, true);
  const Score score = loss->AwaitScore();
  const auto* activation = static_cast<CpuActivation*>(source->output());
  double sum = 0;
  for (int i = 0; i < 6; ++i) {
    sum += loss_of(outputs[i], targets[i]) / 2;
    EXPECT_NEAR(activation->gradient_data()[i], slope_of(outputs[i], targets[i]) / 6, 1e-5) << i;
  }
  EXPECT_NEAR(score.loss_sum, sum, 1e-5 * sum);
  EXPECT_EQ(score.correct, 0);
  EXPECT_EQ(activation->gradient_data()[6], 0);
  EXPECT_EQ(activation->gradient_data()[7], 0);
}

TEST(CpuLoss, SquaredErrorOfRealTargets) {
  ExpectRealTargets(
      LossSpec::Kind::kMeanSquaredError, [](double z, double t) { return (z - t) * (z - t); },
      [](double z, double t) { return 2 * (z - t); });
}

TEST(CpuLoss, SigmoidCrossEntropyOfRealTargets) {
  const auto log_sigmoid = [](double z) { return -std::log1p(std::exp(-z)); };
  ExpectRealTargets(
      LossSpec::Kind::kSigmoidCrossEntropy,
      [&](double z, double t) { return -(t * log_sigmoid(z) + (1 - t) * log_sigmoid(-z)); },
      [](double z, double t) { return 1 / (1 + std::exp(-z)) - t; });
}

TEST(Exponential, IsCloseToTheLibrarys) {
  for (float x = -90; x < 90; x += 0.01f) {
    const double within = std::clamp(x, -87.0f, 87.0f);
    ASSERT_NEAR(FastExp(x) / std::exp(within), 1, 3e-7) << x;
    ASSERT_NEAR(FastSigmoid(x), 1 / (1 + std::exp(-static_cast<double>(x))), 3e-7) << x;
    ASSERT_NEAR(FastTanh(x), std::tanh(static_cast<double>(x)), 3e-7) << x;
  }
}

TEST(CpuBackend, SaysWhatItIs) {
  EXPECT_EQ(MakeCpuBackend({.threads = 2})->Describe().rfind("cpu: oneDNN ", 0), 0u);
  EXPECT_NE(MakeCpuBackend({.threads = 2})->Describe().find(", 2 threads"), std::string::npos);
  EXPECT_EQ(MakeCpuBackend({.threads = 1})->Describe().find("threads"), std::string::npos);
}

}  // namespace
}  // namespace catchment
