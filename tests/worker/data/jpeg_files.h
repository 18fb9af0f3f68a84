// Makes JPEG images for tests and benchmarks, so that no image is kept with the sources.
#ifndef CATCHMENT_TESTS_WORKER_DATA_JPEG_FILES_H_
#define CATCHMENT_TESTS_WORKER_DATA_JPEG_FILES_H_

#include <cstdint>
#include <string>
#include <vector>

namespace catchment {

enum class JpegKind { kRgb, kProgressive, kThreeScans, kGray, kCmyk };

// Returns a JPEG file of width x height pixels, each with 3 values (gray: 1, CMYK: 4, inverted, as Adobe
// writes them). quality: 1 to 100.
std::string EncodeJpeg(const std::vector<uint8_t>& pixels, int width, int height,
                       JpegKind kind = JpegKind::kRgb, int quality = 95);

// Returns the RGB pixels of an image whose class can be recognized: a grating with the class's direction and
// frequency, of random phase and color, with noise.
std::vector<uint8_t> DrawGrating(int label, uint64_t seed, int width, int height);

struct ImageFolderOptions {
  int classes = 3;
  int images = 4;  // of each class
  int min_side = 20, max_side = 60;
  uint64_t seed = 1;
};

// Writes DIRECTORY/class_0000/image_000000.jpg and so on, with sides of random lengths.
void WriteImageFolder(const std::string& directory, const ImageFolderOptions& options);

}  // namespace catchment

#endif  // CATCHMENT_TESTS_WORKER_DATA_JPEG_FILES_H_
