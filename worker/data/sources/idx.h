// Reads IDX files, the format of MNIST: big-endian, 00 00 08 RANK (08: unsigned bytes), then RANK sizes of
// four bytes each, then the values, the last dimension fastest.
//
// Source: http://yann.lecun.com/exdb/mnist/, "the IDX file format".
#ifndef CATCHMENT_WORKER_DATA_SOURCES_IDX_H_
#define CATCHMENT_WORKER_DATA_SOURCES_IDX_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace catchment {

struct IdxArray {
  std::vector<int64_t> dimensions;  // each at least 1
  std::vector<uint8_t> values;
  std::string md5;  // of the whole file, unpacked; 32 hexadecimal digits
};

// Returns "60000x28x28".
std::string DimensionsToString(const std::vector<int64_t>& dimensions);

// Reads a file of unsigned bytes with `rank` dimensions, gzipped or not (its content tells, not its name).
// What is allocated follows what the file holds, not what its header claims.
// Errors, each naming the file: those of OpenFile; Internal if the system refuses to read it;
// InvalidArgument for another format, an empty dimension, or more than 1 GiB of values; DataLoss for a file
// that is cut short, damaged, or has bytes after its values.
absl::StatusOr<IdxArray> ReadIdx(const std::string& path, int rank);

struct LabelledImages {
  IdxArray images;  // N x H x W
  IdxArray labels;  // N
};

// Reads both and checks that they belong together.
// Errors: ReadIdx's; InvalidArgument for different counts, or a label that is not below num_classes.
absl::StatusOr<LabelledImages> ReadLabelledImages(const std::string& images_path,
                                                  const std::string& labels_path, int num_classes);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_SOURCES_IDX_H_
