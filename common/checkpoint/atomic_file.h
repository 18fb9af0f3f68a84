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
  // Begins TemporaryPath(path). `bytes` is what will be written, for messages.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path, int64_t bytes);

  // Returns where a file is while it is written: PATH.ID.tmp, where ID is a random one of this process. No
  // other process writes there.
  static std::string TemporaryPath(const std::string& path);

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

// Deletes files in `directory` that processes which were killed had begun (AtomicFile::TemporaryPath). To be
// called by the only process that writes there.
void RemoveTemporaries(const std::string& directory);

// mkdir -p, down to the disk.
absl::Status CreateDirectories(const std::string& path);

// Makes what was created, renamed or deleted in the directory last.
absl::Status SyncDirectory(const std::string& path);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CHECKPOINT_ATOMIC_FILE_H_
