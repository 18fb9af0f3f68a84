// Each way to compute a pass of a convolution against the reference: all algorithms and layouts for which
// this machine has compiled kernels, not only those that are chosen.
#include "kernels/cpu/conv_pass.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gtest/gtest.h"
#include "tests/kernels/reference/reference.h"

namespace catchment {
namespace {

using dnnl::memory;

std::vector<float> RandomValues(int64_t size, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(random.Uniform(-1, 1));
  return values;
}

std::vector<double> ToDouble(const std::vector<float>& values) { return {values.begin(), values.end()}; }

// Close in relation to the largest value: sums of thousands of products, and Winograd's transforms, round.
void ExpectClose(const std::vector<float>& got, const std::vector<double>& want) {
  ASSERT_EQ(got.size(), want.size());
  double largest = 1e-6;
  for (double value : want) largest = std::max(largest, std::fabs(value));
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], 3e-5 * largest) << "at " << i;
}

struct ConvCase {
  const char* name;
  int64_t channels, height, width, filters, size, stride, padding;
  int64_t groups = 1;
  int batch = 3;
  bool bias = true;
};

void PrintTo(const ConvCase& c, std::ostream* out) { *out << c.name; }

class ConvPassTest : public testing::TestWithParam<ConvCase> {
 protected:
  ConvPassTest()
      : c_(GetParam()),
        window_{c_.channels, c_.height, c_.width, c_.filters, c_.size, c_.stride, c_.padding, c_.groups},
        geometry_(Spec()),
        in_(RandomValues(c_.batch * window_.in_size(), 1)),
        parameters_(RandomValues(geometry_.num_parameters(), 2)),
        d_out_(RandomValues(c_.batch * window_.out_size(), 3)),
        parameters64_(ToDouble(parameters_)) {}

  KernelSpec Spec() const {
    return {.layer = {.name = "conv",
                      .kind = LayerKind::kConv2D,
                      .input = {c_.channels, c_.height, c_.width},
                      .output = {c_.filters, window_.out_height(), window_.out_width()},
                      .kernel_size = c_.size,
                      .stride = c_.stride,
                      .padding = c_.padding,
                      .groups = c_.groups,
                      .bias = c_.bias},
            .batch_size = c_.batch};
  }

  std::vector<memory::desc> Layouts(const memory::dims& dims) const {
    const auto f32 = memory::data_type::f32;
    return {PlainLayout(dims),
            {dims, f32, memory::format_tag::nhwc},
            {dims, f32, memory::format_tag::nChw8c},
            {dims, f32, memory::format_tag::nChw16c}};
  }

  memory Write(std::vector<float> values, const memory::desc& layout) {
    memory plain(PlainLayout(layout.dims()), context_.engine(), values.data()),
        to = context_.Allocate(layout);
    MakeReorder(&context_, plain, to).Run();
    return to;
  }

  std::vector<float> Read(const memory& from) {
    const memory::dims dims = from.get_desc().dims();
    std::vector<float> values(std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>()));
    MakeReorder(&context_, from, memory(PlainLayout(dims), context_.engine(), values.data())).Run();
    return values;
  }

  // Calls f(method) for each of them.
  template <typename F>
  void ForEachMethod(F f) {
    for (auto algorithm : {ConvAlgorithm::kDirect, ConvAlgorithm::kWinograd, ConvAlgorithm::kOneDnn,
                           ConvAlgorithm::kTiledWinograd, ConvAlgorithm::kFewChannels}) {
      for (auto source : kLayouts) {
        for (auto output : kLayouts) f(ConvMethod{algorithm, source, output});
      }
    }
  }

  bool ForWinograd() const {
    return c_.size == 3 && c_.stride == 1 && c_.groups == 1 && c_.channels % 8 == 0 && c_.filters % 8 == 0;
  }

  const double* weights64() const { return parameters64_.data(); }
  const double* bias64() const { return c_.bias ? weights64() + geometry_.weight_size() : nullptr; }

  static constexpr ConvLayout kLayouts[] = {ConvLayout::kAny, ConvLayout::kGiven, ConvLayout::kPlain,
                                            ConvLayout::kChannelsLast};

  const ConvCase c_;
  const reference::Window window_;
  const ConvGeometry geometry_;
  const std::vector<float> in_, parameters_, d_out_;
  const std::vector<double> parameters64_;
  CpuContext context_{1, true};
  std::set<std::string> ran_;  // implementations
};

TEST_P(ConvPassTest, ForwardEqualsReference) {
  std::vector<double> out(d_out_.size());
  reference::Conv2dForward(c_.batch, window_, ToDouble(in_).data(), weights64(), bias64(), out.data());
  for (const memory::desc& layout : Layouts(geometry_.source)) {
    const memory source = Write(in_, layout);
    ForEachMethod([&](ConvMethod method) {
      const auto description = DescribeForward(&context_, geometry_, method, layout, false);
      if (!description || description->is_reference()) return;
      SCOPED_TRACE(description->implementation);
      ran_.insert(description->implementation);
      const auto pass = MakeConvForward(&context_, geometry_, *description, source);
      pass->Run(parameters_.data(), nullptr);
      ExpectClose(Read(pass->output()->value()), out);
    });
  }
  EXPECT_EQ(ran_.contains("winograd"), ForWinograd());
  EXPECT_GT(ran_.size(), ForWinograd() ? 1u : 0u);
}

TEST_P(ConvPassTest, BackwardWeightsEqualsReference) {
  std::vector<double> d_parameters(parameters_.size());
  reference::Conv2dBackwardWeights(c_.batch, window_, ToDouble(in_).data(), ToDouble(d_out_).data(),
                                   d_parameters.data(),
                                   c_.bias ? d_parameters.data() + geometry_.weight_size() : nullptr);
  for (const memory::desc& source_layout : Layouts(geometry_.source)) {
    const memory source = Write(in_, source_layout);
    for (const memory::desc& output_layout : Layouts(geometry_.output)) {
      const memory d_output = Write(d_out_, output_layout);
      ForEachMethod([&](ConvMethod method) {
        const auto description =
            DescribeBackwardWeights(&context_, geometry_, method, source_layout, output_layout);
        if (!description || description->is_reference()) return;
        SCOPED_TRACE(description->implementation);
        ran_.insert(description->implementation);
        std::vector<float> gradient(parameters_.size(), std::nanf(""));
        MakeConvBackwardWeights(&context_, geometry_, *description, source, d_output)
            ->Run(nullptr, gradient.data());
        ExpectClose(gradient, d_parameters);
      });
    }
  }
  const bool few_channels = c_.channels <= 4 && c_.groups == 1 && c_.size % 2 == 1 && c_.size > 1;
  EXPECT_EQ(ran_.contains("few_channels"), few_channels);
  EXPECT_EQ(ran_.contains("winograd"), ForWinograd());
  EXPECT_GT(ran_.size(), few_channels || ForWinograd() ? 1u : 0u);
}

TEST_P(ConvPassTest, BackwardDataEqualsReference) {
  std::vector<double> d_in(in_.size());
  reference::Conv2dBackwardData(c_.batch, window_, ToDouble(d_out_).data(), weights64(), d_in.data());
  for (const memory::desc& source_layout : Layouts(geometry_.source)) {
    const memory d_source = context_.Allocate(source_layout);
    for (const memory::desc& output_layout : Layouts(geometry_.output)) {
      const memory d_output = Write(d_out_, output_layout);
      ForEachMethod([&](ConvMethod method) {
        const auto description =
            DescribeBackwardData(&context_, geometry_, method, source_layout, output_layout);
        if (!description || description->is_reference()) return;
        SCOPED_TRACE(description->implementation);
        ran_.insert(description->implementation);
        MakeConvBackwardData(&context_, geometry_, *description, d_source, d_output)
            ->Run(parameters_.data(), nullptr);
        ExpectClose(Read(d_source), d_in);
      });
    }
  }
  EXPECT_EQ(ran_.contains("winograd"), ForWinograd());
  EXPECT_GT(ran_.size(), ForWinograd() ? 1u : 0u);
}

INSTANTIATE_TEST_SUITE_P(Shapes, ConvPassTest,
                         testing::Values(ConvCase{"gray", 1, 11, 9, 32, 3, 1, 0},
                                         ConvCase{"gray_padded", 1, 9, 9, 10, 5, 1, 2},
                                         ConvCase{"color", 3, 12, 10, 16, 3, 1, 1, 1, 2, false},
                                         ConvCase{"color_stride", 3, 13, 15, 24, 7, 2, 3},
                                         ConvCase{"four_channels", 4, 7, 8, 5, 3, 2, 0, 1, 2},
                                         ConvCase{"six_channels", 6, 8, 8, 9, 3, 1, 1},
                                         ConvCase{"ragged", 17, 8, 7, 19, 3, 1, 1},
                                         ConvCase{"wide", 16, 10, 10, 32, 3, 1, 0, 1, 2},
                                         ConvCase{"tiles", 8, 19, 14, 24, 3, 1, 1, 1, 5, false},
                                         ConvCase{"tiles_padded", 24, 6, 5, 8, 3, 1, 2, 1, 2},
                                         ConvCase{"even", 7, 9, 9, 12, 4, 1, 0},
                                         ConvCase{"shortcut", 16, 8, 8, 32, 1, 2, 0, 1, 2, false},
                                         ConvCase{"groups", 12, 8, 8, 24, 3, 1, 1, 4},
                                         ConvCase{"depthwise", 16, 9, 9, 16, 3, 2, 1, 16, 2}),
                         [](const testing::TestParamInfo<ConvCase>& info) { return info.param.name; });

}  // namespace
}  // namespace catchment
