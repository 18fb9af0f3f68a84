// A whole file in memory, read only: processes of one machine that map the same file share its pages.
#ifndef CATCHMENT_WORKER_DATA_MAPPED_FILE_H_
#define CATCHMENT_WORKER_DATA_MAPPED_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace catchment {

// Threads: immutable. Where a part is read that the file no longer has, the process ends with exit code 1 and
// a line on standard error that names the file (a handler of SIGBUS).
class MappedFile {
 public:
  struct Entry;  // of the list of all mapped files

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
  MappedFile(const std::string& path, const char* data, int64_t size);

  const char* const data_;
  const int64_t size_;
  Entry* const entry_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_MAPPED_FILE_H_
