// A file that is written atomically: to a temporary file, which is synced and then renamed.
//
// Errors: name the file and the number of bytes that it needs. The temporary file is removed.
// Threads: not thread-safe.
#ifndef CATCHMENT_COMMON_BASE_ATOMIC_FILE_H_
#define CATCHMENT_COMMON_BASE_ATOMIC_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace catchment {

class AtomicFile {
 public:
  // Creates the temporary file, PATH.ID.tmp with a random ID of each file, so that others who may write to
  // the directory cannot put a link there first. `bytes` is the number of bytes to be written, for messages.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> Create(const std::string& path, int64_t bytes);
  // For tests: the path of the temporary file is `temporary`. It must not exist, not even as a link.
  static absl::StatusOr<std::unique_ptr<AtomicFile>> CreateAt(const std::string& path,
                                                              const std::string& temporary, int64_t bytes);

  // Without Commit(), removes the temporary file and leaves `path` unchanged.
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  absl::Status Write(const void* data, size_t size);
  // Replaces bytes that were written, from `offset` on.
  absl::Status WriteAt(const void* data, size_t size, int64_t offset);
  // Renames the file to `path`. Afterwards it survives a power failure.
  absl::Status Commit();

 private:
  AtomicFile(std::string path, std::string temporary, int64_t bytes, int file);
  absl::Status Failed(int error) const;

  const std::string path_;
  const std::string temporary_;
  const int64_t bytes_;
  int file_;
  int64_t end_ = 0;  // of the bytes that were written
  bool committed_ = false;
};

// Writes a file with this text.
absl::Status WriteAtomically(const std::string& path, const std::string& text);

// Writes a file with the content of `from`.
absl::Status CopyAtomically(const std::string& from, const std::string& path);

// Deletes the temporary files in `directory` of processes that were killed. Must be called by the only
// process that writes there.
void RemoveTemporaries(const std::string& directory);

// Creates the directory and its parents, and syncs them to disk.
absl::Status CreateDirectories(const std::string& path);

// Syncs the directory, so that creations, renames and deletions in it survive a power failure.
absl::Status SyncDirectory(const std::string& path);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_ATOMIC_FILE_H_
