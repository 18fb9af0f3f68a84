#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hdf5/serial/hdf5.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/common/base/without_memfd.h"
#include "tests/worker/data/idx_files.h"
#include "worker/data/table/formats.h"
#include "worker/data/table/hdf5_values.h"

namespace catchment {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kGolden[] = "tests/worker/data/table/golden/";

// The features of the golden files, which h5py wrote: value i is i / 2.
const TableSpec kSpec = {
    .shape = SampleShape::Vector(3), .target = 3, .features = "features", .labels = "labels"};

absl::StatusOr<TableRows> Read(const std::string& name, const TableSpec& spec = kSpec) {
  return ReadHdf5(kGolden + name, spec);
}

std::string Error(const absl::StatusOr<TableRows>& rows) {
  EXPECT_FALSE(rows.ok());
  return std::string(rows.status().message());
}

void ExpectHalves(const TableRows& rows) {
  ASSERT_EQ(rows.size, 5);
  for (int i = 0; i < 15; ++i) EXPECT_EQ(rows.floats.get()[i], i / 2.0f);
  EXPECT_THAT(rows.labels, ElementsAre(0, 1, 2, 0, 1));
}

TEST(Hdf5Test, ReadsWhatMpiLearnReads) {
  const auto rows = Read("mpi_learn.h5");
  ASSERT_TRUE(rows.ok()) << rows.status();
  ExpectHalves(*rows);
}

TEST(Hdf5Test, ReadsWithoutMemfd) {
  // In a thread, whose end is that of the filter.
  std::thread([] {
    if (!ForbidMemfd()) return;
    const auto rows = Read("mpi_learn.h5");
    ASSERT_TRUE(rows.ok()) << rows.status();
    ExpectHalves(*rows);
  }).join();
}

TEST(Hdf5Test, ReadsGzippedChunksOfOtherNamesRanksAndByteOrders) {
  TableSpec spec = kSpec;
  spec.features = "X";
  spec.labels = "Y";
  const auto rows = Read("chunked.h5", spec);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ExpectHalves(*rows);
}

TEST(Hdf5Test, KeepsBytes) {
  const auto rows = Read("bytes.h5");
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->floats, nullptr);
  for (int i = 0; i < 15; ++i) EXPECT_EQ(rows->bytes.get()[i], i);
  EXPECT_THAT(rows->labels, ElementsAre(0, 1, 2, 0, 1));
}

TEST(Hdf5Test, ReadsRealTargets) {
  TableSpec spec = kSpec;
  spec.target = TargetShape::Real(3);
  spec.labels = "features";
  const auto rows = Read("mpi_learn.h5", spec);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->targets[14], 7);
  spec.unit_targets = true;
  EXPECT_THAT(Error(Read("mpi_learn.h5", spec)),
              HasSubstr("row 1, counted from 0, of tests/worker/data/table/golden/mpi_learn.h5: data "
                        "set \"features\" has target 1.5"));
}

TEST(Hdf5Test, NamesWhatDoesNotFit) {
  TableSpec spec = kSpec;
  spec.labels = "Y";
  EXPECT_THAT(Error(Read("mpi_learn.h5", spec)), HasSubstr("mpi_learn.h5: has no data set \"Y\""));
  spec = kSpec;
  spec.shape = SampleShape::Sequence(2, 2);
  EXPECT_THAT(Error(Read("mpi_learn.h5", spec)),
              HasSubstr("data set \"features\": its shape, (5, 3), makes rows of 3 values; "
                        "data.table.shape, 2x2, makes 4"));
  spec = kSpec;
  spec.target = 2;
  EXPECT_THAT(Error(Read("bytes.h5", spec)),
              HasSubstr("data set \"labels\" has label 2; data.table.classes is 2"));
  EXPECT_THAT(Error(Read("mpi_learn.h5", spec)),
              HasSubstr("has 3 values a row; labels are 1 (a label) or 2"));
  EXPECT_THAT(Error(Read("strings.h5")),
              HasSubstr("data set \"features\" holds neither integers nor floats"));
}

// Writes files as h5py does that makes virtual data sets, enumerations or chunks which are only written in
// part.
class Hdf5Writer {
 public:
  explicit Hdf5Writer(const std::string& path)
      : path_(path), file_(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT)) {}
  ~Hdf5Writer() { H5Fclose(file_); }

  // Makes a data set with `create` as its properties; no values: none are written.
  template <typename T>
  void Add(const char* name, hid_t type, hid_t memory_type, std::vector<hsize_t> shape,
           const std::vector<T>& values, hid_t create = H5P_DEFAULT) {
    const hid_t space = H5Screate_simple(static_cast<int>(shape.size()), shape.data(), nullptr);
    const hid_t set = H5Dcreate2(file_, name, type, space, H5P_DEFAULT, create, H5P_DEFAULT);
    EXPECT_GE(set, 0) << name;
    if (!values.empty()) {
      EXPECT_GE(H5Dwrite(set, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()), 0) << name;
    }
    H5Dclose(set);
    H5Sclose(space);
  }
  void AddFloats(const char* name, std::vector<hsize_t> shape, const std::vector<float>& values,
                 hid_t create = H5P_DEFAULT) {
    Add(name, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, std::move(shape), values, create);
  }
  void AddLabels(const std::vector<int>& labels) {
    Add("labels", H5T_STD_I32LE, H5T_NATIVE_INT, {labels.size()}, labels);
  }
  // Writes one value at `at`.
  void Write(const char* name, std::vector<hsize_t> at, float value) {
    const hid_t set = H5Dopen2(file_, name, H5P_DEFAULT), space = H5Dget_space(set);
    const hid_t one = H5Screate(H5S_SCALAR);
    H5Sselect_elements(space, H5S_SELECT_SET, 1, at.data());
    EXPECT_GE(H5Dwrite(set, H5T_NATIVE_FLOAT, one, space, H5P_DEFAULT, &value), 0);
    H5Sclose(one);
    H5Sclose(space);
    H5Dclose(set);
  }
  // Adds a link to an object of another file, and one to a path.
  void AddExternalLink(const std::string& name, const std::string& file, const std::string& object) {
    EXPECT_GE(H5Lcreate_external(file.c_str(), object.c_str(), file_, name.c_str(), H5P_DEFAULT, H5P_DEFAULT),
              0);
  }
  void AddSoftLink(const std::string& name, const std::string& path) {
    EXPECT_GE(H5Lcreate_soft(path.c_str(), file_, name.c_str(), H5P_DEFAULT, H5P_DEFAULT), 0);
  }
  const std::string& path() const { return path_; }

 private:
  const std::string path_;
  const hid_t file_;
};

std::vector<float> Floats(const TableRows& rows, int64_t size) {
  return {rows.floats.get(), rows.floats.get() + rows.size * size};
}

// Times in seconds: a float32 has only multiples of 128 near them.
TEST(Hdf5Test, NormalizesWholeNumbersAboveTheOnesThatFloatsHold) {
  TableSpec spec = kSpec;
  spec.normalization = {{1700000015, 10}};
  for (const hid_t type : {H5T_STD_I64LE, H5T_STD_U32BE, H5T_IEEE_F64LE}) {
    const std::string path = TestDirectory() + "/times.h5";
    {
      Hdf5Writer writer(path);
      writer.Add("features", type, H5T_NATIVE_DOUBLE, {1, 3},
                 std::vector<double>{1700000005, 1700000015, 1700000025});
      writer.AddLabels({1});
    }
    const auto rows = ReadHdf5(path, spec);
    ASSERT_TRUE(rows.ok()) << rows.status();
    EXPECT_THAT(Floats(*rows, 3), ElementsAre(-1, 0, 1));
  }
}

TEST(Hdf5Test, DimensionsInAnotherOrderAreRefusedWithTheRemedy) {
  const std::string path = TestDirectory() + "/last.h5";
  {
    Hdf5Writer writer(path);
    writer.AddFloats("features", {2, 4, 5, 3}, std::vector<float>(120));
    writer.AddLabels({0, 1});
  }
  TableSpec spec = kSpec;
  spec.shape = {.channels = 3, .height = 4, .width = 5};
  EXPECT_THAT(Error(ReadHdf5(path, spec)),
              HasSubstr("data set \"features\": its shape, (2, 4, 5, 3), has rows of different dimensions"));
  EXPECT_THAT(Error(ReadHdf5(path, spec)), HasSubstr("numpy.transpose(a, (0, 3, 1, 2))"));
  spec.shape = {.channels = 4, .height = 5, .width = 3};
  EXPECT_TRUE(ReadHdf5(path, spec).ok());
}

// A virtual data set of one file's rows and another's.
std::string WriteVirtual() {
  const std::string directory = TestDirectory();
  const hid_t create = H5Pcreate(H5P_DATASET_CREATE);
  const hsize_t all[] = {2, 3}, part[] = {1, 3};
  const hid_t space = H5Screate_simple(2, all, nullptr), source = H5Screate_simple(2, part, nullptr);
  for (hsize_t i = 0; i < 2; ++i) {
    const std::string name = absl::StrCat("part", i, ".h5");
    Hdf5Writer(absl::StrCat(directory, "/", name))
        .AddFloats("x", {1, 3}, {1.0f + 3 * i, 2.0f + 3 * i, 3.0f + 3 * i});
    const hsize_t begin[] = {i, 0};
    H5Sselect_hyperslab(space, H5S_SELECT_SET, begin, nullptr, part, nullptr);
    EXPECT_GE(H5Pset_virtual(create, space, name.c_str(), "x", source), 0);
  }
  Hdf5Writer writer(directory + "/virtual.h5");
  writer.AddFloats("features", {2, 3}, {}, create);
  writer.AddLabels({2, 0});
  H5Sclose(source);
  H5Sclose(space);
  H5Pclose(create);
  return writer.path();
}

TEST(Hdf5Test, ReadsVirtualDataSets) {
  const auto rows = ReadHdf5(WriteVirtual(), kSpec);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(Floats(*rows, 3), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(rows->labels, ElementsAre(2, 0));
}

TEST(Hdf5Test, NamesTheMissingFileOfAVirtualDataSet) {
  const std::string path = WriteVirtual();
  unlink((TestDirectory() + "/part1.h5").c_str());
  EXPECT_THAT(
      Error(ReadHdf5(path, kSpec)),
      HasSubstr("virtual.h5: data set \"features\" has values in the file part1.h5, which is missing"));
}

TEST(Hdf5Test, ReadsValuesInOtherFiles) {
  const float values[] = {1, 2, 3, 4, 5, 6};
  const std::string outside =
      WriteFile(TestDirectory(), "outside.raw", {reinterpret_cast<const char*>(values), sizeof values});
  const std::string path = TestDirectory() + "/external.h5";
  {
    const hid_t create = H5Pcreate(H5P_DATASET_CREATE);
    EXPECT_GE(H5Pset_external(create, outside.c_str(), 0, sizeof values), 0);
    Hdf5Writer writer(path);
    writer.AddFloats("features", {2, 3}, {}, create);
    writer.AddLabels({2, 0});
    H5Pclose(create);
  }
  const auto rows = ReadHdf5(path, kSpec);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(Floats(*rows, 3), ElementsAre(1, 2, 3, 4, 5, 6));
  unlink(outside.c_str());
  EXPECT_THAT(Error(ReadHdf5(path, kSpec)), AllOf(HasSubstr("outside.raw"), HasSubstr("missing")));
}

// Data files in data/, which all have the features 1 to 6, and files elsewhere/ that they name.
class Hdf5PartsTest : public testing::Test {
 protected:
  Hdf5PartsTest() {
    std::filesystem::remove_all(root_);
    std::filesystem::create_directory(root_);
    for (const char* directory : {"/data", "/data/below", "/elsewhere"}) {
      EXPECT_EQ(mkdir((root_ + directory).c_str(), 0700), 0);
    }
    for (const char* directory : {"elsewhere", "data", "data/below"}) {
      const float values[] = {1, 2, 3, 4, 5, 6};
      WriteFile(root_ + "/" + directory, "raw", {reinterpret_cast<const char*>(values), sizeof values});
      Hdf5Writer(Path(directory + std::string("/values.h5"))).AddFloats("x", {2, 3}, {1, 2, 3, 4, 5, 6});
      WriteRaw(directory + std::string("/raw.h5"), Path("elsewhere/raw"));
      Hdf5Writer(Path(directory + std::string("/link.h5")))
          .AddExternalLink("x", Path("elsewhere/values.h5"), "x");
      WriteVirtual(directory + std::string("/virtual.h5"), Path("elsewhere/values.h5"), "x");
      Hdf5Writer soft(Path(directory + std::string("/soft.h5")));
      soft.AddExternalLink("group", Path("elsewhere/values.h5"), "/");
      soft.AddSoftLink("x", "/group/x");
    }
    for (const char* link : {"values.h5", "raw"}) {
      const std::string target = "../elsewhere/" + std::string(link);
      EXPECT_EQ(symlink(target.c_str(), Path("data/to_" + std::string(link)).c_str()), 0);
    }
    EXPECT_EQ(symlink("../elsewhere", Path("data/to_elsewhere").c_str()), 0);
    EXPECT_EQ(symlink("values.h5", Path("data/counted0.h5").c_str()), 0);
    EXPECT_EQ(symlink("../elsewhere/values.h5", Path("data/counted1.h5").c_str()), 0);
  }

  std::string Path(const std::string& name) const { return root_ + "/" + name; }

  void WriteRaw(const std::string& name, const std::string& part, const char* set = "x") {
    const hid_t create = H5Pcreate(H5P_DATASET_CREATE);
    EXPECT_GE(H5Pset_external(create, part.c_str(), 0, 24), 0);
    Hdf5Writer(Path(name)).AddFloats(set, {2, 3}, {}, create);
    H5Pclose(create);
  }
  void WriteVirtual(const std::string& name, const std::string& part, const std::string& set) {
    const hid_t create = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t all[] = {2, 3};
    const hid_t space = H5Screate_simple(2, all, nullptr);
    EXPECT_GE(H5Pset_virtual(create, space, part.c_str(), set.c_str(), space), 0);
    Hdf5Writer(Path(name)).AddFloats("x", {2, 3}, {}, create);
    H5Sclose(space);
    H5Pclose(create);
  }

  // Reads a data file whose features are those of data set x of the file `part`.
  absl::StatusOr<TableRows> ReadLinked(const std::string& part, const std::vector<int>& labels = {2, 0}) {
    {
      Hdf5Writer writer(Path("data/main.h5"));
      writer.AddExternalLink("features", part, "x");
      writer.AddLabels(labels);
    }
    return ReadHdf5(Path("data/main.h5"), kSpec);
  }
  absl::StatusOr<TableRows> ReadVirtual(const std::string& part) {
    WriteVirtual("data/through.h5", part, "x");
    return ReadLinked("through.h5");
  }
  // Reads a virtual data set of files that are counted up.
  absl::StatusOr<TableRows> ReadCounted(const std::string& pattern) {
    const hid_t create = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t begin[] = {0, 0}, block[] = {2, 3}, count[] = {H5S_UNLIMITED, 1},
                  most[] = {H5S_UNLIMITED, 3};
    const hid_t space = H5Screate_simple(2, block, most), source = H5Screate_simple(2, block, nullptr);
    EXPECT_GE(H5Sselect_hyperslab(space, H5S_SELECT_SET, begin, block, count, block), 0);
    EXPECT_GE(H5Pset_virtual(create, space, pattern.c_str(), "x", source), 0);
    const hid_t file = H5Fcreate(Path("data/through.h5").c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    const hid_t set = H5Dcreate2(file, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, create, H5P_DEFAULT);
    EXPECT_GE(set, 0);
    H5Dclose(set);
    H5Fclose(file);
    H5Sclose(source);
    H5Sclose(space);
    H5Pclose(create);
    return ReadLinked("through.h5", {2, 0, 1, 2});
  }
  absl::StatusOr<TableRows> ReadRaw(const std::string& part) {
    WriteRaw("data/through.h5", part);
    return ReadLinked("through.h5");
  }

  void ExpectRead(const absl::StatusOr<TableRows>& rows, const std::string& part) const {
    ASSERT_TRUE(rows.ok()) << part << ": " << rows.status();
    EXPECT_THAT(Floats(*rows, 3), ElementsAre(1, 2, 3, 4, 5, 6)) << part;
  }
  void ExpectRefused(const absl::StatusOr<TableRows>& rows, const std::string& part) const {
    ASSERT_FALSE(rows.ok()) << part;
    EXPECT_THAT(std::string(rows.status().message()),
                AllOf(HasSubstr(Path("data/main.h5: data set \"features\" has values in the file ")),
                      HasSubstr("which is not in the directory of")))
        << part;
  }

  const std::string root_ = TestDirectory();
};

TEST_F(Hdf5PartsTest, ReadsThoseInTheDirectory) {
  for (const std::string& part :
       {std::string("values.h5"), std::string("below/values.h5"), std::string("below/../values.h5"),
        std::string("counted0.h5"), Path("data/values.h5"), Path("data/below/values.h5"),
        std::string("/nowhere/values.h5")}) {
    ExpectRead(ReadLinked(part), part);
    ExpectRead(ReadVirtual(part), part);
  }
  unlink(Path("data/counted1.h5").c_str());
  ASSERT_EQ(symlink("below/values.h5", Path("data/counted1.h5").c_str()), 0);
  const auto counted = ReadCounted("counted%b.h5");
  ASSERT_TRUE(counted.ok()) << counted.status();
  EXPECT_THAT(Floats(*counted, 3), ElementsAre(1, 2, 3, 4, 5, 6, 1, 2, 3, 4, 5, 6));
  for (const char* part : {"data/raw", "data/below/raw", "data/below/../raw"}) {
    ExpectRead(ReadRaw(Path(part)), part);
  }
}

TEST_F(Hdf5PartsTest, RefusesThoseElsewhere) {
  for (const std::string& part :
       {Path("elsewhere/values.h5"), Path("data/../elsewhere/values.h5"), Path("data/to_values.h5"),
        std::string("../elsewhere/values.h5"), std::string("below/../../elsewhere/values.h5"),
        std::string("to_values.h5"), std::string("to_elsewhere/values.h5"), std::string("counted1.h5")}) {
    ExpectRefused(ReadLinked(part), part);
    ExpectRefused(ReadVirtual(part), part);
  }
  ExpectRefused(ReadCounted("counted%b.h5"), "counted%b.h5");
  for (const char* part :
       {"elsewhere/raw", "data/../elsewhere/raw", "data/to_raw", "data/to_elsewhere/raw"}) {
    ExpectRefused(ReadRaw(Path(part)), part);
  }
}

TEST_F(Hdf5PartsTest, RefusesPartsElsewhereOfParts) {
  for (const char* part : {"raw.h5", "link.h5", "virtual.h5", "soft.h5", "below/raw.h5", "below/link.h5",
                           "below/virtual.h5", "below/soft.h5"}) {
    ExpectRefused(ReadLinked(part), part);
    ExpectRefused(ReadVirtual(part), part);
  }
}

// A data file without links, and labels instead of features.
TEST_F(Hdf5PartsTest, RefusesThoseOfEachDataSet) {
  WriteRaw("data/main.h5", Path("elsewhere/raw"), "features");
  ExpectRefused(ReadHdf5(Path("data/main.h5"), kSpec), "raw");
  {
    Hdf5Writer writer(Path("data/main.h5"));
    writer.AddFloats("features", {2, 3}, {1, 2, 3, 4, 5, 6});
    writer.AddExternalLink("labels", Path("elsewhere/values.h5"), "x");
  }
  EXPECT_THAT(Error(ReadHdf5(Path("data/main.h5"), kSpec)),
              AllOf(HasSubstr("data set \"labels\""), HasSubstr("not in the directory")));
}

// The data file is a link, as in a store that names files by their content.
TEST_F(Hdf5PartsTest, ReadsThoseBesideTheFileThatALinkNames) {
  ExpectRead(ReadLinked("values.h5"), "values.h5");
  ASSERT_EQ(symlink("../data/main.h5", Path("elsewhere/main.h5").c_str()), 0);
  unlink(Path("elsewhere/values.h5").c_str());
  ExpectRead(ReadHdf5(Path("elsewhere/main.h5"), kSpec), "values.h5");
}

TEST_F(Hdf5PartsTest, EnvironmentLeadsNowhereElse) {
  for (const char* prefix : {"HDF5_EXT_PREFIX", "HDF5_VDS_PREFIX", "HDF5_EXTFILE_PREFIX"})
    setenv(prefix, Path("elsewhere").c_str(), 1);
  ASSERT_EQ(rename(Path("elsewhere/values.h5").c_str(), Path("elsewhere/other.h5").c_str()), 0);
  EXPECT_THAT(Error(ReadLinked("other.h5")), HasSubstr("missing"));
  EXPECT_THAT(Error(ReadVirtual("other.h5")), HasSubstr("missing"));
  EXPECT_THAT(Error(ReadRaw("other.h5")), HasSubstr("missing"));
  for (const char* prefix : {"HDF5_EXT_PREFIX", "HDF5_VDS_PREFIX", "HDF5_EXTFILE_PREFIX"}) unsetenv(prefix);
}

TEST(Hdf5Test, ReadsChunksOfWhichFewWereWritten) {
  constexpr int kRows = 10000;
  const std::string path = TestDirectory() + "/sparse.h5";
  {
    const hid_t create = H5Pcreate(H5P_DATASET_CREATE);
    const hsize_t chunk[] = {1, 3};
    H5Pset_chunk(create, 2, chunk);
    Hdf5Writer writer(path);
    writer.AddFloats("features", {kRows, 3}, {}, create);
    writer.Write("features", {7, 1}, 0.5f);
    writer.AddLabels(std::vector<int>(kRows));
    H5Pclose(create);
  }
  const auto rows = ReadHdf5(path, kSpec);
  ASSERT_TRUE(rows.ok()) << rows.status();
  ASSERT_EQ(rows->size, kRows);
  EXPECT_EQ(rows->floats.get()[7 * 3 + 1], 0.5f);
  EXPECT_EQ(rows->floats.get()[kRows * 3 - 1], 0);
}

// As h5py writes NumPy's bool.
TEST(Hdf5Test, ReadsEnumerations) {
  const std::string path = TestDirectory() + "/bool.h5";
  {
    const hid_t type = H5Tenum_create(H5T_STD_I8LE);
    for (int8_t value : {0, 1}) H5Tenum_insert(type, value == 0 ? "FALSE" : "TRUE", &value);
    Hdf5Writer writer(path);
    writer.Add<int8_t>("features", type, type, {2, 3}, {1, 0, 0, 0, 1, 1});
    writer.Add<int8_t>("labels", type, type, {2}, {1, 0});
    H5Tclose(type);
  }
  const auto rows = ReadHdf5(path, kSpec);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_THAT(Floats(*rows, 3), ElementsAre(1, 0, 0, 0, 1, 1));
  EXPECT_THAT(rows->labels, ElementsAre(1, 0));
}

TEST(Hdf5Test, TellsWhatCannotBeRead) {
  const std::string pipe = TestDirectory() + "/pipe.h5";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_EQ(Error(ReadHdf5(pipe, kSpec)), pipe + ": is not a regular file");
  EXPECT_THAT(Error(Read("none.h5")), HasSubstr("none.h5: No such file"));
  EXPECT_THAT(Error(Read("lzf.h5")), HasSubstr("lzf.h5: data set \"features\" cannot be read"));
  EXPECT_THAT(Error(Read("lzf.h5")), HasSubstr("filter"));
  const std::string bytes = ReadUnpacked(absl::StrCat(kGolden, "mpi_learn.h5"));
  const std::string cut = WriteFile(TestDirectory(), "cut.h5", bytes.substr(0, bytes.size() - 10));
  EXPECT_THAT(Error(ReadHdf5(cut, kSpec)),
              HasSubstr("cut.h5: is not an HDF5 file, or is cut short or damaged: "));
  // Data sets that claim 2^40 rows.
  const auto dimensions = [](uint64_t rows) {
    const uint64_t both[] = {rows, 3};
    return std::string(reinterpret_cast<const char*>(both), sizeof both);
  };
  const std::string huge =
      WriteFile(TestDirectory(), "huge.h5",
                absl::StrReplaceAll(bytes, {{dimensions(5), dimensions(uint64_t{1} << 40)}}));
  EXPECT_THAT(
      Error(ReadHdf5(huge, kSpec)),
      HasSubstr("huge.h5: data set \"features\" is damaged: its 1099511627776 x 3 values do not fit in the "
                "60 bytes that are stored of them"));
  const std::string text = WriteFile(TestDirectory(), "text.h5", "1,2,3\n");
  EXPECT_THAT(Error(ReadHdf5(text, kSpec)), HasSubstr("text.h5: is not an HDF5 file"));
}

// Debian's libhdf5 1.10.8 copies to a null pointer when it looks up a name in this file.
TEST(Hdf5Test, LibraryThatFailsIsAnErrorThatNamesTheFile) {
  const std::string input = ReadUnpacked("tests/fuzz/seeds/hdf5/heap_of_names");
  const std::string path = WriteFile(TestDirectory(), "heap.h5", input.substr(1));
  EXPECT_THAT(Error(ReadHdf5(path, kSpec)), HasSubstr("heap.h5: libhdf5 failed on this file ("));
}

TEST(Hdf5Test, ChildrenAreWaitedFor) {
  EXPECT_TRUE(Read("mpi_learn.h5").ok());
  EXPECT_FALSE(Read("none.h5").ok());
  EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1) << "a child is left";
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  EXPECT_TRUE(Read("mpi_learn.h5").ok()) << "without knowing how the child has ended";
  std::signal(SIGCHLD, before);
}

// Output of a child whose memory a damaged file has corrupted.
class Hdf5MemoryTest : public testing::Test {
 protected:
  Hdf5MemoryTest() {
    const Hdf5Header header = {
        .complete = Hdf5Header::kComplete, .rows = 5, .label_columns = 1, .values = Hdf5Values::kBytes};
    std::memcpy(memory_.data(), &header, sizeof header);
  }
  Hdf5Header* header() { return reinterpret_cast<Hdf5Header*>(memory_.data()); }
  absl::StatusOr<TableRows> Take() {
    const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(write(fd, memory_.data(), memory_.size()), static_cast<ssize_t>(memory_.size()));
    const Hdf5Request request = {"x.h5", "features", "labels", {3}};
    auto rows = TakeHdf5Rows(request, kSpec, fd);
    EXPECT_LT(ftruncate(fd, 0), 0) << "sealed";
    close(fd);
    return rows;
  }

  // 5 x 3 features and 5 labels, all of them 0.
  std::string memory_ = std::string(Hdf5LabelsBegin(15) + 5 * sizeof(double), 0);
};

TEST_F(Hdf5MemoryTest, TakesWhatItHolds) {
  const auto rows = Take();
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->size, 5);
  EXPECT_EQ(rows->bytes.get()[14], 0);
}

TEST_F(Hdf5MemoryTest, RefusesWhatItDoesNotHold) {
  const auto refuses = [this](auto change) {
    const std::string before = memory_;
    change(header());
    EXPECT_THAT(Error(Take()), HasSubstr("x.h5: libhdf5 failed on this file"));
    memory_ = before;
  };
  refuses([](Hdf5Header* header) { header->rows = 6; });
  refuses([](Hdf5Header* header) { header->rows = 0; });
  refuses([](Hdf5Header* header) { header->rows = -1; });
  refuses([](Hdf5Header* header) { header->rows = INT64_MAX; });
  refuses([](Hdf5Header* header) { header->label_columns = 2; });
  refuses([](Hdf5Header* header) { header->label_columns = INT64_MAX; });
  refuses([](Hdf5Header* header) { header->label_columns = -1; });
  refuses([](Hdf5Header* header) { header->values = static_cast<Hdf5Values>(3); });
  header()->code = static_cast<int>(absl::StatusCode::kNotFound);
  std::memset(header()->message, 'x', sizeof header()->message);
  EXPECT_EQ(Error(Take()), std::string(sizeof header()->message - 1, 'x'));
}

}  // namespace
}  // namespace catchment
