// data.table as a whole: which files, in which order, and what the network is given.
#include "worker/data/table/table.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/job/validate.h"
#include "tests/worker/data/idx_files.h"

namespace catchment {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// `table` beside a directory of the test's own, for vectors of 2 and 3 classes.
v1::Job Job(const std::string& table, const std::string& shape = "shape: 2 classes: 3") {
  v1::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(
      absl::StrCat(
          "batch_size: 1 model { layers { flatten {} } layers { dense { units: 3 } } } data { table { ",
          shape, " directory: '", TestDirectory(), "' ", table, " } }"),
      &job));
  const absl::StatusOr<v1::Job> complete = FillDefaultsAndValidate(job);
  EXPECT_TRUE(complete.ok()) << complete.status();
  return complete.value_or(job);
}

absl::StatusOr<DataSets> Load(const std::string& table, const std::string& shape = "shape: 2 classes: 3") {
  return LoadTable(Job(table, shape), {});
}

std::string Error(const std::string& table) {
  const absl::Status status = Load(table).status();
  EXPECT_FALSE(status.ok());
  return std::string(status.message());
}

void Write(const std::string& name, const std::string& text) { WriteFile(TestDirectory(), name, text); }

// The first value of each sample.
std::vector<float> Firsts(const Dataset& data) {
  std::vector<float> firsts;
  std::vector<float> values(data.input_shape().size());
  for (int64_t i = 0; i < data.size(); ++i) {
    data.CopyInput(i, values.data());
    firsts.push_back(values[0]);
  }
  return firsts;
}

std::vector<float> Values(const Dataset& data, int64_t index) {
  std::vector<float> values(data.input_shape().size());
  data.CopyInput(index, values.data());
  return values;
}

TEST(TableTest, RowsAreInTheOrderOfTheListAndOfTheAlphabet) {
  Write("c.csv", "30,0,0\n");
  Write("b.csv", "20,0,1\n21,0,2\n");
  Write("a1.csv", "10,0,0\n");
  Write("a2.csv", "11,0,0\n");
  const auto data = Load("train: 'c.csv' train: 'a?.csv' train: 'b*' test: 'b.csv'");
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(Firsts(data->train), ElementsAre(30, 10, 11, 20, 21));
  EXPECT_EQ(data->train.label(4), 2);
  EXPECT_THAT(Firsts(data->test), ElementsAre(20, 21));
}

TEST(TableTest, AListNamesFilesFromTheDirectory) {
  std::filesystem::create_directory(TestDirectory() + "/lists");
  Write("a.csv", "10,0,0\n");
  Write("b.csv", "20,0,1\n");
  Write("lists/train_list.txt",
        "\xef\xbb\xbf"
        "b.csv\r\n\n a.csv \n" +
            TestDirectory() + "/b.csv\n");
  const auto data = Load("train: 'lists/train_list.txt'");
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(Firsts(data->train), ElementsAre(20, 10, 20));
  EXPECT_EQ(data->test.size(), 0);
  Write("empty.txt", "\n \n");
  EXPECT_THAT(Error("train: 'empty.txt'"), HasSubstr("/empty.txt: is an empty list"));
  Write("twice.txt", "empty.txt\n");
  EXPECT_THAT(Error("train: 'twice.txt'"), HasSubstr("/empty.txt, a list; lists name files alone"));
  Write("missing.txt", "none.csv\n");
  EXPECT_THAT(Error("train: 'missing.txt'"), HasSubstr("/missing.txt: data.table.train: no file "));
}

TEST(TableTest, NamesWhatIsMissingOrOfAnotherKind) {
  Write("a.csv", "10,0,0\n");
  Write("b.npy", "");
  Write("c.dat", "");
  EXPECT_THAT(Error("train: 'x*.csv'"),
              AllOf(HasSubstr("data.table.train: no file /"), HasSubstr("/x*.csv")));
  EXPECT_THAT(Error("train: 'a.csv' test: 'y.csv'"), HasSubstr("data.table.test: no file"));
  EXPECT_THAT(Error("train: 'a.csv' train: 'b.npy'"), HasSubstr("b.npy are of different kinds"));
  EXPECT_THAT(Error("train: 'c.dat'"), HasSubstr("c.dat has none of the endings .csv"));
}

TEST(TableTest, LooksInCatchmentDataAndThenWhereItWasStarted) {
  Write("a.csv", "10,0,0\n");
  v1::Job job = Job("train: 'a.csv'");
  job.mutable_data()->mutable_table()->clear_directory();
  const absl::StatusOr<DataSets> data = LoadTable(job, {TestDirectory(), "", ""});
  EXPECT_TRUE(data.ok()) << data.status();
  EXPECT_THAT(std::string(LoadTable(job, {"/none", "", ""}).status().message()),
              AllOf(HasSubstr("no file /none/a.csv, and no file /"),
                    HasSubstr("/a.csv. Relative names are looked up in")));
  const std::string before = std::filesystem::current_path();
  std::filesystem::current_path(TestDirectory());
  EXPECT_TRUE(LoadTable(job, {"/none", "", ""}).ok());
  std::filesystem::current_path(before);
}

TEST(TableTest, NormalizesByChannelOfAnImageAndByValueOfOthers) {
  Write("a.csv", "1,2,3,4,0\n");
  EXPECT_THAT(Values(Load("train: 'a.csv' mean: 1 deviation: 2", "shape: 4 classes: 3")->train, 0),
              ElementsAre(0, 0.5f, 1, 1.5f));
  EXPECT_THAT(Values(Load("train: 'a.csv' mean: [0, 1, 2, 3] deviation: 2", "shape: 4 classes: 3")->train, 0),
              ElementsAre(0.5f, 0.5f, 0.5f, 0.5f));
  EXPECT_THAT(
      Values(Load("train: 'a.csv' mean: [0, 1] deviation: [1, 2]", "shape: [2, 2] classes: 3")->train, 0),
      ElementsAre(1, 0.5f, 3, 1.5f));
  EXPECT_THAT(Values(Load("train: 'a.csv' deviation: [1, 2]", "shape: [2, 1, 2] classes: 3")->train, 0),
              ElementsAre(1, 2, 1.5f, 2));
}

TEST(TableTest, NamesAllFilesThatCannotBeUsed) {
  Write("a.csv", "1,x,0\n");
  Write("b.csv", "1,2,0\n");
  Write("c.csv", "1,2,3\n");
  std::filesystem::remove(TestDirectory() + "/d.csv");
  std::filesystem::create_symlink("nowhere.csv", TestDirectory() + "/d.csv");
  EXPECT_THAT(Error("train: '[abc].csv'"), HasSubstr("no file"));
  const std::string error = Error("train: '?.csv'");
  EXPECT_THAT(error, HasSubstr("data.table.train: 3 of 4 files cannot be used: row 1 of "));
  EXPECT_THAT(error, HasSubstr("a.csv: column 2 is \"x\""));
  EXPECT_THAT(error, HasSubstr("c.csv has label 3"));
  EXPECT_THAT(error, HasSubstr("d.csv: No such file"));
}

// A part of bytes is normalized when it is read, and one of other numbers before it is rounded.
TEST(TableTest, NormalizesBytesAndOtherNumbersAlike) {
  const auto npy = [](const std::string& type, const std::string& shape, const std::string& values) {
    std::string header = "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
    header.resize(70, ' ');
    return std::string("\x93NUMPY\x01\x00\x46\x00", 10) + header + values;
  };
  const std::string label(8, '\0'), bytes("\x0a\x14", 2), shorts("\x0a\0\x14\0", 4);
  Write("1_features.npy", npy("|u1", "(1, 2)", bytes));
  Write("1_labels.npy", npy("<i8", "(1,)", label));
  Write("2_features.npy", npy("<i2", "(1, 2)", shorts));
  Write("2_labels.npy", npy("<i8", "(1,)", label));
  for (const char* files : {"train: '1_f*.npy'", "train: '2_f*.npy'", "train: '?_f*.npy'"}) {
    const auto data = Load(absl::StrCat(files, " mean: 5 deviation: [5, 10]"));
    ASSERT_TRUE(data.ok()) << data.status();
    for (int64_t i = 0; i < data->train.size(); ++i)
      EXPECT_THAT(Values(data->train, i), ElementsAre(1, 1.5f)) << files;
  }
}

TEST(TableTest, HasAMinibatchOfRows) {
  Write("a.csv", "10,0,0\n");
  v1::Job job = Job("train: 'a.csv'");
  job.set_batch_size(2);
  EXPECT_THAT(std::string(LoadTable(job, {}).status().message()),
              HasSubstr("batch_size: is 2, and data.table.train has 1 rows"));
}

}  // namespace
}  // namespace catchment
