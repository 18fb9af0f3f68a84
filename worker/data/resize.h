// Parts of images and their resizing, as torchvision does them with Pillow: bilinear with antialiasing, in
// integers, so that every processor computes the same values.
//
// Units: pixels. Threads: an object is for one thread; the functions are pure.
#ifndef CATCHMENT_WORKER_DATA_RESIZE_H_
#define CATCHMENT_WORKER_DATA_RESIZE_H_

#include <cstdint>
#include <vector>

#include "common/base/random.h"
#include "proto/job.pb.h"

namespace catchment {

// One direction: pixels begin .. begin + length-1 of the image are resized to `resized` pixels, of which
// first .. first + size-1 are the sample.
struct ResizedRange {
  int64_t begin = 0;
  int64_t length = 0;
  int64_t resized = 0;
  int64_t first = 0;
  int64_t size = 0;
};

struct ResizedPart {
  ResizedRange x;
  ResizedRange y;
};

// Returns the center: the shorter side is resized to `resize`, and the middle size x size is the sample
// (torchvision's Resize and CenterCrop).
ResizedPart CenterOf(int64_t width, int64_t height, int64_t resize, int64_t size);

// Returns a random part, resized to size x size (torchvision's RandomResizedCrop).
ResizedPart RandomPart(int64_t width, int64_t height, const v1::RandomResizedCrop& crop, int64_t size,
                       Random* random);

// Resizes a part of an image whose rows are added from the top.
class Resizer {
 public:
  explicit Resizer(const ResizedPart& part);

  // Returns the number of rows, from the top of the image, that the part depends on.
  int64_t rows() const { return vertical_.end; }
  // Adds row y of the image, red, green and blue of each pixel.
  void AddRow(int64_t y, const uint8_t* rgb);
  // Returns the part, height x width x 3 values, once all rows have been added.
  std::vector<uint8_t> Finish() const;

 private:
  // The weights of each pixel of a direction: those of `taps` pixels of the image from `begins[i]`, of which
  // the last ones may be 0.
  struct Weights {
    explicit Weights(const ResizedRange& range);
    int64_t taps = 0;
    std::vector<int64_t> begins;  // in the image
    std::vector<int32_t> values;  // as many as `taps` for each pixel
    int64_t begin = 0, end = 0;   // of the pixels of the image that have weights
  };

  const Weights horizontal_, vertical_;
  std::vector<uint8_t> rows_;  // resized horizontally
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_RESIZE_H_
