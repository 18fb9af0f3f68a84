#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/data/idx_files.h"
#include "worker/data/sources/load_data.h"

namespace catchment {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr int64_t kArea = 32 * 32;

// A record whose channels are each of one value.
std::string Record(int label, int red, int green, int blue) {
  std::string record(1, static_cast<char>(label));
  for (int value : {red, green, blue}) record.append(kArea, static_cast<char>(value));
  return record;
}

v1::Cifar10 In(const std::string& directory) {
  v1::Cifar10 cifar10;
  cifar10.set_directory(directory);
  return cifar10;
}

std::string Error(const std::string& directory, absl::StatusCode code) {
  const auto data = LoadCifar10(In(directory), {});
  EXPECT_EQ(data.status().code(), code) << data.status();
  return std::string(data.status().message());
}

TEST(Cifar10, ReadsBatchesInOrderAndNormalisesByChannel) {
  const std::string directory = TestDirectory();
  WriteFile(directory, "data_batch_2.bin", Record(9, 1, 2, 3));
  WriteFile(directory, "data_batch_1.bin.gz", Gzipped(Record(3, 255, 0, 51) + Record(0, 0, 0, 0)));
  WriteFile(directory, "test_batch.bin", Record(7, 255, 255, 255));
  const auto data = LoadCifar10(In(directory), {});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train.size(), 3);
  EXPECT_EQ(data->train.input_shape(), (SampleShape{3, 32, 32}));
  EXPECT_EQ(data->train.num_classes(), 10);
  EXPECT_EQ(data->train.label(0), 3);
  EXPECT_EQ(data->train.label(2), 9);
  EXPECT_EQ(data->test.label(0), 7);
  std::vector<float> values(3 * kArea);
  data->train.CopyInput(0, values.data());
  for (int64_t i : {int64_t{0}, kArea - 1}) {
    EXPECT_NEAR(values[i], (1 - 0.4914) / 0.2470, 1e-5);
    EXPECT_NEAR(values[kArea + i], -0.4822 / 0.2435, 1e-5);
    EXPECT_NEAR(values[2 * kArea + i], (0.2 - 0.4465) / 0.2616, 1e-5);
  }
}

TEST(Cifar10, FindsItsFilesByTheEnvironment) {
  const std::string directory = TestDirectory();
  WriteFile(directory, "train.bin", Record(1, 0, 0, 0));
  WriteFile(directory, "test.bin", Record(2, 0, 0, 0));
  const std::string parent = directory.substr(0, directory.rfind('/'));
  EXPECT_THAT(std::string(LoadCifar10({}, {.catchment_data = parent, .home = "/absent"}).status().message()),
              AllOf(HasSubstr("no CIFAR-10 files"),
                    HasSubstr(parent + "/cifar10, /absent/.cache/catchment/cifar10"), HasSubstr("Fetch")));
  EXPECT_THAT(std::string(LoadCifar10({}, {}).status().message()), HasSubstr("set CATCHMENT_DATA"));
}

TEST(Cifar10, MissingHalvesAreNamed) {
  const std::string directory = TestDirectory();
  WriteFile(directory, "data_batch_1.bin", Record(1, 0, 0, 0));
  EXPECT_THAT(Error(directory, absl::StatusCode::kNotFound),
              HasSubstr("has CIFAR-10's training files, but no test_batch.bin[.gz]"));
}

TEST(Cifar10, DamageIsNamedWithItsFileAndRecord) {
  const std::string directory = TestDirectory();
  WriteFile(directory, "test_batch.bin", Record(1, 0, 0, 0));
  WriteFile(directory, "data_batch_1.bin", Record(1, 0, 0, 0) + Record(10, 0, 0, 0));
  EXPECT_THAT(
      Error(directory, absl::StatusCode::kInvalidArgument),
      HasSubstr(
          "data_batch_1.bin: record 1, counted from 0, has the label 10; labels of CIFAR-10 are 0 to 9"));
  WriteFile(directory, "data_batch_1.bin", Record(1, 0, 0, 0) + "x");
  EXPECT_THAT(Error(directory, absl::StatusCode::kInvalidArgument),
              HasSubstr("has 3074 bytes, not a multiple of 3073"));
  WriteFile(directory, "data_batch_1.bin", "");
  EXPECT_THAT(Error(directory, absl::StatusCode::kInvalidArgument), HasSubstr("has 0 bytes"));
  const std::string packed = Gzipped(Record(1, 5, 6, 7));
  WriteFile(directory, "data_batch_1.bin", packed.substr(0, packed.size() - 12));
  EXPECT_THAT(Error(directory, absl::StatusCode::kDataLoss), HasSubstr("cut short or damaged"));
}

}  // namespace
}  // namespace catchment
