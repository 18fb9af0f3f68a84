#include "common/job/model_shapes.h"

#include "absl/strings/str_join.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr SampleShape kDigit = {1, 28, 28};

v1::Model Parse(const std::string& text) {
  v1::Model model;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &model)) << text;
  return model;
}

std::string Errors(const std::string& text, const SampleShape& input = kDigit) {
  const auto layers = InferShapes(Parse(text), input, 10);
  EXPECT_EQ(layers.status().code(), absl::StatusCode::kInvalidArgument) << text;
  return std::string(layers.status().message());
}

// Returns the names of all kinds of layers, as an error lists them.
std::string AllKinds() {
  std::vector<std::string> names;
  for (int i = 0; i < v1::Layer::descriptor()->FindOneofByName("kind")->field_count(); ++i) {
    names.push_back(v1::Layer::descriptor()->FindOneofByName("kind")->field(i)->name());
  }
  return absl::StrJoin(names, ", ");
}

constexpr char kMnistCnn[] = R"(
  layers { conv2d { filters: 32 kernel_size: 3 } }
  layers { relu {} }
  layers { conv2d { filters: 64 kernel_size: 3 } }
  layers { relu {} }
  layers { max_pool { size: 2 } }
  layers { dropout { rate: 0.25 } }
  layers { flatten {} }
  layers { dense { units: 128 } }
  layers { relu {} }
  layers { dropout { rate: 0.5 } }
  layers { dense { units: 10 } })";

TEST(ModelShapes, MnistCnnHasPyTorchsShapesAndCount) {
  const auto layers = InferShapes(Parse(kMnistCnn), kDigit, 10);
  ASSERT_TRUE(layers.ok()) << layers.status();
  std::vector<std::string> described;
  for (const LayerShape& layer : *layers) described.push_back(layer.name + " " + ToString(layer.output));
  EXPECT_THAT(described, ElementsAre("conv1 32x26x26", "relu1 32x26x26", "conv2 64x24x24", "relu2 64x24x24",
                                     "pool1 64x12x12", "dropout1 64x12x12", "flatten1 9216", "dense1 128",
                                     "relu3 128", "dropout2 128", "dense2 10"));
  EXPECT_EQ(CountParameters(*layers), 1199882);
  const std::vector<TensorSpec> expected = {{"conv1.weight", {32, 1, 3, 3}},  {"conv1.bias", {32}},
                                            {"conv2.weight", {64, 32, 3, 3}}, {"conv2.bias", {64}},
                                            {"dense1.weight", {128, 9216}},   {"dense1.bias", {128}},
                                            {"dense2.weight", {10, 128}},     {"dense2.bias", {10}}};
  EXPECT_EQ(DescribeDifference(expected, ListTensors(*layers)), "");
  // Layers without parameters have no range.
  EXPECT_THAT(LayerRanges(*layers),
              ElementsAre(Range{0, 320}, Range{320, 18816}, Range{18816, 1198592}, Range{1198592, 1199882}));
  EXPECT_EQ((*layers)[2].fan_in, 32 * 9);
  EXPECT_EQ((*layers)[7].fan_in, 9216);
}

TEST(ModelShapes, StridePaddingAndGivenNamesCount) {
  const auto layers = InferShapes(Parse(R"(
    layers { name: "stem" conv2d { filters: 4 kernel_size: 5 stride: 2 padding: 2 } }
    layers { max_pool { size: 3 stride: 2 } }
    layers { conv2d { filters: 2 kernel_size: 3 padding: 1 } }
    layers { flatten {} }
    layers { name: "head" dense { units: 10 } })"),
                                  {3, 15, 20}, 10);
  ASSERT_TRUE(layers.ok()) << layers.status();
  EXPECT_EQ(ToString((*layers)[0].output), "4x8x10");
  EXPECT_EQ(ToString((*layers)[1].output), "4x3x4");
  EXPECT_EQ(ToString((*layers)[2].output), "2x3x4");
  EXPECT_EQ((*layers)[0].tensors[0].name, "stem.weight");
  EXPECT_EQ((*layers)[2].name, "conv2");
}

TEST(ModelShapes, AllProblemsAreReportedTogetherEachByItsPath) {
  const std::string errors = Errors(R"(
    layers { conv2d { filters: 0 kernel_size: 3 } }
    layers { relu {} }
    layers { dropout { rate: 1.0 } }
    layers { dense { units: 0 } }
    layers { }
    layers { dense { units: 7 } })");
  EXPECT_EQ(errors,
            "model.layers[0].conv2d.filters: is required, at least 1\n"
            "model.layers[2].dropout.rate: 1 is not in [0, 1)\n"
            "model.layers[3].dense.units: is required, at least 1\n"
            "model.layers[4]: has no kind; give one of " +
                AllKinds() +
                "\n"
                "model.layers: the output of the last layer, dense2, is 7, "
                "and the data has 10 classes; end with dense { units: 10 }");
}

TEST(ModelShapes, DenseAfterImageAsksForFlatten) {
  EXPECT_EQ(Errors("layers { relu {} } layers { dense { units: 10 } }"),
            "model.layers[1].dense: its input is 1x28x28, but dense needs a vector; put flatten before it");
}

TEST(ModelShapes, WindowOverVectorIsRefused) {
  EXPECT_EQ(Errors("layers { flatten {} } layers { max_pool { size: 2 } } layers { dense { units: 10 } }"),
            "model.layers[1].max_pool: its input is a vector of 784, but it needs channels x height x width; "
            "put it before flatten and dense");
}

TEST(ModelShapes, WindowLargerThanItsInputIsRefused) {
  EXPECT_EQ(
      Errors("layers { conv2d { filters: 1 kernel_size: 33 padding: 2 } } layers { dense { units: 10 } }"),
      "model.layers[0].conv2d.kernel_size: 33 is larger than its input, 1x28x28 with padding 2");
  EXPECT_EQ(Errors("layers { max_pool { size: 29 } } layers { dense { units: 10 } }"),
            "model.layers[0].max_pool.size: 29 is larger than its input, 1x28x28");
}

TEST(ModelShapes, ZeroSizeStrideAndWidePaddingAreRefused) {
  EXPECT_THAT(Errors("layers { max_pool { } } layers { dense { units: 10 } }"),
              HasSubstr("max_pool.size: is req"));
  EXPECT_THAT(Errors("layers { max_pool { size: 2 stride: 0 } } layers { dense { units: 10 } }"),
              HasSubstr("max_pool.stride: is 0"));
  EXPECT_THAT(
      Errors("layers { conv2d { filters: 1 kernel_size: 3 padding: 3 } } layers { dense { units: 10 } }"),
      HasSubstr("conv2d.padding: 3 is not below the kernel_size 3"));
}

TEST(ModelShapes, NamesAreUniqueAndPlain) {
  EXPECT_EQ(Errors(R"(layers { name: "relu2" relu {} } layers { relu {} } layers { name: "a/b" flatten {} }
                      layers { dense { units: 10 } })"),
            "model.layers[1].name: \"relu2\" is also the name of model.layers[0]; names are unique\n"
            "model.layers[2].name: \"a/b\" may have letters, digits, '_', '-' and '.' only");
}

TEST(ModelShapes, RatesBelowZeroAndNanAreRefused) {
  EXPECT_THAT(Errors("layers { flatten {} } layers { dropout { rate: nan } } layers { dense { units: 10 } }"),
              HasSubstr("dropout.rate"));
  EXPECT_THAT(
      Errors("layers { flatten {} } layers { dropout { rate: -0.1 } } layers { dense { units: 10 } }"),
      HasSubstr("dropout.rate: -0.1 is not in [0, 1)"));
}

TEST(ModelShapes, SizesThatOverflowAreRefused) {
  EXPECT_THAT(
      Errors("layers { flatten {} } layers { dense { units: 4294967295 } } layers { dense { units: 10 } }"),
      HasSubstr("model.layers[1].dense: its weight, 4294967295x784, has more than 2147483647 values"));
  EXPECT_THAT(Errors(R"(layers { conv2d { filters: 1 kernel_size: 1 } }
                        layers { conv2d { filters: 4000000000 kernel_size: 1 } } layers { flatten {} }
                        layers { dense { units: 10 } })"),
              HasSubstr("model.layers[1].conv2d: its output, 4000000000x28x28, has more than"));
  EXPECT_THAT(Errors("layers { conv2d { filters: 1 kernel_size: 4294967295 padding: 4294967294 } } "
                     "layers { flatten {} } layers { dense { units: 10 } }"),
              HasSubstr("has more than 2147483647 values"));
}

TEST(ModelShapes, EmptyModelsAndModelsWithoutParametersAreRefused) {
  EXPECT_EQ(Errors(""), "model.layers: is empty; a model needs at least a dense layer");
  EXPECT_EQ(Errors("layers { flatten {} }", {1, 2, 5}),
            "model.layers: no layer has parameters; there is nothing to train");
}

TEST(ModelShapes, SyntheticModelsHaveEightTensorsOfOneSize) {
  const auto layers = InferShapes(Parse("synthetic { parameters: 1200003 }"), SampleShape::Vector(1), 1);
  ASSERT_TRUE(layers.ok()) << layers.status();
  EXPECT_EQ(CountParameters(*layers), 1200003);
  const std::vector<TensorSpec> tensors = ListTensors(*layers);
  ASSERT_EQ(tensors.size(), 8u);
  EXPECT_EQ(tensors[0].name, "layer1.weight");
  for (const TensorSpec& tensor : tensors) EXPECT_NEAR(tensor.size(), 150000, 1) << tensor.name;
  // Two copies of the weights, and a nominal value for each layer's output.
  EXPECT_EQ(EstimateMemoryBytes(*layers, 64), 4 * (64 * 17 + 2 * 1200003));
}

TEST(ModelShapes, SyntheticModelsOfFewParametersHaveFewTensors) {
  const std::vector<std::pair<int, size_t>> kTensors = {{1, 1},     {2, 2},     {3, 2},
                                                        {14000, 2}, {70000, 4}, {131072, 8}};
  for (const auto& [parameters, tensors] : kTensors) {
    const v1::Model model = Parse("synthetic { parameters: " + std::to_string(parameters) + " }");
    const auto layers = InferShapes(model, SampleShape::Vector(1), 1);
    ASSERT_TRUE(layers.ok()) << layers.status();
    EXPECT_EQ(ListTensors(*layers).size(), tensors) << parameters;
    EXPECT_EQ(CountParameters(*layers), parameters);
  }
}

TEST(ModelShapes, SyntheticModelsNeedParametersAndStandAlone) {
  EXPECT_EQ(Errors("synthetic { }"),
            "model.synthetic.parameters: is 0; it is required, from 1 to 1099511627776");
  EXPECT_THAT(Errors("synthetic { parameters: 18446744073709551615 }"), HasSubstr("from 1 to 1099511627776"));
  EXPECT_EQ(Errors("synthetic { parameters: 5 } layers { flatten {} }"),
            "model.synthetic: is given together with layers; a model has layers, or is synthetic or "
            "external: keep only one of them");
}

std::vector<std::string> Describe(const std::vector<LayerShape>& layers) {
  std::vector<std::string> described;
  for (const LayerShape& layer : layers) {
    described.push_back(layer.name + " of " + absl::StrJoin(layer.inputs, " and ") + ": " +
                        ToString(layer.output));
  }
  return described;
}

TEST(ModelShapes, ResidualBlocksComeFlattened) {
  const auto layers = InferShapes(Parse(R"(
    layers { conv2d { filters: 4 kernel_size: 3 padding: 1 } }
    layers { residual {
      layers { batch_norm {} } layers { relu {} }
      layers { residual { layers { conv2d { filters: 4 kernel_size: 1 bias: false } } } } } }
    layers { name: "wide" residual {
      layers { conv2d { filters: 8 kernel_size: 3 padding: 1 stride: 2 groups: 4 } }
      shortcut { conv2d { filters: 8 kernel_size: 1 stride: 2 bias: false } } } }
    layers { global_average_pool {} } layers { dense { units: 10 bias: false } })"),
                                  kDigit, 10);
  ASSERT_TRUE(layers.ok()) << layers.status();
  EXPECT_THAT(Describe(*layers),
              ElementsAre("conv1 of -1: 4x28x28", "batch_norm1 of 0: 4x28x28", "relu1 of 1: 4x28x28",
                          "conv2 of 2: 4x28x28", "residual1 of 3 and 2: 4x28x28",
                          "residual2 of 4 and 0: 4x28x28", "conv3 of 5: 8x14x14", "conv4 of 5: 8x14x14",
                          "wide of 6 and 7: 8x14x14", "global_average_pool1 of 8: 8", "dense1 of 9: 10"));
  const std::vector<TensorSpec> expected = {{"conv1.weight", {4, 1, 3, 3}},
                                            {"conv1.bias", {4}},
                                            {"batch_norm1.weight", {4}},
                                            {"batch_norm1.bias", {4}},
                                            {"conv2.weight", {4, 4, 1, 1}},
                                            {"conv3.weight", {8, 1, 3, 3}},
                                            {"conv3.bias", {8}},
                                            {"conv4.weight", {8, 4, 1, 1}},
                                            {"dense1.weight", {10, 8}}};
  EXPECT_EQ(DescribeDifference(expected, ListTensors(*layers)), "");
}

TEST(ModelShapes, BranchesOfDifferentShapesAreRefused) {
  EXPECT_EQ(
      Errors("layers { residual { layers { conv2d { filters: 2 kernel_size: 3 } } } } layers { flatten {} } "
             "layers { dense { units: 10 } }"),
      "model.layers[0].residual: its layers produce 2x26x26 but its shortcut, the input itself, is 1x28x28; "
      "a sum needs equal shapes: give a shortcut that produces the same, "
      "such as conv2d { kernel_size: 1 } with the branch's stride");
  EXPECT_EQ(Errors("layers { residual { shortcut { relu {} } } } layers { flatten {} } "
                   "layers { dense { units: 10 } }"),
            "model.layers[0].residual.layers: is empty; give the layers of the branch");
}

TEST(ModelShapes, ProblemsInABlockAreNamedByTheirPath) {
  EXPECT_EQ(Errors("layers { residual { layers { relu {} } shortcut { conv2d { filters: 1 } } } } "
                   "layers { flatten {} } layers { dense { units: 10 } }"),
            "model.layers[0].residual.shortcut[0].conv2d.kernel_size: is required, at least 1");
}

TEST(ModelShapes, LstmTakesSequencesAndHasPyTorchsTensors) {
  const auto layers = InferShapes(Parse("layers { lstm { units: 5 sequences: true } } layers { lstm { units: "
                                        "7 } } layers { dense { units: 3 } }"),
                                  SampleShape::Sequence(50, 19), 3);
  ASSERT_TRUE(layers.ok()) << layers.status();
  EXPECT_THAT(Describe(*layers), ElementsAre("lstm1 of -1: 50x5", "lstm2 of 0: 7", "dense1 of 1: 3"));
  const std::vector<TensorSpec> expected = {{"lstm1.weight_ih", {20, 19}}, {"lstm1.weight_hh", {20, 5}},
                                            {"lstm1.bias_ih", {20}},       {"lstm1.bias_hh", {20}},
                                            {"lstm2.weight_ih", {28, 5}},  {"lstm2.weight_hh", {28, 7}},
                                            {"lstm2.bias_ih", {28}},       {"lstm2.bias_hh", {28}},
                                            {"dense1.weight", {3, 7}},     {"dense1.bias", {3}}};
  EXPECT_EQ(DescribeDifference(expected, ListTensors(*layers)), "");
  EXPECT_THAT(Errors("layers { lstm { units: 5 } } layers { dense { units: 10 } }"),
              HasSubstr("model.layers[0].lstm: its input is 1x28x28, but lstm needs a sequence"));
}

TEST(ModelShapes, LayersOfTheWrongInputAreRefused) {
  EXPECT_THAT(
      Errors("layers { softmax {} } layers { flatten {} } layers { dense { units: 10 } }"),
      HasSubstr("model.layers[0].softmax: its input is 1x28x28, but softmax needs a vector or a sequence"));
  EXPECT_THAT(
      Errors("layers { flatten {} } layers { global_average_pool {} } layers { dense { units: 10 } }"),
      HasSubstr("model.layers[1].global_average_pool: its input is a vector of 784"));
  EXPECT_THAT(Errors("layers { batch_norm {} } layers { flatten {} } layers { dense { units: 10 } }",
                     SampleShape::Sequence(4, 3)),
              HasSubstr("model.layers[0].batch_norm: its input is a sequence, 4x3, "
                        "but it needs images or vectors; use layer_norm"));
  EXPECT_THAT(Errors("layers { max_pool { size: 2 } } layers { flatten {} } layers { dense { units: 10 } }",
                     SampleShape::Sequence(4, 3)),
              HasSubstr("its input is a sequence, 4x3"));
}

TEST(ModelShapes, RangesOfTheNewFieldsAreChecked) {
  const std::string rest = " layers { flatten {} } layers { dense { units: 10 } }";
  EXPECT_THAT(
      Errors("layers { conv2d { filters: 6 kernel_size: 1 groups: 4 } }" + rest),
      HasSubstr(
          "model.layers[0].conv2d.groups: 4 does not divide both the 1 channels of its input and its 6"));
  EXPECT_THAT(Errors("layers { conv2d { filters: 6 kernel_size: 1 groups: 0 } }" + rest),
              HasSubstr("model.layers[0].conv2d.groups: is 0; it must be at least 1"));
  EXPECT_THAT(Errors("layers { max_pool { size: 3 padding: 2 } }" + rest),
              HasSubstr("model.layers[0].max_pool.padding: 2 is above half of the size 3"));
  EXPECT_THAT(Errors("layers { average_pool { size: 1 padding: 1 } }" + rest),
              HasSubstr("model.layers[0].average_pool.padding: 1 is above half of the size 1"));
  EXPECT_THAT(Errors("layers { batch_norm { epsilon: 0 } }" + rest),
              HasSubstr("model.layers[0].batch_norm.epsilon: 0 must be a number above 0"));
  EXPECT_THAT(Errors("layers { batch_norm { initial_weight: inf } }" + rest),
              HasSubstr("batch_norm.initial_weight"));
  EXPECT_THAT(Errors("layers { layer_norm { epsilon: nan } }" + rest), HasSubstr("layer_norm.epsilon"));
}

TEST(ModelShapes, LossesTakeTheirOutputs) {
  const auto outputs = [](const std::string& text, int classes) {
    return InferShapes(Parse(text), SampleShape::Vector(3), classes).status();
  };
  EXPECT_TRUE(outputs("layers { dense { units: 1 } } loss { kind: SIGMOID_CROSS_ENTROPY }", 2).ok());
  EXPECT_TRUE(outputs("layers { dense { units: 2 } } loss { kind: SIGMOID_CROSS_ENTROPY }", 2).ok());
  EXPECT_THAT(
      std::string(outputs("layers { dense { units: 1 } } loss { kind: SIGMOID_CROSS_ENTROPY }", 3).message()),
      HasSubstr("the data has 3 classes"));
  EXPECT_THAT(std::string(outputs("layers { dense { units: 1 } }", 2).message()),
              HasSubstr("the data has 2 classes"));
  EXPECT_THAT(std::string(outputs("layers { dense { units: 3 } } layers { softmax {} }", 3).message()),
              HasSubstr("which softmax cross-entropy includes; leave it out"));
  EXPECT_TRUE(
      outputs("layers { dense { units: 3 } } layers { softmax {} } loss { kind: MEAN_SQUARED_ERROR }", 3)
          .ok());
}

TEST(ModelShapes, MemoryCountsGradientsOfEachReaderAndTheStepsOfAnLstm) {
  const auto block =
      *InferShapes(Parse("layers { dense { units: 10 } } layers { residual { layers { relu {} } } }"),
                   SampleShape::Vector(3), 10);
  // The samples; dense, relu and sum; a second gradient of dense's output.
  EXPECT_EQ(EstimateMemoryBytes(block, 2) - EstimateMemoryBytes(block, 1), 4 * (3 + 6 * 10 + 10));
  const auto lstm = *InferShapes(Parse("layers { lstm { units: 5 } } layers { dense { units: 10 } }"),
                                 SampleShape::Sequence(7, 2), 10);
  EXPECT_EQ(EstimateMemoryBytes(lstm, 2) - EstimateMemoryBytes(lstm, 1),
            4 * (14 + 2 * 5 + 7 * (6 * 5 + 2 * 2) + 2 * 10));
}

TEST(ModelShapes, MemoryGrowsByTheSamplesActivations) {
  const auto layers = *InferShapes(Parse("layers { flatten {} } layers { dense { units: 10 } }"), kDigit, 10);
  const int64_t per_sample = 4 * (784 + 2 * 784 + 2 * 10);
  EXPECT_EQ(EstimateMemoryBytes(layers, 1), per_sample + 16 * 7850);
  EXPECT_EQ(EstimateMemoryBytes(layers, 65) - EstimateMemoryBytes(layers, 64), per_sample);
}

}  // namespace
}  // namespace catchment
