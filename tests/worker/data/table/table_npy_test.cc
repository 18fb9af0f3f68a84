#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/worker/data/idx_files.h"
#include "worker/data/table/formats.h"

namespace catchment {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kGolden[] = "tests/worker/data/table/golden/";

// The features of the golden files: value i is i / 2.
const TableSpec kSpec = {
    .shape = SampleShape::Vector(3), .target = 3, .features = "features", .labels = "labels"};

// A file by the format's description. `descr` such as <f4, `shape` such as (2, 3).
std::string NpyBytes(const std::string& descr, const std::string& shape, const std::string& values,
                     bool fortran = false) {
  std::string header = absl::StrCat("{'descr': '", descr, "', 'fortran_order': ", fortran ? "True" : "False",
                                    ", 'shape': ", shape, ", }");
  while ((10 + header.size() + 1) % 64 != 0) header += ' ';
  header += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size() & 255);
  bytes += static_cast<char>(header.size() >> 8);
  return bytes + header + values;
}

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// Reads such a pair of files.
absl::StatusOr<TableRows> Read(const std::string& features, const std::string& labels,
                               const TableSpec& spec = kSpec) {
  const std::string directory = TestDirectory();
  WriteFile(directory, "train_labels.npy", labels);
  return ReadNpy(WriteFile(directory, "train_features.npy", features), spec);
}

std::string Error(const absl::StatusOr<TableRows>& rows) {
  EXPECT_FALSE(rows.ok());
  return std::string(rows.status().message());
}

const std::string kTwoRows = NpyBytes("<f4", "(2, 3)", Bytes<float>({1, 2, 3, 4, 5, 6}));
const std::string kTwoLabels = NpyBytes("<i8", "(2,)", Bytes<int64_t>({2, 0}));

// Times in seconds: a float32 has only multiples of 128 near them.
TEST(NpyTest, NormalizesWholeNumbersAboveTheOnesThatFloatsHold) {
  TableSpec spec = kSpec;
  spec.normalization = {{1700000015, 10}};
  const auto expect = [&](const std::string& features) {
    const auto rows = Read(features, NpyBytes("<i8", "(1,)", Bytes<int64_t>({2})), spec);
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_THAT(std::vector<float>(rows->floats.get(), rows->floats.get() + 3), ElementsAre(-1, 0, 1));
  };
  expect(NpyBytes("<i8", "(1, 3)", Bytes<int64_t>({1700000005, 1700000015, 1700000025})));
  expect(NpyBytes("<i4", "(1, 3)", Bytes<int32_t>({1700000005, 1700000015, 1700000025})));
  expect(NpyBytes("<u4", "(1, 3)", Bytes<uint32_t>({1700000005, 1700000015, 1700000025})));
  expect(NpyBytes("<u8", "(1, 3)", Bytes<uint64_t>({1700000005, 1700000015, 1700000025})));
  expect(NpyBytes("<f8", "(1, 3)", Bytes<double>({1700000005, 1700000015, 1700000025})));
}

TEST(NpyTest, ReadsFloatsAndLabels) {
  const auto rows = Read(kTwoRows, kTwoLabels);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->size, 2);
  EXPECT_THAT(std::vector<float>(rows->floats.get(), rows->floats.get() + 6), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(rows->labels, ElementsAre(2, 0));
}

TEST(NpyTest, ReadsIntegersOfEveryWidth) {
  const std::pair<const char*, std::string> cases[] = {{"|i1", Bytes<int8_t>({-1, 2, 3})},
                                                       {"<i2", Bytes<int16_t>({-1, 2, 3})},
                                                       {"<i4", Bytes<int32_t>({-1, 2, 3})},
                                                       {"<i8", Bytes<int64_t>({-1, 2, 3})},
                                                       {"<f8", Bytes<double>({-1, 2, 3})},
                                                       {"<u2", Bytes<uint16_t>({65535, 2, 3})},
                                                       {"<u4", Bytes<uint32_t>({4294967295u, 2, 3})},
                                                       {"<u8", Bytes<uint64_t>({uint64_t{1} << 63, 2, 3})}};
  for (const auto& [type, values] : cases) {
    const auto rows =
        Read(NpyBytes(type, "(1, 3)", values), NpyBytes("|u1", "(1, 3)", Bytes<uint8_t>({0, 1, 0})));
    ASSERT_TRUE(rows.ok()) << type << rows.status();
    EXPECT_EQ(rows->floats.get()[2], 3) << type;
    EXPECT_EQ(rows->floats.get()[0], type[1] != 'u'   ? -1.0f
                                     : type[2] == '2' ? 65535.0f
                                     : type[2] == '4' ? 4294967296.0f
                                                      : 9223372036854775808.0f);
    EXPECT_THAT(rows->labels, ElementsAre(1)) << type;
  }
}

TEST(NpyTest, ReadsBooleans) {
  const auto rows = Read(NpyBytes("|b1", "(2, 3)", Bytes<uint8_t>({1, 0, 0, 0, 1, 1})),
                         NpyBytes("|b1", "(2,)", Bytes<uint8_t>({1, 0})));
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(std::vector<float>(rows->floats.get(), rows->floats.get() + 6), ElementsAre(1, 0, 0, 0, 1, 1));
  EXPECT_THAT(rows->labels, ElementsAre(1, 0));
}

TEST(NpyTest, ReadsNumPysOwnFiles) {
  for (const char* name : {"f8", "version2"}) {
    const auto rows = ReadNpy(absl::StrCat(kGolden, name, "_features.npy"), kSpec);
    ASSERT_TRUE(rows.ok()) << rows.status();
    ASSERT_EQ(rows->size, 5);
    for (int i = 0; i < 15; ++i) EXPECT_EQ(rows->floats.get()[i], i / 2.0f) << name;
    EXPECT_THAT(rows->labels, ElementsAre(0, 1, 2, 0, 1)) << name;
  }
}

TEST(NpyTest, KeepsBytes) {
  const auto rows = ReadNpy(absl::StrCat(kGolden, "u1_features.npy"), kSpec);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->floats, nullptr);
  for (int i = 0; i < 15; ++i) EXPECT_EQ(rows->bytes.get()[i], i);
  EXPECT_THAT(rows->labels, ElementsAre(0, 1, 2, 0, 1));
}

TEST(NpyTest, ReadsRealTargets) {
  TableSpec spec = kSpec;
  spec.target = TargetShape::Real(2);
  const auto rows = Read(kTwoRows, NpyBytes("<f8", "(2, 2)", Bytes<double>({0.5, -1, 2, 3})), spec);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(rows->targets, ElementsAre(0.5f, -1, 2, 3));
}

TEST(NpyTest, RefusesOrdersByName) {
  EXPECT_THAT(Error(ReadNpy(absl::StrCat(kGolden, "fortran_features.npy"), kSpec)),
              HasSubstr("fortran_features.npy: is in Fortran order; save numpy.ascontiguousarray(array)"));
  EXPECT_THAT(Error(ReadNpy(absl::StrCat(kGolden, "big_features.npy"), kSpec)),
              HasSubstr("big_features.npy: its values are >f4, big-endian; save little-endian"));
  EXPECT_THAT(Error(Read(NpyBytes("<f2", "(1, 3)", "abcdef"), kTwoLabels)), HasSubstr("its values are <f2;"));
}

TEST(NpyTest, NamesRowAndValueOfWhatIsNotFinite) {
  EXPECT_THAT(Error(Read(NpyBytes("<f4", "(2, 3)", Bytes<float>({1, 2, 3, 4, NAN, 6})), kTwoLabels)),
              HasSubstr("train_features.npy: value 2 of 3 is nan"));
  EXPECT_THAT(Error(Read(NpyBytes("<f8", "(2, 3)", Bytes<double>({1, 2, 3, 4, 5, 1e39})), kTwoLabels)),
              HasSubstr("row 1, counted from 0, of "));
  EXPECT_THAT(Error(Read(kTwoRows, NpyBytes("<i8", "(2,)", Bytes<int64_t>({0, 3})))),
              HasSubstr("row 1, counted from 0, of "));
  EXPECT_THAT(Error(Read(kTwoRows, NpyBytes("<i8", "(2,)", Bytes<int64_t>({0, 3})))),
              HasSubstr("train_labels.npy has label 3"));
}

TEST(NpyTest, ShapesMustFit) {
  EXPECT_THAT(Error(Read(NpyBytes("<f4", "(3, 2)", Bytes<float>({1, 2, 3, 4, 5, 6})), kTwoLabels)),
              HasSubstr("its shape, (3, 2), makes rows of 2 values; data.table.shape, 3, makes 3"));
  EXPECT_THAT(Error(Read(kTwoRows, NpyBytes("<i8", "(1,)", Bytes<int64_t>({0})))),
              HasSubstr("has 1 rows, and "));
  EXPECT_THAT(Error(Read(kTwoRows, NpyBytes("<i8", "(2, 2)", Bytes<int64_t>({0, 1, 1, 0})))),
              HasSubstr("has 2 values a row; labels are 1 (a label) or 3 (one-hot"));
  EXPECT_THAT(Error(Read(NpyBytes("<f4", "(0, 3)", ""), kTwoLabels)), HasSubstr("has no rows"));
  EXPECT_THAT(Error(Read(NpyBytes("<f4", "()", Bytes<float>({1})), kTwoLabels)),
              HasSubstr("is a single number"));
}

// Returns the error of reading features of `shape`, with one label for each row; empty if they can be read.
std::string ShapeError(const std::vector<int64_t>& array, const SampleShape& shape) {
  TableSpec spec = kSpec;
  spec.shape = shape;
  int64_t size = 1;
  for (int64_t dimension : array) size *= dimension;
  const auto rows =
      Read(NpyBytes("|u1", absl::StrCat("(", absl::StrJoin(array, ", "), ")"), std::string(size, 1)),
           NpyBytes("|u1", absl::StrCat("(", array[0], ",)"), std::string(array[0], 1)), spec);
  return std::string(rows.status().message());
}

TEST(NpyTest, DimensionsInAnotherOrderAreRefusedWithTheRemedy) {
  const SampleShape image = {.channels = 3, .height = 4, .width = 5};
  EXPECT_THAT(ShapeError({2, 4, 5, 3}, image), AllOf(HasSubstr("(2, 4, 5, 3)"), HasSubstr("3x4x5"),
                                                     HasSubstr("numpy.transpose(a, (0, 3, 1, 2))")));
  EXPECT_THAT(ShapeError({2, 3, 5, 4}, image), HasSubstr("numpy.transpose(a, (0, 1, 3, 2))"));
  EXPECT_THAT(ShapeError({2, 4, 5, 1, 3}, image), HasSubstr("numpy.transpose(a, (0, 4, 1, 2, 3))"));
  EXPECT_THAT(ShapeError({2, 5, 4}, {.channels = 1, .height = 4, .width = 5}),
              HasSubstr("numpy.transpose(a, (0, 2, 1))"));
  EXPECT_THAT(ShapeError({2, 6, 5}, SampleShape::Sequence(5, 6)),
              AllOf(HasSubstr("steps and values"), HasSubstr("numpy.transpose(a, (0, 2, 1))")));
  EXPECT_THAT(ShapeError({2, 20, 3}, image),
              AllOf(HasSubstr("(2, 20, 3)"), HasSubstr("save rows of these dimensions")));
}

TEST(NpyTest, FlatRowsAndDimensionsOfOneFit) {
  const SampleShape image = {.channels = 3, .height = 4, .width = 5};
  EXPECT_EQ(ShapeError({2, 3, 4, 5}, image), "");
  EXPECT_EQ(ShapeError({2, 60}, image), "");
  EXPECT_EQ(ShapeError({2, 1, 3, 4, 5}, image), "");
  for (const std::vector<int64_t>& gray :
       std::vector<std::vector<int64_t>>{{2, 4, 5}, {2, 4, 5, 1}, {2, 1, 4, 5}}) {
    EXPECT_EQ(ShapeError(gray, {.channels = 1, .height = 4, .width = 5}), "");
    EXPECT_EQ(ShapeError(gray, SampleShape::Sequence(4, 5)), "");
    EXPECT_EQ(ShapeError(gray, SampleShape::Vector(20)), "");
  }
}

TEST(NpyTest, TellsAFileThatIsCut) {
  for (size_t size : {size_t{6}, size_t{9}, size_t{40}, kTwoRows.size() - 1}) {
    EXPECT_THAT(Error(Read(kTwoRows.substr(0, size), kTwoLabels)),
                HasSubstr("train_features.npy: is cut short"))
        << size;
  }
  EXPECT_THAT(Error(Read(kTwoRows + "x", kTwoLabels)), HasSubstr("is too long"));
  EXPECT_THAT(Error(Read("PK\x03\x04", kTwoLabels)), HasSubstr("is not a NumPy file"));
  std::string third = kTwoRows;
  third[6] = 3;
  EXPECT_THAT(Error(Read(third, kTwoLabels)), HasSubstr("is of NumPy's format 3; 1 and 2 are read"));
}

TEST(NpyTest, TheNameLeadsToTheLabels) {
  const std::string directory = TestDirectory();
  WriteFile(directory, "y_train.npy", kTwoLabels);
  const std::string path = WriteFile(directory, "x_train.npy", kTwoRows);
  TableSpec spec = kSpec;
  EXPECT_THAT(Error(ReadNpy(path, spec)),
              HasSubstr("x_train.npy: its name has no \"features\" (data.table.features)"));
  spec.features = "x_";
  spec.labels = "y_";
  EXPECT_TRUE(ReadNpy(path, spec).ok());
  spec.labels = "z_";
  EXPECT_THAT(Error(ReadNpy(path, spec)), HasSubstr("/z_train.npy: No such file"));
}

}  // namespace
}  // namespace catchment
