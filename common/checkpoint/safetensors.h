// Tensors in files that others read: safetensors, in float32 (format and source: safetensors_header.h).
//
// Each tensor's CRC-32 is kept in the metadata, under "crc32.NAME", and checked when the whole tensor is
// read. Files of others have none, and are read without that check.
// Errors: name the file.
#ifndef CATCHMENT_COMMON_CHECKPOINT_SAFETENSORS_H_
#define CATCHMENT_COMMON_CHECKPOINT_SAFETENSORS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/checkpoint/safetensors_header.h"

namespace catchment {

struct TensorView {
  std::string name;
  std::vector<int64_t> shape;
  absl::Span<const float> values;  // row-major; as many as the shape says
};

// The file appears at `path` as a whole, on disk (atomic_file.h), or not at all. InvalidArgument when the
// names and metadata are longer than readers accept. Calls `after_part` (may be empty) each time that at most 1 MiB
// of values has been checksummed or written, so that a caller in the background can rest.
absl::Status WriteSafetensors(const std::string& path, const std::vector<TensorView>& tensors,
                              const std::map<std::string, std::string>& metadata,
                              const std::function<void()>& after_part = {});

// An open file, its header checked. Threads: any number at a time.
class SafetensorsFile {
 public:
  // InvalidArgument for a file that is damaged, cut short or of another format.
  static absl::StatusOr<std::unique_ptr<SafetensorsFile>> Open(const std::string& path);

  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  const std::string& path() const { return path_; }
  const std::vector<TensorEntry>& tensors() const { return header_.tensors; }
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }
  // Null when there is none.
  const TensorEntry* Find(const std::string& name) const;

  bool HasChecksum(const TensorEntry& tensor) const;

  // Values first .. first+count-1 of tensor `name`, flat. NotFound when there is no such tensor, OutOfRange
  // when it is shorter, DataLoss when its checksum is another.
  absl::Status Read(const std::string& name, int64_t first, int64_t count, float* out) const;

  // Reads all that has a checksum. DataLoss naming the tensor that is damaged.
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
  int64_t values_begin_ = 0;  // in the file
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CHECKPOINT_SAFETENSORS_H_
