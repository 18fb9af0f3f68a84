#include "common/base/status_macros.h"

#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

const absl::Status kError = absl::NotFoundError("no such file");

// Returns `status`, and counts the calls.
absl::Status Evaluate(const absl::Status& status, int* calls) {
  ++*calls;
  return status;
}

TEST(ReturnIfErrorTest, GoesOnAfterSuccess) {
  int calls = 0;
  const auto function = [&]() -> absl::Status {
    RETURN_IF_ERROR(Evaluate(absl::OkStatus(), &calls));
    return absl::AbortedError("behind it");
  };
  EXPECT_TRUE(absl::IsAborted(function()));
  EXPECT_EQ(calls, 1);
}

TEST(ReturnIfErrorTest, ReturnsTheErrorOfOneEvaluation) {
  int calls = 0;
  const auto function = [&]() -> absl::StatusOr<int> {
    RETURN_IF_ERROR(Evaluate(kError, &calls));
    return 1;
  };
  EXPECT_EQ(function().status(), kError);
  EXPECT_EQ(calls, 1);
}

TEST(ReturnIfErrorTest, LeavesTheElseToTheConditionAroundIt) {
  const auto function = [](bool condition) -> absl::Status {
    if (condition)
      RETURN_IF_ERROR(absl::OkStatus());
    else
      return kError;
    return absl::OkStatus();
  };
  EXPECT_EQ(function(true), absl::OkStatus());
  EXPECT_EQ(function(false), kError);
}

TEST(AssignOrReturnTest, DeclaresAVariable) {
  const auto function = [](const absl::StatusOr<std::string>& text) -> absl::StatusOr<size_t> {
    ASSIGN_OR_RETURN(const std::string value, text);
    return value.size();
  };
  EXPECT_EQ(function("four").value(), 4);
  EXPECT_EQ(function(kError).status(), kError);
}

TEST(AssignOrReturnTest, AssignsOnlyAfterSuccess) {
  int target = 1;
  const auto function = [&target](const absl::StatusOr<int>& value) -> absl::Status {
    ASSIGN_OR_RETURN(target, value);
    return absl::OkStatus();
  };
  EXPECT_EQ(function(kError), kError);
  EXPECT_EQ(target, 1);
  EXPECT_EQ(function(2), absl::OkStatus());
  EXPECT_EQ(target, 2);
}

TEST(AssignOrReturnTest, MovesTheValue) {
  const auto make = [] { return absl::StatusOr<std::unique_ptr<int>>(std::make_unique<int>(3)); };
  const auto function = [&]() -> absl::StatusOr<int> {
    ASSIGN_OR_RETURN(const std::unique_ptr<int> first, make());
    ASSIGN_OR_RETURN(std::unique_ptr<int> second, make());
    second = nullptr;
    return *first;
  };
  EXPECT_EQ(function().value(), 3);
}

TEST(AssignOrReturnTest, TakesExpressionsWithCommas) {
  const auto function = []() -> absl::StatusOr<int> {
    ASSIGN_OR_RETURN(const auto pair, absl::StatusOr<std::pair<int, int>>(std::pair<int, int>(1, 2)));
    return pair.second;
  };
  EXPECT_EQ(function().value(), 2);
}

}  // namespace
}  // namespace catchment
