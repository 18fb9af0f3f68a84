// Reads and writes safetensors files with float32 tensors (see safetensors_header.h for the format).
//
// The CRC-32 of each tensor is stored in the metadata, as "crc32.NAME", and verified when the whole tensor is
// read. Files of other programs have none and are read without this check.
// Errors: name the file.
#ifndef CATCHMENT_COMMON_CHECKPOINT_SAFETENSORS_H_
#define CATCHMENT_COMMON_CHECKPOINT_SAFETENSORS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/atomic_file.h"
#include "common/checkpoint/safetensors_header.h"

namespace catchment {

struct TensorView {
  std::string name;
  std::vector<int64_t> shape;
  absl::Span<const float> values;  // row-major
};

// Writes the file atomically (atomic_file.h). InvalidArgument if two tensors have the same name, and for a
// name that the format cannot have (FormatHeader); also if the names and metadata are longer than readers
// accept. Calls `after_part`, which may be empty, each time at most 1 MiB of values has been written, so that
// a background thread can pause.
absl::Status WriteSafetensors(const std::string& path, const std::vector<TensorView>& tensors,
                              const std::map<std::string, std::string>& metadata,
                              const std::function<void()>& after_part = {});

// Writes such a file from values that arrive one after another. Threads: not thread-safe.
class SafetensorsWriter {
 public:
  // Begins a file with the tensors of the header, of which names and shapes are set. Errors: as of
  // WriteSafetensors.
  static absl::StatusOr<std::unique_ptr<SafetensorsWriter>> Create(const std::string& path,
                                                                   SafetensorsHeader header);
  // Appends the next values, in the order of the tensors; not more than they have.
  absl::Status Add(absl::Span<const float> values);
  // Completes the file, to which all values have been added. Without it nothing is written.
  absl::Status Commit();

 private:
  SafetensorsWriter() = default;
  std::string path_;
  SafetensorsHeader header_;
  std::unique_ptr<AtomicFile> file_;
  size_t tensor_ = 0;  // of the next value
  int64_t added_ = 0;  // values of this tensor
  uint32_t checksum_ = 0;
};

// An open file whose header has been checked. Threads: safe.
class SafetensorsFile {
 public:
  // Opens a file. InvalidArgument if it is damaged, truncated or in another format.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);

  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const std::vector<TensorEntry>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // Returns null if there is no such tensor.
  const TensorEntry* Find(const std::string& name) const;

  bool HasChecksum(const TensorEntry& tensor) const;

  // Reads values first .. first+count-1 of tensor `name`, flattened. NotFound if there is no such tensor,
  // OutOfRange if it is shorter, DataLoss if its checksum does not match.
  absl::Status Read(const std::string& name, int64_t first, int64_t count, float* out) const;

  // Reads all tensors that have a checksum. DataLoss, naming the tensor, if one is damaged.
  absl::Status VerifyChecksums() const;

 private:
  SafetensorsFile(std::string path, int file) : path_(std::move(path)), file_(file) {}
  absl::Status ReadHeader();
  absl::Status ReadBytes(int64_t offset, int64_t count, void* out) const;
  absl::Status VerifyChecksum(const TensorEntry& tensor) const;
  absl::Status CompareChecksum(const TensorEntry& tensor, uint32_t found) const;

  const std::string path_;
  const int file_;
  SafetensorsHeader header_;
  absl::flat_hash_map<absl::string_view, const TensorEntry*> by_name_;
  int64_t values_begin_ = 0;  // in the file
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CHECKPOINT_SAFETENSORS_H_
