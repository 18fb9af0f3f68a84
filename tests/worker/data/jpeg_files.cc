#include "tests/worker/data/jpeg_files.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

// After <cstdio>, whose FILE and size_t it needs.
#include <jpeglib.h>

#include "absl/strings/str_format.h"
#include "common/base/random.h"
#include "glog/logging.h"

namespace catchment {

std::string EncodeJpeg(const std::vector<uint8_t>& pixels, int width, int height, JpegKind kind,
                       int quality) {
  const int values = kind == JpegKind::kGray ? 1 : kind == JpegKind::kCmyk ? 4 : 3;
  CHECK_EQ(static_cast<int64_t>(pixels.size()), int64_t{width} * height * values);
  jpeg_compress_struct info = {};
  jpeg_error_mgr errors;
  info.err = jpeg_std_error(&errors);  // ends the process after an error
  jpeg_create_compress(&info);
  unsigned char* file = nullptr;
  unsigned long size = 0;  // NOLINT(google-runtime-int): libjpeg's
  jpeg_mem_dest(&info, &file, &size);
  info.image_width = width;
  info.image_height = height;
  info.input_components = values;
  info.in_color_space = values == 1 ? JCS_GRAYSCALE : values == 4 ? JCS_CMYK : JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  if (kind == JpegKind::kProgressive) jpeg_simple_progression(&info);
  const jpeg_scan_info scans[] = {{1, {0}, 0, 63, 0, 0}, {1, {1}, 0, 63, 0, 0}, {1, {2}, 0, 63, 0, 0}};
  if (kind == JpegKind::kThreeScans) {
    info.scan_info = scans;
    info.num_scans = 3;
  }
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<unsigned char*>(pixels.data()) + size_t{info.next_scanline} * width * values;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::string text(reinterpret_cast<const char*>(file), size);
  std::free(file);
  return text;
}

std::vector<uint8_t> DrawGrating(int label, uint64_t seed, int width, int height) {
  Random random(Derive(seed, label));
  const double u = 1 + label % 4, v = label / 4, phase = random.Uniform(0, 6.28);
  double tints[3];
  for (double& tint : tints) tint = random.Uniform(30, 90);
  std::vector<uint8_t> pixels;
  pixels.reserve(size_t{3} * width * height);
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      const double wave = std::cos(phase + 6.28 * (u * x / width + v * y / height));
      for (const double tint : tints) {
        const double value = 128 + tint * wave + random.Uniform(-16, 16);
        pixels.push_back(static_cast<uint8_t>(std::clamp(value, 0.0, 255.0)));
      }
    }
  }
  return pixels;
}

void WriteImageFolder(const std::string& directory, const ImageFolderOptions& options) {
  for (int label = 0; label < options.classes; ++label) {
    const std::string folder = absl::StrFormat("%s/class_%04d", directory, label);
    std::filesystem::create_directories(folder);
    for (int i = 0; i < options.images; ++i) {
      const uint64_t seed = Derive(Derive(options.seed, label), i);
      Random random(seed);
      const auto side = [&] {
        return options.min_side + static_cast<int>(random.Below(options.max_side - options.min_side + 1));
      };
      const int width = side(), height = side();
      std::ofstream file(absl::StrFormat("%s/image_%06d.jpg", folder, i), std::ios::binary);
      file << EncodeJpeg(DrawGrating(label, seed, width, height), width, height, JpegKind::kRgb, 90);
      CHECK(file.flush()) << folder;
    }
  }
}

}  // namespace catchment
