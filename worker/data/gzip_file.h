// A whole file, unpacked.
#ifndef CATCHMENT_WORKER_DATA_GZIP_FILE_H_
#define CATCHMENT_WORKER_DATA_GZIP_FILE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace catchment {

// Reads a file, gzipped or not (its content tells, not its name).
// Errors, each naming the file: NotFound; Internal where the system refuses to read it; DataLoss for a gzip
// stream that is cut short or damaged; InvalidArgument for more than 1 GiB.
absl::StatusOr<std::vector<uint8_t>> ReadGzipFile(const std::string& path);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_GZIP_FILE_H_
