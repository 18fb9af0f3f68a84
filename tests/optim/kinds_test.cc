// The table of optimizers agrees with proto/job.proto and with the classes that it makes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"
#include "optim/optimizer.h"

namespace catchment {
namespace {

using google::protobuf::FieldDescriptor;

std::vector<v1::Optimizer::Kind> AllKinds() {
  std::vector<v1::Optimizer::Kind> kinds;
  for (int kind = v1::Optimizer::Kind_MIN; kind <= v1::Optimizer::Kind_MAX; ++kind) {
    if (kind != v1::Optimizer::UNSET) kinds.push_back(static_cast<v1::Optimizer::Kind>(kind));
  }
  return kinds;
}

// Returns a configuration in which every field of the kind is 0.5 or true.
v1::Optimizer FullConfig(const OptimizerKind& kind) {
  v1::Optimizer config;
  config.set_kind(kind.kind);
  for (const OptimizerField& field : kind.fields) {
    const FieldDescriptor* const descriptor = config.GetDescriptor()->FindFieldByName(field.name);
    if (descriptor->cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
      config.GetReflection()->SetBool(&config, descriptor, true);
    } else {
      config.GetReflection()->SetFloat(&config, descriptor, 0.5f);
    }
  }
  return config;
}

TEST(OptimizerKindsTest, HasEveryKindOfTheProtoInItsOrder) {
  std::vector<v1::Optimizer::Kind> listed;
  for (const OptimizerKind* kind : OptimizerKinds()) listed.push_back(kind->kind);
  EXPECT_EQ(listed, AllKinds());
  for (const v1::Optimizer::Kind kind : AllKinds()) EXPECT_EQ(FindOptimizerKind(kind)->kind, kind);
}

TEST(OptimizerKindsTest, FindsNothingForUnsetAndUnknownNumbers) {
  EXPECT_EQ(FindOptimizerKind(v1::Optimizer::UNSET), nullptr);
  EXPECT_EQ(FindOptimizerKind(static_cast<v1::Optimizer::Kind>(v1::Optimizer::Kind_MAX + 1)), nullptr);
  EXPECT_FALSE(NeedsWholeTensors(v1::Optimizer()));
}

TEST(OptimizerKindsTest, NamesFieldsOfTheProtoThatAreNumbersOrTruthValues) {
  for (const OptimizerKind* kind : OptimizerKinds()) {
    EXPECT_TRUE(kind->HasField("learning_rate"));
    EXPECT_FALSE(kind->HasField("no_such_field"));
    for (const OptimizerField& field : kind->fields) {
      const FieldDescriptor* const descriptor = v1::Optimizer::descriptor()->FindFieldByName(field.name);
      ASSERT_NE(descriptor, nullptr) << field.name;
      EXPECT_TRUE(descriptor->cpp_type() == FieldDescriptor::CPPTYPE_BOOL ||
                  descriptor->cpp_type() == FieldDescriptor::CPPTYPE_FLOAT)
          << field.name;
    }
  }
}

TEST(OptimizerKindsTest, MakesOptimizersWhoseStatesFitIntoAPart) {
  for (const OptimizerKind* kind : OptimizerKinds()) {
    const std::unique_ptr<Optimizer> optimizer = MakeOptimizer(FullConfig(*kind));
    EXPECT_LE(optimizer->num_states(), static_cast<int>(std::size(Optimizer::Part().states)));
  }
}

// The default learning rate and the fields that every kind has are not among them.
TEST(OptimizerKindsTest, DescribesEveryFieldThatTheKindAloneReads) {
  for (const OptimizerKind* kind : OptimizerKinds()) {
    v1::Optimizer config = FullConfig(*kind);
    for (const OptimizerField& field : kind->fields) {
      const FieldDescriptor* const descriptor = config.GetDescriptor()->FindFieldByName(field.name);
      if (field.name == std::string("learning_rate")) continue;
      v1::Optimizer other = config;
      if (descriptor->cpp_type() == FieldDescriptor::CPPTYPE_BOOL) {
        other.GetReflection()->SetBool(&other, descriptor, false);
      } else {
        other.GetReflection()->SetFloat(&other, descriptor, 0.25f);
      }
      EXPECT_NE(kind->describe(config), kind->describe(other)) << field.name;
    }
  }
}

// 4 values as two tensors, or as parts that begin and end elsewhere.
TEST(OptimizerKindsTest, OnlyKindsOfWholeTensorsDependOnWhereTensorsEnd) {
  for (const OptimizerKind* kind : OptimizerKinds()) {
    const auto step = [&](std::vector<int64_t> ends) {
      const std::vector<float> gradient = {1, 2, 3, 4};
      std::vector<float> weights = {4, 3, 2, 1}, a(4), b(4), c(4);
      MakeOptimizer(FullConfig(*kind))
          ->Apply({0.1f, 1}, {.n = 4,
                              .gradient = gradient.data(),
                              .weights = weights.data(),
                              .states = {a.data(), b.data(), c.data()},
                              .tensor_ends = ends});
      return weights;
    };
    EXPECT_EQ(step({1, 4}) != step({2, 4}), kind->whole_tensors) << kind->describe(FullConfig(*kind));
    EXPECT_EQ(NeedsWholeTensors(FullConfig(*kind)), kind->whole_tensors);
  }
}

// With a gradient of 0 only weight decay moves the weights: by lr * decay * w where it is decoupled.
TEST(OptimizerKindsTest, AddsWeightDecayToTheGradientUnlessTheKindDoesItItself) {
  for (const OptimizerKind* kind : OptimizerKinds()) {
    v1::Optimizer config = FullConfig(*kind);
    config.set_weight_decay(0.5f);
    const float gradient = 0;
    const int64_t end = 1;
    float weight = 2, a = 0, b = 0, c = 0;
    const auto optimizer = kind->make(config);
    optimizer->Apply({0.1f, 1}, {.n = 1,
                                 .gradient = &gradient,
                                 .weights = &weight,
                                 .states = {&a, &b, &c},
                                 .tensor_ends = {&end, 1}});
    EXPECT_EQ(weight != 2, kind->decays_weights) << kind->describe(config);
  }
}

TEST(DescribePreparation, NamesWhatIsDoneToAGradientBeforeTheFormula) {
  v1::Optimizer config;
  config.set_kind(v1::Optimizer::SGD);
  EXPECT_EQ(DescribePreparation(config), "");
  config.set_clip_value(2);
  config.set_weight_decay(0.5f);
  EXPECT_EQ(DescribePreparation(config),
            " Before, g is clipped to +-2. Weight decay: 0.5 * w is added to g.");
  // Its formula has the decay.
  config.set_kind(v1::Optimizer::ADAMW);
  EXPECT_EQ(DescribePreparation(config), " Before, g is clipped to +-2.");
}

}  // namespace
}  // namespace catchment
