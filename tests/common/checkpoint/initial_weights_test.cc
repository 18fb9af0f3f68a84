#include <glog/logging.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/checkpoint/model_file.h"
#include "common/checkpoint/safetensors.h"
#include "tests/common/checkpoint/test_files.h"

namespace catchment {
namespace {

using ::testing::HasSubstr;

class InitialWeightsTest : public testing::Test {
 protected:
  InitialWeightsTest() : path_(FreshDirectory() + "/weights.safetensors"), values_(11) {
    std::iota(values_.begin(), values_.end(), 0.0f);
    auto layout = ParameterLayout::Create({{"a.weight", {2, 3}}, {"a.bias", {2}}, {"scale", {}}}, 1, 16);
    CHECK(layout.ok()) << layout.status();
    layout_.emplace(*std::move(layout));
  }

  void Write(const std::vector<TensorView>& tensors) {
    const absl::Status status = WriteSafetensors(path_, tensors, {});
    ASSERT_TRUE(status.ok()) << status;
  }
  // In another order than the model's, and with a tensor that it does not have.
  void WriteAll() {
    Write({{"scale", {}, Values(8, 1)},
           {"other", {2}, Values(9, 2)},
           {"a.bias", {2}, Values(6, 2)},
           {"a.weight", {2, 3}, Values(0, 6)}});
  }
  absl::Span<const float> Values(int first, int count) {
    return absl::MakeConstSpan(values_).subspan(first, count);
  }
  absl::Status ReadAll() {
    std::vector<float> out(9);
    return ReadInitialWeights(path_, *layout_, {0, 9}, out.data());
  }

  const std::string path_;
  std::vector<float> values_;
  std::optional<ParameterLayout> layout_;
};

TEST_F(InitialWeightsTest, EveryPartOfTheVectorHasItsValues) {
  WriteAll();
  for (int64_t begin = 0; begin < 9; ++begin) {
    for (int64_t end = begin; end <= 9; ++end) {
      std::vector<float> out(end - begin, -1.0f);
      const absl::Status status = ReadInitialWeights(path_, *layout_, {begin, end}, out.data());
      ASSERT_TRUE(status.ok()) << status;
      for (int64_t i = begin; i < end; ++i)
        EXPECT_EQ(out[i - begin], static_cast<float>(i)) << begin << " " << end;
    }
  }
}

TEST_F(InitialWeightsTest, NamesTheFieldAndTheFileThatIsNotThere) {
  EXPECT_THAT(ReadAll().message(), testing::AllOf(HasSubstr("model.initial_weights: "), HasSubstr(path_)));
}

TEST_F(InitialWeightsTest, NamesATensorThatIsMissingAlsoOutsideTheRange) {
  Write({{"a.weight", {2, 3}, Values(0, 6)}, {"a.bias", {2}, Values(6, 2)}});
  std::vector<float> out(2);
  const absl::Status status = ReadInitialWeights(path_, *layout_, {0, 2}, out.data());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(status.message(), HasSubstr("has no tensor \"scale\""));
}

TEST_F(InitialWeightsTest, NamesATensorOfAnotherShape) {
  Write({{"scale", {}, Values(8, 1)}, {"a.bias", {2}, Values(6, 2)}, {"a.weight", {3, 2}, Values(0, 6)}});
  EXPECT_THAT(ReadAll().message(), HasSubstr("tensor \"a.weight\" is 3x2, but the model's is 2x3"));
}

TEST_F(InitialWeightsTest, RefusesValuesThatAreNotFinite) {
  values_[7] = NAN;
  WriteAll();
  EXPECT_THAT(ReadAll().message(), HasSubstr("tensor \"a.bias\" has a NaN"));
}

// Returns the processor time of this thread, in seconds, in which a model with this many tensors is written,
// read, and compared with what was written.
double Work(int count) {
  const std::string path = FreshDirectory() + "/many.safetensors";
  timespec begin, end;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
  std::vector<float> values(count), read(count);
  std::iota(values.begin(), values.end(), 0.0f);
  std::vector<TensorView> views;
  std::vector<TensorSpec> tensors;
  for (int i = 0; i < count; ++i) {
    // The names of a mixture of experts, in another order than the model's.
    views.push_back({absl::StrCat("layers.", i / 64, ".experts.", i % 64, ".weight"),
                     {1},
                     absl::MakeConstSpan(values).subspan(i, 1)});
    tensors.push_back(
        {absl::StrCat("layers.", (count - 1 - i) / 64, ".experts.", (count - 1 - i) % 64, ".weight"), {1}});
  }
  const auto layout = ParameterLayout::Create(std::move(tensors), 1, 1 << 20);
  EXPECT_TRUE(layout.ok()) << layout.status();
  EXPECT_TRUE(WriteSafetensors(path, views, {}).ok());
  const absl::Status status = ReadInitialWeights(path, *layout, {0, count}, read.data());
  EXPECT_TRUE(status.ok()) << status;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
  std::reverse(read.begin(), read.end());
  EXPECT_EQ(read, values);
  return static_cast<double>(end.tv_sec - begin.tv_sec) +
         static_cast<double>(end.tv_nsec - begin.tv_nsec) / 1e9;
}

TEST(InitialWeightsOfManyTensorsTest, TakeTimeInProportionToTheirNumber) {
  constexpr int kFew = 2000, kTimes = 20;
  double few = Work(kFew);
  for (int i = 0; i < 4; ++i) few = std::min(few, Work(kFew));
  // It would be the square if each tensor was compared with all others.
  EXPECT_LT(Work(kTimes * kFew), kTimes * kTimes / 4 * few);
}

}  // namespace
}  // namespace catchment
