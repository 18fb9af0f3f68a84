// JPEG images: decoding, and resizing of the center and of a random part.
//
// Input: a byte; below 128 the rest is the file. Otherwise an image is encoded, of the kind, width, height
// and quality in the next bytes, and the rest changes bytes of its file: two bytes for the place, one for the
// value.
#include "worker/data/jpeg.h"

#include <glog/logging.h>

#include <algorithm>
#include <optional>

#include "tests/fuzz/input.h"
#include "tests/worker/data/jpeg_files.h"
#include "worker/data/resize.h"

namespace catchment {
namespace {

std::string MakeFile(FuzzInput* in) {
  if (in->Byte() < 128) return std::string(in->Rest());
  constexpr JpegKind kKinds[] = {JpegKind::kRgb, JpegKind::kProgressive, JpegKind::kThreeScans,
                                 JpegKind::kGray, JpegKind::kCmyk};
  const JpegKind kind = kKinds[in->Below(5)];
  const int width = static_cast<int>(in->Below(64)) + 1, height = static_cast<int>(in->Below(64)) + 1;
  const int quality = static_cast<int>(in->Below(100)) + 1;
  const int values = kind == JpegKind::kGray ? 1 : kind == JpegKind::kCmyk ? 4 : 3;
  std::vector<uint8_t> pixels(int64_t{width} * height * values);
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] = static_cast<uint8_t>(i * i / 7);
  std::string file = EncodeJpeg(pixels, width, height, kind, quality);
  while (!in->empty()) {
    const uint64_t place = in->Number(2);
    file[place % file.size()] = static_cast<char>(in->Byte());
  }
  return file;
}

void Test(FuzzInput in) {
  constexpr int64_t kSize = 8;
  const std::string file = MakeFile(&in);
  v1::RandomResizedCrop crop;
  crop.set_min_scale(0.08f);
  crop.set_max_scale(1);
  crop.set_min_ratio(0.75f);
  crop.set_max_ratio(4.0f / 3);
  for (const bool center : {true, false}) {
    std::optional<Resizer> resizer;
    int64_t rows = 0, added = 0;
    const absl::Status status = DecodeJpeg(
        file, "x.jpg",
        [&](int64_t width, int64_t height) {
          CHECK_GT(width, 0);
          CHECK_GT(height, 0);
          Random random(file.size());
          resizer.emplace(center ? CenterOf(width, height, kSize + 1, kSize)
                                 : RandomPart(width, height, crop, kSize, &random));
          rows = resizer->rows();
          CHECK_LE(rows, height);
          return rows;
        },
        [&](int64_t y, const uint8_t* rgb) {
          CHECK_EQ(y, added++);
          resizer->AddRow(y, rgb);
        });
    if (!status.ok()) continue;
    CHECK_EQ(added, rows);
    CHECK_EQ(resizer->Finish().size(), size_t{kSize * kSize * 3});
  }
}

}  // namespace
}  // namespace catchment

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  catchment::Test({data, size});
  return 0;
}
