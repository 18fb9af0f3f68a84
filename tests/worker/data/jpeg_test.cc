#include "worker/data/jpeg.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/worker/data/idx_files.h"
#include "tests/worker/data/jpeg_files.h"

namespace catchment {
namespace {

using testing::HasSubstr;

constexpr char kReplace[] =
    "; replace it by another image (--resume needs the same number), "
    "or delete it for all workers and start the job anew";

struct Decoded {
  absl::Status status;
  int64_t width = 0, height = 0;
  std::vector<uint8_t> rgb;
};

Decoded Decode(const std::string& file) {
  Decoded decoded;
  decoded.status = DecodeJpeg(
      file, "/data/cat/1.jpg",
      [&](int64_t width, int64_t height) {
        decoded.width = width;
        return decoded.height = height;
      },
      [&](int64_t y, const uint8_t* rgb) {
        EXPECT_EQ(y * decoded.width * 3, static_cast<int64_t>(decoded.rgb.size()));
        decoded.rgb.insert(decoded.rgb.end(), rgb, rgb + decoded.width * 3);
      });
  return decoded;
}

// A smooth image, so that compression changes little.
std::vector<uint8_t> Gradient(int width, int height, int values) {
  std::vector<uint8_t> pixels;
  for (int y = 0; y < height; ++y)
    for (int x = 0; x < width; ++x)
      for (int c = 0; c < values; ++c)
        pixels.push_back(static_cast<uint8_t>(40 * c + 100 * x / width + 60 * y / height));
  return pixels;
}

void ExpectNear(const std::vector<uint8_t>& actual, const std::vector<uint8_t>& expected, int tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) ASSERT_NEAR(actual[i], expected[i], tolerance) << i;
}

TEST(JpegTest, DecodesSequentialAndProgressiveImages) {
  const std::vector<uint8_t> pixels = Gradient(67, 35, 3);
  for (const JpegKind kind : {JpegKind::kRgb, JpegKind::kProgressive, JpegKind::kThreeScans}) {
    const Decoded decoded = Decode(EncodeJpeg(pixels, 67, 35, kind));
    ASSERT_TRUE(decoded.status.ok()) << decoded.status;
    EXPECT_EQ(decoded.width, 67);
    EXPECT_EQ(decoded.height, 35);
    ExpectNear(decoded.rgb, pixels, 4);
  }
}

TEST(JpegTest, GrayBecomesThreeEqualChannels) {
  const std::vector<uint8_t> gray = Gradient(40, 30, 1);
  std::vector<uint8_t> expected;
  for (const uint8_t value : gray) expected.insert(expected.end(), 3, value);
  const Decoded decoded = Decode(EncodeJpeg(gray, 40, 30, JpegKind::kGray));
  ASSERT_TRUE(decoded.status.ok()) << decoded.status;
  ExpectNear(decoded.rgb, expected, 2);
}

TEST(JpegTest, InkBecomesColor) {
  // Inverted: no cyan and half of the light, all magenta, and no black.
  std::vector<uint8_t> cmyk;
  for (int i = 0; i < 16 * 16; ++i) cmyk.insert(cmyk.end(), {255, 0, 128, 200});
  const Decoded decoded = Decode(EncodeJpeg(cmyk, 16, 16, JpegKind::kCmyk));
  ASSERT_TRUE(decoded.status.ok()) << decoded.status;
  std::vector<uint8_t> expected;
  for (int i = 0; i < 16 * 16; ++i) expected.insert(expected.end(), {200, 0, 100});
  ExpectNear(decoded.rgb, expected, 2);
}

TEST(JpegTest, ReadsOnlyTheRowsThatAreWanted) {
  const std::string file = EncodeJpeg(Gradient(64, 64, 3), 64, 64);
  // The part of the file with the last rows is missing.
  const std::string cut = file.substr(0, file.size() - 20);
  int64_t rows = 0;
  const auto decode = [&](int64_t wanted) {
    rows = 0;
    return DecodeJpeg(
        cut, "a.jpg", [&](int64_t, int64_t) { return wanted; }, [&](int64_t, const uint8_t*) { ++rows; });
  };
  EXPECT_TRUE(decode(16).ok());
  EXPECT_EQ(rows, 16);
  EXPECT_EQ(decode(64).code(), absl::StatusCode::kDataLoss);
}

TEST(JpegTest, DamagedFilesAreNamedWithTheRemedy) {
  const std::string file = EncodeJpeg(Gradient(64, 48, 3), 64, 48);
  EXPECT_EQ(Decode("").status.message(), absl::StrCat("/data/cat/1.jpg: is empty", kReplace));
  EXPECT_EQ(Decode(file.substr(0, file.size() / 2)).status.message(),
            absl::StrCat("/data/cat/1.jpg: is damaged (Premature end of JPEG file)", kReplace));
  EXPECT_EQ(Decode(file.substr(0, 30)).status.code(), absl::StatusCode::kDataLoss);
  std::string bad = file;
  const size_t scan = bad.rfind("\xff\xda") + 20;
  ASSERT_LT(scan + 1, bad.size());
  bad[scan] = '\xff';
  bad[scan + 1] = '\xd9';
  EXPECT_EQ(Decode(bad).status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(Decode(bad).status.message()), HasSubstr("Corrupt JPEG data"));
}

TEST(JpegTest, BytesBeforeAMarkerDoNoHarm) {
  std::string file = EncodeJpeg(Gradient(64, 48, 3), 64, 48);
  const Decoded whole = Decode(file);
  file.insert(file.size() - 2, "abc");
  const Decoded decoded = Decode(file);
  EXPECT_TRUE(decoded.status.ok()) << decoded.status;
  EXPECT_EQ(decoded.rgb, whole.rgb);
}

TEST(JpegTest, OtherFormatsAreNamed) {
  EXPECT_EQ(Decode("\x89PNG\r\n").status.message(),
            "/data/cat/1.jpg: is a PNG image, not a JPEG; convert it, "
            "or delete it for all workers and start the job anew");
  EXPECT_EQ(Decode("hello").status.message(), absl::StrCat("/data/cat/1.jpg: is not a JPEG image", kReplace));
}

// Returns what CheckJpeg says of a file with this content.
absl::Status Check(const std::string& content) {
  return CheckJpeg(WriteFile(TestDirectory(), "checked.jpg", content), "named.jpg");
}

TEST(JpegTest, FilesThatAreCutAnywhereAreFoundBeforeTheyAreUsed) {
  for (const JpegKind kind : {JpegKind::kRgb, JpegKind::kProgressive, JpegKind::kGray}) {
    const std::string file =
        EncodeJpeg(Gradient(64, 48, kind == JpegKind::kGray ? 1 : 3), 64, 48, kind, /*quality=*/80);
    EXPECT_TRUE(Check(file).ok()) << Check(file);
    // Without the mark of its end alone, all pixels are there.
    for (size_t size = 0; size < file.size() - 3; size += 7) {
      const absl::Status status = Check(file.substr(0, size));
      EXPECT_EQ(status.ok(), size > 0 && Decode(file.substr(0, size)).status.ok()) << size;
      EXPECT_TRUE(status.ok() || absl::StartsWith(status.message(), "named.jpg: is ")) << status;
    }
  }
}

TEST(JpegTest, WhatFollowsAnImageDoesNoHarm) {
  const std::string file = EncodeJpeg(Gradient(64, 48, 3), 64, 48);
  EXPECT_TRUE(Check(file + std::string(1000, 'x')).ok());
  // A preview in a segment ends before the image, which is cut.
  const std::string preview = std::string("\xff\xe1\x00\x08pre\xff\xd9!", 10);
  const std::string with_preview = file.substr(0, 2) + preview + file.substr(2);
  EXPECT_TRUE(Check(with_preview).ok()) << Check(with_preview);
  EXPECT_EQ(Check(with_preview.substr(0, with_preview.size() / 2)).code(), absl::StatusCode::kDataLoss);
}

TEST(JpegTest, FilesThatCannotBeReadAreNamed) {
  EXPECT_THAT(std::string(CheckJpeg("/none/1.jpg", "1.jpg").message()),
              HasSubstr("cannot open /none/1.jpg: No such file or directory; replace it"));
  EXPECT_THAT(std::string(Check("\x89PNG\r\n").message()),
              HasSubstr("named.jpg: is a PNG image, not a JPEG"));
}

TEST(JpegTest, RefusesMorePixelsThanFitIntoMemory) {
  std::string file = EncodeJpeg(Gradient(16, 16, 3), 16, 16);
  // In the frame's header: its length, the precision, height and width.
  const size_t header = file.find("\xff\xc0");
  ASSERT_NE(header, std::string::npos);
  for (const size_t side : {header + 5, header + 7}) {
    file[side] = '\xff';
    file[side + 1] = '\0';
  }
  const absl::Status status = Decode(file).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has 65280 x 65280 pixels; at most 134217728"));
}

TEST(JpegTest, RefusesScansWithoutEnd) {
  const std::string file = EncodeJpeg(Gradient(16, 16, 3), 16, 16, JpegKind::kThreeScans);
  // The last scan again and again.
  const size_t last = file.rfind("\xff\xda");
  ASSERT_NE(last, std::string::npos);
  const std::string scan = file.substr(last, file.size() - 2 - last);
  std::string many = file.substr(0, file.size() - 2);
  for (int i = 0; i < 1000; ++i) many += scan;
  many += file.substr(file.size() - 2);
  const absl::Status status = Decode(many).status;
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("it has more than 500 scans"));
}

}  // namespace
}  // namespace catchment
