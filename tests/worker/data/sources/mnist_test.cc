#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "tests/worker/data/idx_files.h"
#include "worker/data/sources/load_data.h"

namespace catchment {
namespace {

using testing::HasSubstr;

constexpr char kRemedy[] =
    "Fetch them with deploy/fetch_mnist.sh, which `catchment examples DIR` also writes, or use generated "
    "digits: data { drawn_digits {} }";

std::string Message(const absl::StatusOr<DataSets>& data) { return std::string(data.status().message()); }

v1::Mnist In(const std::string& directory) {
  v1::Mnist mnist;
  mnist.set_directory(directory);
  return mnist;
}

// Writes the four files with the right sizes and nothing but zeros in them.
void WriteBlankMnist(const std::string& directory) {
  WriteFile(directory, "train-images-idx3-ubyte.gz",
            Gzipped(IdxBytes({60000, 28, 28}, std::string(60000 * 784, '\0'))));
  WriteFile(directory, "train-labels-idx1-ubyte.gz", Gzipped(IdxBytes({60000}, std::string(60000, '\0'))));
  WriteFile(directory, "t10k-images-idx3-ubyte.gz",
            Gzipped(IdxBytes({10000, 28, 28}, std::string(10000 * 784, '\0'))));
  WriteFile(directory, "t10k-labels-idx1-ubyte.gz", Gzipped(IdxBytes({10000}, std::string(10000, '\0'))));
}

TEST(MnistTest, NamesEveryPlaceAndTheRemediesIfNothingIsFound) {
  const absl::StatusOr<DataSets> data = LoadMnist({}, {"/none/data", "/none/cache", "/none/home"});
  EXPECT_EQ(data.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Message(data),
              HasSubstr("no MNIST files (train-images-idx3-ubyte[.gz] and the three that belong to it). "
                        "Looked in: /none/data/mnist, /none/cache/catchment/mnist, "
                        "/none/home/.cache/catchment/mnist. "));
  EXPECT_THAT(Message(data), HasSubstr(kRemedy));
}

TEST(MnistTest, SaysWhichVariablesAreNotSet) {
  EXPECT_THAT(
      Message(LoadMnist({}, {"", "", "/none/home"})),
      HasSubstr("/none/home/.cache/catchment/mnist (not set: CATCHMENT_DATA, XDG_CACHE_HOME). Fetch"));
  EXPECT_THAT(Message(LoadMnist({}, {})), HasSubstr("Looked in: nowhere (not set: CATCHMENT_DATA"));
}

TEST(MnistTest, LooksOnlyInTheJobsDirectoryIfThereIsOne) {
  const std::string data = TestDirectory();
  WriteFile(data + "/mnist", "train-images-idx3-ubyte", "");
  const std::string message = Message(LoadMnist(In("/none/job"), {data, "/none/cache", "/none/home"}));
  EXPECT_THAT(message, HasSubstr("Looked in: /none/job. Fetch"));
}

// A folder with one (bad) file is where the search ends; its error says which folder that was.
TEST(MnistTest, LooksInThePlacesInTheirOrder) {
  const std::string root = TestDirectory();
  const DataPaths paths = {root + "/data", root + "/cache", root + "/home"};
  for (const char* place : {"/home/.cache/catchment/mnist", "/cache/catchment/mnist", "/data/mnist"}) {
    WriteFile(root + place, "train-images-idx3-ubyte", "");
    EXPECT_THAT(Message(LoadMnist({}, paths)), HasSubstr(root + place));
  }
}

TEST(MnistTest, NamesTheOneFileThatIsMissing) {
  const std::string directory = TestDirectory();
  WriteFile(directory, "train-images-idx3-ubyte.gz", "");
  const absl::StatusOr<DataSets> data = LoadMnist(In(directory), {});
  EXPECT_EQ(data.status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Message(data), directory +
                               " has other MNIST files, "
                               "but no train-labels-idx1-ubyte or train-labels-idx1-ubyte.gz. " +
                               kRemedy);
}

TEST(MnistTest, RefusesOtherDimensions) {
  const std::string directory = TestDirectory();
  const std::string path = WriteFile(directory, "train-images-idx3-ubyte", IdxBytes({2, 2, 1}, "1234"));
  WriteFile(directory, "train-labels-idx1-ubyte", IdxBytes({2}, {1, 2}));
  const absl::StatusOr<DataSets> data = LoadMnist(In(directory), {});
  EXPECT_EQ(data.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(data), HasSubstr(path + ": holds 2x2x1; MNIST's is 60000x28x28"));
}

TEST(MnistTest, RefusesALabelAboveNine) {
  const std::string directory = TestDirectory();
  WriteFile(directory, "train-images-idx3-ubyte", IdxBytes({2, 2, 1}, "1234"));
  const std::string path = WriteFile(directory, "train-labels-idx1-ubyte", IdxBytes({2}, {9, 10}));
  EXPECT_EQ(Message(LoadMnist(In(directory), {})), path + ": label 1 is 10; labels are 0 to 9");
}

TEST(MnistTest, RefusesOtherContentOfTheRightSize) {
  const std::string directory = TestDirectory();
  WriteBlankMnist(directory);
  const absl::StatusOr<DataSets> data = LoadMnist(In(directory), {});
  EXPECT_EQ(data.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(data),
              HasSubstr(directory + "/train-images-idx3-ubyte.gz: is not MNIST's "
                                    "train-images-idx3-ubyte: the MD5 of its unpacked content"));
  EXPECT_THAT(Message(data), HasSubstr("expected 6bbc9ace898e44ae57da46a324031adb. Delete it."));
}

// The tests below need the real files, in $CATCHMENT_DATA/mnist.
class RealMnistTest : public testing::Test {
 protected:
  void SetUp() override {
    const char* data = std::getenv("CATCHMENT_DATA");
    if (data == nullptr || *data == '\0') {
      GTEST_SKIP() << "CATCHMENT_DATA is not set: it names the folder that has mnist/ in it";
    }
    paths_.catchment_data = data;
  }

  // A folder with links to the real files, but for those that the test puts there.
  std::string Linked(const std::string& left_out) {
    const std::string directory = TestDirectory();
    for (const auto& entry : std::filesystem::directory_iterator(paths_.catchment_data + "/mnist")) {
      const std::string name = entry.path().filename();
      if (name.rfind(left_out, 0) != 0) {
        std::filesystem::create_symlink(entry.path(), directory + "/" + name);
      } else {
        left_out_ = entry.path();
      }
    }
    return directory;
  }

  DataPaths paths_;
  std::string left_out_;  // the path of what Linked() left out
};

TEST_F(RealMnistTest, HasItsCountsAndFirstLabels) {
  const absl::StatusOr<DataSets> data = LoadMnist({}, paths_);
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train.size(), 60000);
  EXPECT_EQ(data->test.size(), 10000);
  EXPECT_EQ(data->train.num_classes(), 10);
  EXPECT_EQ(data->test.input_shape(), (SampleShape{1, 28, 28}));
  const std::vector<int> train = {5, 0, 4, 1, 9}, test = {7, 2, 1, 0, 4};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(data->train.label(i), train[i]) << "training label " << i;
    EXPECT_EQ(data->test.label(i), test[i]) << "test label " << i;
  }
}

TEST_F(RealMnistTest, IsNormalisedToMeanZeroAndDeviationOne) {
  const absl::StatusOr<DataSets> data = LoadMnist({}, paths_);
  ASSERT_TRUE(data.ok()) << data.status();
  double sum = 0, squares = 0;
  std::vector<float> input(784);
  for (int64_t i = 0; i < data->train.size(); ++i) {
    data->train.CopyInput(i, input.data());
    for (float value : input) sum += value, squares += value * value;
  }
  const double values = 60000.0 * 784;
  EXPECT_NEAR(sum / values, 0, 0.001);
  EXPECT_NEAR(squares / values, 1, 0.001);
}

TEST_F(RealMnistTest, RefusesOneWrongLabel) {
  const std::string directory = Linked("t10k-labels");
  std::string labels = ReadUnpacked(left_out_);
  labels[8] = 1;  // the first test digit is a 7
  WriteFile(directory, "t10k-labels-idx1-ubyte", labels);
  const absl::StatusOr<DataSets> data = LoadMnist(In(directory), {});
  EXPECT_EQ(data.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(data),
              HasSubstr("/t10k-labels-idx1-ubyte: is not MNIST's t10k-labels-idx1-ubyte: the MD5"));
}

TEST_F(RealMnistTest, TakesUnpackedFilesToo) {
  const std::string directory = Linked("t10k-labels");
  WriteFile(directory, "t10k-labels-idx1-ubyte", ReadUnpacked(left_out_));
  const absl::StatusOr<DataSets> data = LoadMnist(In(directory), {});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->test.label(0), 7);
}

}  // namespace
}  // namespace catchment
