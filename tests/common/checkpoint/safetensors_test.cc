#include "common/checkpoint/safetensors.h"

#include <cstring>
#include <filesystem>
#include <numeric>
#include <regex>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/checkpoint/test_files.h"

namespace catchment {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The result of Python's struct, json and zlib for a = [1, -2], b.weight = [[0.5, 3, 0]] and {"k": "v"}.
constexpr char kGoldenHeader[] =
    R"({"__metadata__":{"crc32.a":"c3872656","crc32.b.weight":"ddf69b49","k":"v"},)"
    R"("a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
    R"("b.weight":{"dtype":"F32","shape":[1,3],"data_offsets":[8,20]}} )";
constexpr unsigned char kGoldenValues[] = {0x00, 0x00, 0x80, 0x3f, 0x00, 0x00, 0x00, 0xc0, 0x00, 0x00,
                                           0x00, 0x3f, 0x00, 0x00, 0x40, 0x40, 0x00, 0x00, 0x00, 0x00};

std::string Golden() {
  return std::string("\xc0\0\0\0\0\0\0\0", 8) + kGoldenHeader +
         std::string(reinterpret_cast<const char*>(kGoldenValues), sizeof(kGoldenValues));
}

std::string WriteGolden() {
  const std::vector<float> a = {1, -2}, b = {0.5f, 3, 0};
  const std::string path = FreshDirectory() + "/golden.safetensors";
  const absl::Status status = WriteSafetensors(
      path, {{"a", {2}, absl::MakeConstSpan(a)}, {"b.weight", {1, 3}, absl::MakeConstSpan(b)}}, {{"k", "v"}});
  EXPECT_TRUE(status.ok()) << status;
  return path;
}

std::string WithHeader(const std::string& header, const std::string& values) {
  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  return bytes + header + values;
}

// The error of opening a file of these bytes.
std::string OpenError(const std::string& bytes) {
  const std::string path = FreshDirectory() + "/bad.safetensors";
  SetFileBytes(path, bytes);
  const auto file = SafetensorsFile::Open(path);
  EXPECT_FALSE(file.ok());
  EXPECT_THAT(std::string(file.status().message()), HasSubstr(path));
  return std::string(file.status().message()).substr(std::min(path.size(), file.status().message().size()));
}

std::string HeaderError(const std::string& header, size_t value_bytes) {
  return OpenError(WithHeader(header, std::string(value_bytes, '\0')));
}

// A reader in few lines that shares nothing with the library's: finds a tensor's offsets with a regular
// expression.
std::vector<float> MinimalRead(const std::string& bytes, const std::string& name) {
  uint64_t length;
  std::memcpy(&length, bytes.data(), 8);
  const std::string header = bytes.substr(8, length);
  std::smatch match;
  const std::regex pattern("\"" + name + R"re("\s*:\s*\{[^}]*"data_offsets"\s*:\s*\[(\d+),(\d+)\])re");
  if (!std::regex_search(header, match, pattern)) return {};
  const size_t begin = std::stoul(match[1]), end = std::stoul(match[2]);
  std::vector<float> values((end - begin) / 4);
  std::memcpy(values.data(), bytes.data() + 8 + length + begin, end - begin);
  return values;
}

TEST(Safetensors, BytesAreThoseOfPython) { EXPECT_EQ(FileBytes(WriteGolden()), Golden()); }

TEST(Safetensors, HeaderIsPaddedToEightBytes) {
  const std::string path = FreshDirectory() + "/f";
  const std::vector<float> values(1);
  std::string name;
  for (int i = 0; i < 8; ++i) {
    name += "n";
    ASSERT_TRUE(WriteSafetensors(path, {{name, {1}, absl::MakeConstSpan(values)}}, {}).ok());
    EXPECT_EQ(FileBytes(path)[0] % 8, 0);
    EXPECT_TRUE(SafetensorsFile::Open(path).ok());
  }
}

TEST(Safetensors, NamesThatHideATensorAreNotWritten) {
  const std::string path = FreshDirectory() + "/f";
  const std::vector<float> values(1);
  const auto error = [&](const std::vector<std::string>& names) {
    std::vector<TensorView> views;
    for (const std::string& name : names) views.push_back({name, {1}, absl::MakeConstSpan(values)});
    const absl::Status status = WriteSafetensors(path, views, {{"k", "v"}});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    EXPECT_FALSE(std::filesystem::exists(path));
    return std::string(status.message());
  };
  EXPECT_EQ(error({"a", "b", "a"}),
            "cannot write " + path + ": tensor \"a\" appears twice; names must be distinct");
  EXPECT_THAT(error({"__metadata__"}), HasSubstr("a name that the format reserves"));
  EXPECT_THAT(error({"a\xfe"}), HasSubstr("a name that is not UTF-8"));
}

TEST(Safetensors, IndependentReaderAgrees) {
  std::vector<float> a(1000), b(77);
  std::iota(a.begin(), a.end(), -300.25f);
  std::iota(b.begin(), b.end(), 1e9f);
  const std::string path = FreshDirectory() + "/f";
  ASSERT_TRUE(
      WriteSafetensors(
          path, {{"x.a", {10, 100}, absl::MakeConstSpan(a)}, {"x.b", {7, 11}, absl::MakeConstSpan(b)}}, {})
          .ok());
  EXPECT_EQ(MinimalRead(FileBytes(path), "x\\.a"), a);
  EXPECT_EQ(MinimalRead(FileBytes(path), "x\\.b"), b);
}

TEST(Safetensors, ReadsBackWhatWasWritten) {
  const auto file = SafetensorsFile::Open(WriteGolden());
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_EQ((*file)->tensors().size(), 2u);
  EXPECT_EQ((*file)->tensors()[1].name, "b.weight");
  EXPECT_THAT((*file)->tensors()[1].shape, ElementsAre(1, 3));
  EXPECT_EQ((*file)->metadata().at("k"), "v");
  std::vector<float> values(3);
  ASSERT_TRUE((*file)->Read("b.weight", 0, 3, values.data()).ok());
  EXPECT_THAT(values, ElementsAre(0.5f, 3, 0));
  EXPECT_TRUE((*file)->VerifyChecksums().ok());
}

TEST(Safetensors, ReadsAnyRangeAndNothingBeyond) {
  const auto file = SafetensorsFile::Open(WriteGolden());
  ASSERT_TRUE(file.ok()) << file.status();
  float value = 0;
  ASSERT_TRUE((*file)->Read("b.weight", 1, 1, &value).ok());
  EXPECT_EQ(value, 3);
  EXPECT_TRUE((*file)->Read("b.weight", 3, 0, &value).ok());
  for (const auto& [first, count] :
       {std::pair<int64_t, int64_t>{2, 2}, {-1, 1}, {4, 0}, {0, -1}, {1, INT64_MAX}}) {
    const absl::Status status = (*file)->Read("b.weight", first, count, &value);
    EXPECT_EQ(status.code(), absl::StatusCode::kOutOfRange) << first << " " << count;
    EXPECT_THAT(std::string(status.message()), HasSubstr("tensor \"b.weight\" has 3 values"));
  }
  const absl::Status status = (*file)->Read("c", 0, 1, &value);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has no tensor \"c\"; it has a, b.weight"));
}

TEST(Safetensors, FileOfAnotherWriterIsRead) {
  const std::string path = FreshDirectory() + "/foreign";
  SetFileBytes(path, WithHeader(R"( { "t" : {"shape":[], "data_offsets":[0,4], "dtype":"F32"}, "empty":
      {"dtype":"F32","shape":[0,5],"data_offsets":[4,4]} }    )",
                                std::string("\0\0\x80\x3f", 4)));
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  float value = 0;
  ASSERT_TRUE((*file)->Read("t", 0, 1, &value).ok());
  EXPECT_EQ(value, 1);
  EXPECT_TRUE((*file)->VerifyChecksums().ok());
}

TEST(Safetensors, EveryTruncationIsRefused) {
  const std::string golden = Golden();
  for (size_t size = 0; size < golden.size(); ++size) {
    SCOPED_TRACE(size);
    OpenError(golden.substr(0, size));
  }
  EXPECT_EQ(OpenError(golden.substr(0, 5)), ": has 5 bytes; it is truncated, or not a safetensors file");
  EXPECT_EQ(
      OpenError(golden.substr(0, 100)),
      ": its header would need 192 bytes, but the file has 100; it is truncated, or not a safetensors file");
  EXPECT_THAT(
      OpenError(golden.substr(0, golden.size() - 1)),
      HasSubstr("tensor \"b.weight\": data_offsets [8, 20] are not within the file's 19 bytes of values"));
  EXPECT_EQ(OpenError(golden + "x"), ": its tensors have 20 bytes, but the file has 21");
}

TEST(Safetensors, DamagedValuesAreNoticedWhenTheWholeTensorIsRead) {
  const std::string path = WriteGolden();
  std::string bytes = FileBytes(path);
  bytes[bytes.size() - 2] ^= 1;
  SetFileBytes(path, bytes);
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<float> values(3);
  EXPECT_TRUE((*file)->Read("a", 0, 2, values.data()).ok());
  const absl::Status status = (*file)->Read("b.weight", 0, 3, values.data());
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(
      std::string(status.message()),
      AllOf(HasSubstr(path), HasSubstr("tensor \"b.weight\" is damaged"), HasSubstr("expected ddf69b49")));
  EXPECT_EQ((*file)->VerifyChecksums().message(), status.message());
}

TEST(Safetensors, HeadersThatCannotBeAreRefused) {
  const std::string a = R"("a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  EXPECT_EQ(HeaderError("not json", 0), ": its header is not a JSON object");
  EXPECT_EQ(HeaderError("[]", 0), ": its header is not a JSON object");
  EXPECT_EQ(HeaderError(std::string(100000, '['), 0), ": its header is not a JSON object");
  EXPECT_EQ(HeaderError("{" + a + "," + a + "}", 4), ": its header names \"a\" twice");
  EXPECT_EQ(HeaderError(R"({"a": {"dtype": "F32", "shape": [1], "shape": [1], "data_offsets": [0, 4]}})", 4),
            ": its header names \"shape\" twice");
  EXPECT_EQ(HeaderError(R"({"a":5})", 0), ": tensor \"a\": is not a JSON object");
  EXPECT_EQ(HeaderError(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4), ": tensor \"a\": has no dtype");
  EXPECT_EQ(HeaderError(R"({"a":{"dtype":"BF16","shape":[1],"data_offsets":[0,2]}})", 2),
            ": tensor \"a\": dtype is BF16, but only F32 is supported");
  EXPECT_EQ(HeaderError(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4),
            ": tensor \"a\": shape is not a list of sizes");
  EXPECT_EQ(HeaderError(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0]}})", 4),
            ": tensor \"a\": data_offsets are not two offsets");
  EXPECT_EQ(HeaderError(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
            ": tensor \"a\": shape 2 does not need the 4 bytes of its data_offsets");
  EXPECT_EQ(HeaderError(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4),
            ": tensor \"a\": data_offsets [4, 0] are not within the file's 4 bytes of values");
  EXPECT_EQ(
      HeaderError(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,0]}})",
                  0),
      ": tensor \"a\": shape 4294967296x4294967296x4294967296 does not need the 0 bytes of its data_offsets");
  EXPECT_EQ(HeaderError("{" + a + R"(,"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", 8),
            ": tensor \"b\" begins at byte 0, but the previous one overlaps it: it ends at 4");
  EXPECT_EQ(HeaderError("{" + a + R"(,"b":{"dtype":"F32","shape":[1],"data_offsets":[8,12]}})", 12),
            ": tensor \"b\" begins at byte 8, but the previous one ends at 4");
  EXPECT_EQ(HeaderError(R"({"__metadata__":5})", 0), ": its __metadata__ is not a JSON object");
  EXPECT_EQ(HeaderError(R"({"__metadata__":{"k":5}})", 0), ": its __metadata__ \"k\" is not a string");
}

TEST(Safetensors, HugeHeaderLengthIsRefusedWithoutTakingMemory) {
  EXPECT_THAT(OpenError(std::string(8, '\xff') + "{}"),
              HasSubstr("its header would need 18446744073709551615 bytes"));
}

TEST(Safetensors, MissingFileAndDirectoryAreNamed) {
  EXPECT_EQ(SafetensorsFile::Open("/nowhere/f").status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(SafetensorsFile::Open(::testing::TempDir()).status().message()),
              HasSubstr("is not a regular file"));
}

TEST(Safetensors, CallsBackAfterEachPartThatIsWritten) {
  const std::string path = FreshDirectory() + "/f.safetensors";
  std::vector<float> values((5 << 20) / 2 / sizeof(float));  // 2.5 MiB
  std::iota(values.begin(), values.end(), 0.0f);
  const int64_t size = values.size();
  int calls = 0;
  const absl::Status status =
      WriteSafetensors(path, {{"a", {size}, absl::MakeConstSpan(values)}}, {}, [&calls] { ++calls; });
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(calls, 3);
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_TRUE((*file)->VerifyChecksums().ok());
  std::vector<float> read(values.size());
  ASSERT_TRUE((*file)->Read("a", 0, size, read.data()).ok());
  EXPECT_EQ(read, values);
}

TEST(Safetensors, FullDiskLeavesNoFile) {
  const std::string path = FreshDirectory() + "/f.safetensors";
  const FileSizeLimit limit(1 << 20);
  const std::vector<float> values(1 << 20);
  const absl::Status status = WriteSafetensors(path, {{"a", {1 << 20}, absl::MakeConstSpan(values)}}, {});
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr(path), HasSubstr("needs 41944"), HasSubstr("File too large")));
  EXPECT_TRUE(std::filesystem::is_empty(std::filesystem::path(path).parent_path()));
}

}  // namespace
}  // namespace catchment
