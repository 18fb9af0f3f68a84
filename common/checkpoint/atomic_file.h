// A file that is there as a whole or not at all: written beside its place, synced, and renamed into it.
//
// Errors: name the file, and how many bytes it needs; the unfinished file is removed.
// Threads: one at a time.
#ifndef CATCHMENT_COMMON_CHECKPOINT_ATOMIC_FILE_H_
#define CATCHMENT_COMMON_CHECKPOINT_ATOMIC_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace catchment {

class AtomicFile {
 public:
  // Begins PATH.tmp. `bytes` is what will be written, for messages.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path, int64_t bytes);

  // Without Commit() the file is removed, and what stood at `path` before stays.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  absl::Status Write(const void* data, size_t size);
  // Afterwards the file is at `path`, also after a power failure.
  absl::Status Commit();

 private:
  AtomicFile(std::string path, int64_t bytes, int file);
  absl::Status Failed(int error) const;

  const std::string path_;
  const std::string temporary_;
  const int64_t bytes_;
  int file_;
  bool committed_ = false;
};

// mkdir -p, down to the disk.
absl::Status CreateDirectories(const std::string& path);

// Makes what was created, renamed or deleted in the directory last.
absl::Status SyncDirectory(const std::string& path);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CHECKPOINT_ATOMIC_FILE_H_
