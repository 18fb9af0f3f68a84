#include "worker/data/gzip_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/file_access.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

constexpr size_t kLargest = size_t{1} << 30;
constexpr size_t kChunk = size_t{4} << 20;

}  // namespace

void CloseGzip::operator()(gzFile_s* file) const { gzclose(file); }

absl::StatusOr<GzipFile> OpenGzipFile(const std::string& path) {
  ASSIGN_OR_RETURN(const int descriptor, OpenFile(path, O_RDONLY));
  GzipFile file(gzdopen(descriptor, "rb"));
  if (file != nullptr) return file;
  close(descriptor);
  return absl::InternalError(absl::StrCat(path, ": ", std::strerror(ENOMEM)));
}

absl::StatusOr<std::vector<uint8_t>> ReadGzipFile(const std::string& path) {
  ASSIGN_OR_RETURN(const GzipFile file, OpenGzipFile(path));
  std::vector<uint8_t> bytes;
  while (true) {
    const size_t size = bytes.size();
    if (size > kLargest) return absl::InvalidArgumentError(absl::StrCat(path, ": holds more than 1 GiB"));
    bytes.resize(size + kChunk);
    const int got = gzread(file.get(), bytes.data() + size, kChunk);
    int error = Z_OK;
    const char* const text = gzerror(file.get(), &error);
    if (error == Z_ERRNO) return absl::InternalError(absl::StrCat(path, ": ", std::strerror(errno)));
    if (got < 0 || error != Z_OK) {
      return absl::DataLossError(absl::StrCat(path, ": its gzip stream is cut short or damaged: ", text));
    }
    bytes.resize(size + got);
    if (got == 0) return bytes;
  }
}

}  // namespace catchment
