#include "worker/data/sources/idx.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "tests/worker/data/idx_files.h"

namespace catchment {
namespace {

using testing::HasSubstr;

// Reads `bytes` from a file; the message of the error that must come, which names the file.
absl::Status ErrorFor(const std::string& bytes, int rank, const std::string& name = "file") {
  const std::string path = WriteFile(TestDirectory(), name, bytes);
  const absl::Status status = ReadIdx(path, rank).status();
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  return status;
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

TEST(IdxTest, ReadsDimensionsAndValues) {
  const std::string path = WriteFile(TestDirectory(), "file", IdxBytes({2, 1, 3}, "abcdef"));
  const absl::StatusOr<IdxArray> array = ReadIdx(path, 3);
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_THAT(array->dimensions, testing::ElementsAre(2, 1, 3));
  EXPECT_EQ(std::string(array->values.begin(), array->values.end()), "abcdef");
}

TEST(IdxTest, ReadsGzippedAndPlainAlikeWhateverTheName) {
  const std::string bytes = IdxBytes({3}, "xyz");
  const std::string directory = TestDirectory();
  const absl::StatusOr<IdxArray> plain = ReadIdx(WriteFile(directory, "plain.gz", bytes), 1);
  const absl::StatusOr<IdxArray> packed = ReadIdx(WriteFile(directory, "packed", Gzipped(bytes)), 1);
  ASSERT_TRUE(plain.ok()) << plain.status();
  ASSERT_TRUE(packed.ok()) << packed.status();
  EXPECT_EQ(plain->values, packed->values);
  EXPECT_EQ(plain->md5, packed->md5);
}

TEST(IdxTest, GivesTheMd5OfTheUnpackedFile) {
  // printf '\x00\x00\x08\x01\x00\x00\x00\x03xyz' | md5sum
  const absl::StatusOr<IdxArray> array =
      ReadIdx(WriteFile(TestDirectory(), "file", Gzipped(IdxBytes({3}, "xyz"))), 1);
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_EQ(array->md5, "a538ac84da1d7a6b792fc9454a8607cc");
}

TEST(IdxTest, ReadsAFileLargerThanItsReadingChunk) {
  std::string values(10'000'000, '\0');
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<char>(i * 31 >> 5);
  const absl::StatusOr<IdxArray> array =
      ReadIdx(WriteFile(TestDirectory(), "file", Gzipped(IdxBytes({1000, 100, 100}, values))), 3);
  ASSERT_TRUE(array.ok()) << array.status();
  EXPECT_TRUE(std::equal(values.begin(), values.end(), array->values.begin(), array->values.end(),
                         [](char a, uint8_t b) { return static_cast<uint8_t>(a) == b; }));
}

TEST(IdxTest, NamesAMissingFile) {
  const std::string path = TestDirectory() + "/nothing";
  const absl::Status status = ReadIdx(path, 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Message(status), "cannot open " + path + ": No such file or directory");
}

TEST(IdxTest, RefusesANamedPipeAtOnce) {
  const std::string path = TestDirectory() + "/pipe";
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(Message(ReadIdx(path, 1).status()), path + ": is not a regular file");
}

TEST(IdxTest, RefusesAFolder) {
  const absl::Status status = ReadIdx(TestDirectory(), 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status), TestDirectory() + ": is not a regular file");
}

TEST(IdxTest, SaysHowMuchOfATruncatedFileIsThere) {
  const absl::Status status = ErrorFor(IdxBytes({2, 2, 2}, "1234567"), 3);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(status),
              HasSubstr("is cut short: its header says 2x2x2, that is 8 bytes of values, and it holds 7"));
}

TEST(IdxTest, SaysThatTheHeaderIsTruncated) {
  const absl::Status status = ErrorFor(IdxBytes({2, 2, 2}, "").substr(0, 9), 3);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(status), HasSubstr("is cut short: 9 bytes, and the header alone is 16"));
}

TEST(IdxTest, RefusesAnEmptyFile) {
  EXPECT_THAT(Message(ErrorFor("", 1)), HasSubstr("is cut short: 0 bytes, and the header alone is 8"));
}

TEST(IdxTest, ShowsAWrongMagic) {
  const absl::Status status = ErrorFor("<!DOCTYPE html> not found", 3);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("begins with 3c21444f, expected 00000803, "
                                         "an IDX file of unsigned bytes with 3 dimensions"));
}

TEST(IdxTest, RefusesAnotherRank) {
  EXPECT_THAT(Message(ErrorFor(IdxBytes({4}, "1234"), 3)),
              HasSubstr("begins with 00000801, expected 00000803"));
}

TEST(IdxTest, RefusesFloats) {
  std::string bytes = IdxBytes({1}, "1234");
  bytes[2] = 0x0d;
  EXPECT_THAT(Message(ErrorFor(bytes, 1)), HasSubstr("begins with 00000d01, expected 00000801"));
}

TEST(IdxTest, RefusesAnEmptyDimension) {
  const absl::Status status = ErrorFor(IdxBytes({5, 0, 28}, ""), 3);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(Message(status), HasSubstr("is empty, its header says 5x0x28"));
}

TEST(IdxTest, RefusesAbsurdSizesAlsoWhereTheirProductOverflows) {
  // The second product is 2^64.
  for (const std::vector<uint32_t>& sizes : {std::vector<uint32_t>{0xffffffff, 0xffffffff, 0xffffffff},
                                             std::vector<uint32_t>{1u << 31, 1u << 31, 4}}) {
    const absl::Status status = ErrorFor(IdxBytes(sizes, "1"), 3);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(Message(status),
                HasSubstr("its header says " + DimensionsToString({sizes[0], sizes[1], sizes[2]}) +
                          ", and at most 1073741824 values are read"));
  }
}

TEST(IdxTest, DoesNotAllocateWhatOnlyTheHeaderClaims) {
  EXPECT_THAT(Message(ErrorFor(IdxBytes({1 << 30}, "12"), 1)),
              HasSubstr("that is 1073741824 bytes of values, and it holds 2"));
}

TEST(IdxTest, RefusesTrailingBytes) {
  const absl::Status status = ErrorFor(IdxBytes({2, 1, 1}, "123"), 3);
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(
      Message(status),
      HasSubstr("has extra bytes after its values: its header says 2x1x1, that is 2 bytes of values"));
}

std::string LongGzip() {
  std::string values(50000, '\0');
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<char>(i * i >> 3);
  return Gzipped(IdxBytes({50000}, values));
}

TEST(IdxTest, RefusesAGzipStreamThatIsCutShort) {
  const std::string packed = LongGzip();
  for (size_t size : {packed.size() / 2, packed.size() - 1}) {
    const absl::Status status = ErrorFor(packed.substr(0, size), 1);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(Message(status), HasSubstr("its gzip stream is cut short")) << size << " bytes";
  }
}

TEST(IdxTest, RefusesADamagedGzipStream) {
  std::string packed = LongGzip();
  // The checksum at the end, and the first block.
  for (size_t at : {packed.size() - 6, size_t{12}}) {
    std::string damaged = packed;
    damaged[at] ^= 0x55;
    const absl::Status status = ErrorFor(damaged, 1);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(Message(status), HasSubstr("gzip stream is")) << "damaged at " << at;
  }
}

TEST(LabelledImagesTest, ReadsBoth) {
  const std::string directory = TestDirectory();
  const absl::StatusOr<LabelledImages> read =
      ReadLabelledImages(WriteFile(directory, "images", IdxBytes({2, 1, 1}, "ab")),
                         WriteFile(directory, "labels", IdxBytes({2}, {3, 0})), 4);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_THAT(read->images.values, testing::ElementsAre('a', 'b'));
  EXPECT_THAT(read->labels.values, testing::ElementsAre(3, 0));
}

TEST(LabelledImagesTest, NamesTheLabelOutOfRange) {
  const std::string directory = TestDirectory();
  const std::string labels = WriteFile(directory, "labels", IdxBytes({2}, {3, 4}));
  const absl::Status status =
      ReadLabelledImages(WriteFile(directory, "images", IdxBytes({2, 1, 1}, "ab")), labels, 4).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status), labels + ": label 1 is 4; labels are 0 to 3");
}

TEST(LabelledImagesTest, NamesBothFilesWhereCountsDiffer) {
  const std::string directory = TestDirectory();
  const std::string images = WriteFile(directory, "images", IdxBytes({2, 1, 1}, "ab"));
  const std::string labels = WriteFile(directory, "labels", IdxBytes({1}, {0}));
  const absl::Status status = ReadLabelledImages(images, labels, 4).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status),
            images + " holds 2 images, and " + labels + " 1 labels; they are not a matching pair");
}

TEST(LabelledImagesTest, PassesOnAnErrorOfEitherFile) {
  const std::string directory = TestDirectory();
  const std::string good = WriteFile(directory, "images", IdxBytes({1, 1, 1}, "a"));
  EXPECT_THAT(Message(ReadLabelledImages(good, directory + "/labels", 4).status()),
              HasSubstr("/labels: No such"));
  EXPECT_THAT(Message(ReadLabelledImages(directory + "/none", good, 4).status()),
              HasSubstr("/none: No such"));
}

}  // namespace
}  // namespace catchment
