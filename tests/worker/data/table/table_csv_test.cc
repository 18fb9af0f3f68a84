#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "absl/strings/str_cat.h"
#include "tests/worker/data/idx_files.h"
#include "worker/data/table/formats.h"

namespace catchment {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

TableSpec Classes(int classes) { return {.shape = SampleShape::Vector(2), .target = classes}; }
TableSpec Targets(int targets) {
  return {.shape = SampleShape::Vector(2), .target = TargetShape::Real(targets)};
}

absl::StatusOr<TableRows> Read(const std::string& text, const TableSpec& spec) {
  return ReadCsv(WriteFile(TestDirectory(), "x.csv", text), spec);
}

std::string Error(const std::string& text, const TableSpec& spec) {
  const absl::StatusOr<TableRows> rows = Read(text, spec);
  EXPECT_FALSE(rows.ok());
  return std::string(rows.status().message());
}

std::vector<float> Floats(const TableRows& rows, int64_t size = 2) {
  return {rows.floats.get(), rows.floats.get() + rows.size * size};
}

TEST(CsvTest, ReadsLabelsInTheLastColumn) {
  const auto rows = Read("1,2,0\n-0.5,1e3,2\n", Classes(3));
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->size, 2);
  EXPECT_THAT(Floats(*rows), ElementsAre(1, 2, -0.5f, 1000));
  EXPECT_THAT(rows->labels, ElementsAre(0, 2));
}

// Times in seconds: a float32 has only multiples of 128 near them.
TEST(CsvTest, NormalizesWholeNumbersAboveTheOnesThatFloatsHold) {
  TableSpec spec = Classes(2);
  spec.normalization = {{1700000015, 10}, {0, 1}};
  const auto rows = Read("1700000005,1,0\n1700000025,2,1\n", spec);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(Floats(*rows), ElementsAre(-1, 1, 1, 2));
}

TEST(CsvTest, WarnsOfWholeNumbersThatRoundingChanges) {
  testing::internal::CaptureStderr();
  EXPECT_TRUE(Read("16777216,0.1,0\n1e10,3.5,1\n", Classes(2)).ok());
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "they are floats, or not whole";
  testing::internal::CaptureStderr();
  EXPECT_TRUE(Read("1,1,0\n2,16777217,1\n", Classes(2)).ok());
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("row 2 of "));
  EXPECT_THAT(log, HasSubstr("column 2 is 16777217, and the model gets 16777216"));
  EXPECT_THAT(log, HasSubstr("data.table.mean"));
}

TEST(CsvTest, SkipsALineOfNamesAndTakesWindowsLinesAndSpaces) {
  const auto rows = Read("\xef\xbb\xbfwidth,height,kind\r\n 1 , +2,1.0\r\n3,4,0", Classes(2));
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(Floats(*rows), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(rows->labels, ElementsAre(1, 0));
}

// pandas names the columns of an array so.
TEST(CsvTest, SkipsNamesThatCountFromZero) {
  for (const char* names : {"0,1,2", " 0, 1 ,2\r", "0,1,kind"}) {
    const auto rows = Read(absl::StrCat(names, "\n0.5,1,2\n3,4,0\n"), Classes(3));
    ASSERT_TRUE(rows.ok()) << names << rows.status();
    EXPECT_THAT(Floats(*rows), ElementsAre(0.5f, 1, 3, 4)) << names;
    EXPECT_THAT(rows->labels, ElementsAre(2, 0)) << names;
  }
  const auto targets = Read("0,1,2,3\n1,2,0.25,-7\n", Targets(2));
  ASSERT_TRUE(targets.ok()) << targets.status();
  EXPECT_THAT(targets->targets, ElementsAre(0.25f, -7));
}

TEST(CsvTest, SkipsNamesThatCountFeaturesAndLabelsApart) {
  TableSpec spec = {.shape = SampleShape::Vector(3), .target = 2};
  EXPECT_THAT(Read("0,1,2,0\n5,6,7,1\n", spec)->labels, ElementsAre(1));
  spec.labels_first = true;
  EXPECT_THAT(Read("0,0,1,2\n1,5,6,7\n", spec)->labels, ElementsAre(1));
  EXPECT_THAT(Read("kind,0,1,2\n1,5,6,7\n", spec)->labels, ElementsAre(1));
}

TEST(CsvTest, TakesOtherFirstLinesOfNumbersForSamples) {
  for (const char* row : {"1,2,2", "0.0,1.0,2.0", "0,1,1", "0,2,1"}) {
    EXPECT_EQ(Read(absl::StrCat(row, "\n1,2,0\n"), Classes(3))->size, 2) << row;
  }
  EXPECT_EQ(Read("1,2,0\n0,1,2\n", Classes(3))->size, 2) << "only the first line has names";
  const TableSpec one = {.shape = SampleShape::Vector(1), .target = 2};
  EXPECT_EQ(Read("0,1\n", one)->size, 1) << "two columns may be a sample";
}

TEST(CsvTest, TellsAnIndexByItsEmptyName) {
  for (const char* names : {",0,1,2", ",a,b,c"}) {
    EXPECT_THAT(Error(absl::StrCat(names, "\n0,1,2,0\n1,3,4,1\n"), Classes(3)),
                HasSubstr("to_csv(index=False)"))
        << names;
  }
}

TEST(CsvTest, TakesLabelsFromTheFirstColumns) {
  TableSpec spec = Classes(3);
  spec.labels_first = true;
  const auto rows = Read("2,1,2\n", spec);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(Floats(*rows), ElementsAre(1, 2));
  EXPECT_THAT(rows->labels, ElementsAre(2));
}

TEST(CsvTest, TakesOneHotLabels) {
  const auto rows = Read("1,2,0,0,1\n3,4,1,0,0\n", Classes(3));
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(rows->labels, ElementsAre(2, 0));
}

TEST(CsvTest, TakesRealTargets) {
  const auto rows = Read("1,2,0.25,-7\n", Targets(2));
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(rows->targets, ElementsAre(0.25f, -7));
  EXPECT_TRUE(rows->labels.empty());
}

TEST(CsvTest, NamesTheRowOfABadLabel) {
  EXPECT_THAT(Error("a,b,c\n1,2,0\n1,2,3\n", Classes(3)), HasSubstr("row 3 of "));
  EXPECT_THAT(
      Error("a,b,c\n1,2,0\n1,2,3\n", Classes(3)),
      HasSubstr("/x.csv has label 3; data.table.classes is 3, and labels are whole numbers from 0 to 2"));
  EXPECT_THAT(Error("1,2,0.5\n", Classes(3)), HasSubstr("has label 0.5"));
  EXPECT_THAT(Error("1,2,-1\n", Classes(3)), HasSubstr("has label -1"));
  EXPECT_THAT(Error("1,2,nan\n", Classes(3)), HasSubstr("has label nan"));
}

TEST(CsvTest, NamesTheRowThatIsNotOneHot) {
  for (const char* row : {"1,2,1,1,0\n", "1,2,0,0,0\n", "1,2,1,0.5,0\n"}) {
    EXPECT_THAT(Error(row, Classes(3)), HasSubstr("row 1 of ")) << row;
    EXPECT_THAT(Error(row, Classes(3)), HasSubstr("a single 1 and zeros elsewhere")) << row;
  }
}

TEST(CsvTest, NamesTheColumnThatIsNotAFiniteNumber) {
  EXPECT_THAT(Error("1,2,0\n1,nan,0\n", Classes(2)), HasSubstr("row 2 of "));
  EXPECT_THAT(Error("1,2,0\n1,nan,0\n", Classes(2)), HasSubstr("column 2 is nan"));
  EXPECT_THAT(Error("inf,2,0\n", Classes(2)), HasSubstr("column 1 is inf"));
  EXPECT_THAT(Error("1e39,2,0\n", Classes(2)), HasSubstr("column 1 is 1e+39"));
  EXPECT_THAT(Error("1,2,0\n1,x,0\n", Classes(2)), HasSubstr("column 2 is \"x\", not a number"));
  EXPECT_THAT(Error("1,,0\n", Classes(2)), HasSubstr("column 2 is \"\", not a number"));
  EXPECT_THAT(Error("1,two,0\n", Classes(2)), HasSubstr("a header has no numbers"));
}

TEST(CsvTest, NamesSeparatorsThatAreNotCommas) {
  EXPECT_THAT(Error("1;2;0\n1;2;1\n", Classes(2)), HasSubstr("separated by commas, not by semicolons"));
  EXPECT_THAT(Error("a;b;c\n0,5;2;0\n", Classes(2)), HasSubstr("separated by commas, not by semicolons"));
  EXPECT_THAT(Error("1\t2\t0\n1\t2\t1\n", Classes(2)), HasSubstr("separated by commas, not by tabs"));
  EXPECT_THAT(Error("1 2 0\n1 2 1\n", Classes(2)), HasSubstr("separated by commas, not by spaces"));
}

TEST(CsvTest, LabelsInWordsAreAskedToBeNumbers) {
  EXPECT_THAT(Error("a,b,c\n1,2,cat\n", Classes(3)),
              HasSubstr("column 3 is \"cat\", not a number; labels are class numbers, from 0 to 2"));
  EXPECT_THAT(Error("1,2,cat\n", Classes(3)), HasSubstr("labels are class numbers"));
  EXPECT_THAT(Error("a,b,c\n1,2,high\n", Targets(1)), EndsWith("not a number; targets are numbers"));
  EXPECT_THAT(Error("a,b,c\nx,2,1\n", Classes(3)), EndsWith("column 1 is \"x\", not a number"));
  TableSpec spec = Classes(3);
  spec.labels_first = true;
  EXPECT_THAT(Error("a,b,c\ncat,1,2\n", spec), HasSubstr("labels are class numbers, from 0 to 2"));
}

TEST(CsvTest, RefusesQuotesByName) {
  EXPECT_THAT(Error("1,2,0\n\"1\",2,0\n", Classes(2)), HasSubstr("row 2 of "));
  EXPECT_THAT(Error("\"a\",\"b\",\"c\"\n1,2,0\n", Classes(2)),
              EndsWith("has a quote (\"); write fields without quotes"));
}

TEST(CsvTest, NamesUtf16) {
  EXPECT_THAT(Error(std::string("\xff\xfe\x31\0,\0\x32\0\n\0", 10), Classes(2)),
              HasSubstr("x.csv: is encoded in UTF-16; save it as UTF-8"));
}

TEST(CsvTest, CountsColumns) {
  EXPECT_THAT(
      Error("1,2,0\n1,2,0,0\n", Classes(3)),
      HasSubstr("x.csv has 4 columns; data.table.shape, 2, makes 2, and labels 1 (a label) or 3 (one-hot"));
  EXPECT_THAT(Error("1,2\n", Classes(3)), HasSubstr("has 2 columns"));
  EXPECT_THAT(Error("1\n", Classes(3)), HasSubstr("has 1 columns"));
  EXPECT_THAT(Error("1,2,0\n\n1,2,0\n", Classes(3)), HasSubstr("row 2 of "));
  EXPECT_THAT(Error("1,2,0\n", Targets(2)), HasSubstr("and labels 2 (data.table.targets)"));
}

TEST(CsvTest, TargetsOfSigmoidCrossEntropyAreShares) {
  TableSpec spec = Targets(2);
  spec.unit_targets = true;
  EXPECT_TRUE(Read("1,2,0,1\n", spec).ok());
  EXPECT_THAT(Error("1,2,0,1\n1,2,0,1.5\n", spec), HasSubstr("row 2 of "));
  EXPECT_THAT(Error("1,2,0,1.5\n", spec),
              HasSubstr("has target 1.5, its 2. of 2; model.loss is SIGMOID_CROSS_ENTROPY"));
  EXPECT_THAT(Error("1,2,-0.1,1\n", spec), HasSubstr("has target -0.1"));
  EXPECT_THAT(Error("1,2,nan,1\n", Targets(2)), HasSubstr("has target nan"));
}

TEST(CsvTest, HasRows) {
  EXPECT_THAT(Error("", Classes(2)), EndsWith("x.csv: has no rows"));
  EXPECT_THAT(Error("a,b,c\n\n", Classes(2)), EndsWith("x.csv: has no rows"));
  EXPECT_EQ(Read("1,2,0\n\n \n", Classes(2))->size, 1);
  const absl::Status missing = ReadCsv("/none/x.csv", Classes(2)).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(missing.message()), HasSubstr("/none/x.csv: No such file"));
  const std::string pipe = TestDirectory() + "/pipe.csv";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(ReadCsv(pipe, Classes(2)).status().message(), pipe + ": is not a regular file");
}

}  // namespace
}  // namespace catchment
