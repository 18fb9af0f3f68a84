// IDX files, gzipped or not: images and their labels.
//
// Input: the images' file with its length, the labels' file.
#include "worker/data/sources/idx.h"

#include <glog/logging.h>

#include "tests/fuzz/input.h"

namespace catchment {
namespace {

void Test(FuzzInput in) {
  const std::string images = WriteFuzzFile("images", in.Text());
  const std::string labels = WriteFuzzFile("labels", in.Rest());
  const absl::StatusOr<IdxArray> array = ReadIdx(images, 3);
  if (array.ok()) {
    int64_t size = 1;
    for (const int64_t dimension : array->dimensions) size *= dimension;
    CHECK_EQ(static_cast<int64_t>(array->values.size()), size);
  }
  const absl::StatusOr<LabelledImages> both = ReadLabelledImages(images, labels, 10);
  if (!both.ok()) return;
  CHECK_EQ(both->images.dimensions[0], both->labels.dimensions[0]);
  for (const uint8_t label : both->labels.values) CHECK_LT(label, 10);
}

}  // namespace
}  // namespace catchment

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  catchment::Test(catchment::FuzzInput(data, size));
  return 0;
}
