#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/worker/data/idx_files.h"
#include "worker/data/table/formats.h"
#include "worker/data/table/hdf5_values.h"

namespace catchment {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr char kGolden[] = "tests/worker/data/golden/";

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
  EXPECT_THAT(
      Error(Read("mpi_learn.h5", spec)),
      HasSubstr("row 1, counted from 0, of tests/worker/data/golden/mpi_learn.h5: data set \"features\" has "
                "target 1.5"));
}

TEST(Hdf5Test, NamesWhatDoesNotFit) {
  TableSpec spec = kSpec;
  spec.labels = "Y";
  EXPECT_THAT(Error(Read("mpi_learn.h5", spec)), HasSubstr("mpi_learn.h5: has no data set \"Y\""));
  spec = kSpec;
  spec.shape = SampleShape::Sequence(2, 2);
  EXPECT_THAT(Error(Read("mpi_learn.h5", spec)),
              HasSubstr("data set \"features\": its shape, (5, 3), makes rows of 3 values; data.table.shape, "
                        "2x2, makes 4"));
  spec = kSpec;
  spec.target = 2;
  EXPECT_THAT(Error(Read("bytes.h5", spec)),
              HasSubstr("data set \"labels\" has label 2; data.table.classes is 2"));
  EXPECT_THAT(Error(Read("mpi_learn.h5", spec)),
              HasSubstr("has 3 values a row; labels are 1 (a label) or 2"));
  EXPECT_THAT(Error(Read("strings.h5")),
              HasSubstr("data set \"features\" holds neither integers nor floats"));
}

TEST(Hdf5Test, TellsWhatCannotBeRead) {
  EXPECT_THAT(Error(Read("none.h5")), HasSubstr("none.h5: No such file"));
  EXPECT_THAT(Error(Read("lzf.h5")), HasSubstr("lzf.h5: data set \"features\" cannot be read"));
  EXPECT_THAT(Error(Read("lzf.h5")), HasSubstr("filter"));
  const std::string bytes = ReadUnpacked(absl::StrCat(kGolden, "mpi_learn.h5"));
  const std::string cut = WriteFile(TestDirectory(), "cut.h5", bytes.substr(0, bytes.size() - 10));
  EXPECT_THAT(Error(ReadHdf5(cut, kSpec)),
              HasSubstr("cut.h5: is no HDF5 file, or is cut short or damaged: "));
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
  EXPECT_THAT(Error(ReadHdf5(text, kSpec)), HasSubstr("text.h5: is no HDF5 file"));
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

// What a child has written whose memory a damaged file has changed.
class Hdf5MemoryTest : public testing::Test {
 protected:
  Hdf5MemoryTest() {
    const Hdf5Header header = {.complete = Hdf5Header::kComplete, .rows = 5, .label_columns = 1, .bytes = 1};
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
  refuses([](Hdf5Header* header) { header->bytes = 2; });
  header()->code = static_cast<int>(absl::StatusCode::kNotFound);
  std::memset(header()->message, 'x', sizeof header()->message);
  EXPECT_EQ(Error(Take()), std::string(sizeof header()->message - 1, 'x'));
}

}  // namespace
}  // namespace catchment
