// A whole file in memory, read only: processes of one machine that map the same file share its pages.
#ifndef CATCHMENT_WORKER_DATA_MAPPED_FILE_H_
#define CATCHMENT_WORKER_DATA_MAPPED_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace catchment {

// Threads: immutable. The file must not become shorter while it is mapped.
class MappedFile {
 public:
  // Errors, each naming the file: those of OpenFile; Internal if the system refuses to map it.
  static absl::StatusOr<std::shared_ptr<const MappedFile>> Open(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Begins at a page. May be empty.
  const char* data() const { return data_; }
  int64_t size() const { return size_; }
  absl::string_view text() const { return {data_, static_cast<size_t>(size_)}; }

 private:
  MappedFile(const char* data, int64_t size) : data_(data), size_(size) {}

  const char* const data_;
  const int64_t size_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_MAPPED_FILE_H_
