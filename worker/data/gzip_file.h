// A whole file, unpacked.
#ifndef CATCHMENT_WORKER_DATA_GZIP_FILE_H_
#define CATCHMENT_WORKER_DATA_GZIP_FILE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

struct gzFile_s;

namespace catchment {

struct CloseGzip {
  void operator()(gzFile_s* file) const;
};
using GzipFile = std::unique_ptr<gzFile_s, CloseGzip>;

// Opens a file, gzipped or not (its content tells, not its name), for gzread. Errors: those of OpenFile.
absl::StatusOr<GzipFile> OpenGzipFile(const std::string& path);

// Reads a file, gzipped or not. Errors, each naming the file: those of OpenFile; Internal if the system
// refuses to read it; DataLoss for a gzip stream that is cut short or damaged; InvalidArgument for more than
// 1 GiB.
absl::StatusOr<std::vector<uint8_t>> ReadGzipFile(const std::string& path);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_GZIP_FILE_H_
