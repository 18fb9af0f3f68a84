#include "worker/data/sources/load_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace catchment {
namespace {

TEST(LoadDataTest, SaysWhatToWriteWhereThereIsNoSource) {
  const absl::Status status = LoadData({}, {}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(),
            "data: has no source; give one of mnist {}, cifar10 {}, drawn_digits {}, generated_events {}, "
            "generated_images {}, table {}, image_folder {}, synthetic {}, external {}");
}

TEST(LoadDataTest, DrawsDigitsAsTheJobSays) {
  v1::Job job;
  job.mutable_data()->mutable_drawn_digits()->set_train_samples(30);
  job.mutable_data()->mutable_drawn_digits()->set_test_samples(20);
  const absl::StatusOr<DataSets> sets = LoadData(job, {});
  ASSERT_TRUE(sets.ok()) << sets.status();
  EXPECT_EQ(sets->train.size(), 30);
  EXPECT_EQ(sets->test.size(), 20);
}

TEST(LoadDataTest, CountsSyntheticSamples) {
  v1::Job job;
  job.mutable_data()->mutable_synthetic()->set_samples(4'000'000'000);
  const absl::StatusOr<DataSets> sets = LoadData(job, {});
  ASSERT_TRUE(sets.ok()) << sets.status();
  EXPECT_EQ(sets->train.size(), 4'000'000'000);
  EXPECT_FALSE(sets->train.has_content());
  EXPECT_EQ(sets->test.size(), 0);
}

TEST(LoadDataTest, LooksForMnistWhereThePathsSay) {
  v1::Job job;
  job.mutable_data()->mutable_mnist();
  const absl::Status status = LoadData(job, {"/none/data", "", ""}).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("/none/data/mnist"));
}

TEST(DataPathsTest, ComeFromTheEnvironment) {
  setenv("CATCHMENT_DATA", "/a", 1);
  setenv("XDG_CACHE_HOME", "/b", 1);
  unsetenv("HOME");
  const DataPaths paths = DataPathsFromEnvironment();
  EXPECT_EQ(paths.catchment_data, "/a");
  EXPECT_EQ(paths.xdg_cache_home, "/b");
  EXPECT_EQ(paths.home, "");
}

}  // namespace
}  // namespace catchment
