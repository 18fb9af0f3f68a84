#include "worker/data/gzip_file.h"

#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace catchment {
namespace {

constexpr size_t kLargest = size_t{1} << 30;
constexpr size_t kChunk = size_t{4} << 20;

struct CloseGz {
  void operator()(gzFile_s* file) const { gzclose(file); }
};

}  // namespace

absl::StatusOr<std::vector<uint8_t>> ReadGzipFile(const std::string& path) {
  errno = 0;
  const std::unique_ptr<gzFile_s, CloseGz> file(gzopen(path.c_str(), "rb"));
  if (file == nullptr) {
    const std::string message = absl::StrCat(path, ": ", std::strerror(errno == 0 ? ENOMEM : errno));
    return errno == ENOENT ? absl::NotFoundError(message) : absl::InternalError(message);
  }
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
