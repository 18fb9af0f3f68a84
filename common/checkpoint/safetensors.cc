#include "common/checkpoint/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/atomic_file.h"
#include "common/base/file_access.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/safetensors_header.h"
#include "glog/logging.h"

namespace catchment {
namespace {

static_assert(std::endian::native == std::endian::little,
              "lengths and values are written as they are in memory");

constexpr int64_t kValueBytes = sizeof(float);
constexpr int64_t kLengthBytes = sizeof(uint64_t);
constexpr size_t kPartValues = (1 << 20) / kValueBytes;

std::string ChecksumKey(const std::string& tensor) { return "crc32." + tensor; }

int64_t SizeOf(const std::vector<int64_t>& shape) {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

absl::Status At(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat(path, ": ", status.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsWriter>> SafetensorsWriter::Create(const std::string& path,
                                                                             SafetensorsHeader header) {
  int64_t bytes = 0;
  for (TensorEntry& tensor : header.tensors) {
    tensor.begin = bytes;
    tensor.size = SizeOf(tensor.shape);
    bytes += tensor.size * kValueBytes;
    // Replaced by Commit; the header keeps its length.
    header.metadata[ChecksumKey(tensor.name)] = ChecksumText(0);
  }
  std::unique_ptr<SafetensorsWriter> writer(new SafetensorsWriter);
  writer->path_ = path;
  writer->header_ = std::move(header);
  const absl::StatusOr<std::string> text = FormatHeader(writer->header_);
  if (!text.ok())
    return absl::InvalidArgumentError(absl::StrCat("cannot write ", path, ": ", text.status().message()));
  if (text->size() > kMaxHeaderBytes) {
    return absl::InvalidArgumentError(absl::StrCat("cannot write ", path, ": its header takes ", text->size(),
                                                   " bytes, but readers accept at most ", kMaxHeaderBytes));
  }
  bytes += kLengthBytes + static_cast<int64_t>(text->size());
  ASSIGN_OR_RETURN(writer->file_, AtomicFile::Create(path, bytes));
  const uint64_t length = text->size();
  RETURN_IF_ERROR(writer->file_->Write(&length, sizeof(length)));
  RETURN_IF_ERROR(writer->file_->Write(text->data(), text->size()));
  return writer;
}

absl::Status SafetensorsWriter::Add(absl::Span<const float> values) {
  RETURN_IF_ERROR(file_->Write(values.data(), values.size() * kValueBytes));
  while (!values.empty()) {
    CHECK_LT(tensor_, header_.tensors.size()) << path_ << ": more values than its tensors have";
    const TensorEntry& tensor = header_.tensors[tensor_];
    const auto part = values.first(std::min<int64_t>(values.size(), tensor.size - added_));
    checksum_ = Crc32(part.data(), part.size() * kValueBytes, checksum_);
    added_ += static_cast<int64_t>(part.size());
    values.remove_prefix(part.size());
    if (added_ < tensor.size) break;
    header_.metadata[ChecksumKey(tensor.name)] = ChecksumText(std::exchange(checksum_, 0));
    added_ = 0;
    ++tensor_;
  }
  return absl::OkStatus();
}

absl::Status SafetensorsWriter::Commit() {
  while (tensor_ < header_.tensors.size() && header_.tensors[tensor_].size == 0) ++tensor_;
  CHECK_EQ(tensor_, header_.tensors.size()) << path_ << ": fewer values than its tensors have";
  ASSIGN_OR_RETURN(const std::string text, FormatHeader(header_));
  RETURN_IF_ERROR(file_->WriteAt(text.data(), text.size(), kLengthBytes));
  return file_->Commit();
}

absl::Status WriteSafetensors(const std::string& path, const std::vector<TensorView>& tensors,
                              const std::map<std::string, std::string>& metadata,
                              const std::function<void()>& after_part) {
  SafetensorsHeader header{{}, metadata};
  for (const TensorView& tensor : tensors) header.tensors.push_back({tensor.name, tensor.shape});
  ASSIGN_OR_RETURN(const auto file, SafetensorsWriter::Create(path, std::move(header)));
  for (const TensorView& tensor : tensors) {
    CHECK_EQ(SizeOf(tensor.shape), std::ssize(tensor.values))
        << tensor.name << " has a number of values that does not match its shape";
    for (size_t begin = 0; begin < tensor.values.size(); begin += kPartValues) {
      RETURN_IF_ERROR(file->Add(tensor.values.subspan(begin, kPartValues)));
      if (after_part) after_part();
    }
  }
  return file->Commit();
}

absl::StatusOr<std::unique_ptr<SafetensorsFile>> SafetensorsFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(const int descriptor, OpenFile(path, O_RDONLY));
  std::unique_ptr<SafetensorsFile> file(new SafetensorsFile(path, descriptor));
  RETURN_IF_ERROR(file->ReadHeader());
  return file;
}

SafetensorsFile::~SafetensorsFile() { close(file_); }

absl::Status SafetensorsFile::ReadHeader() {
  struct stat info;
  if (fstat(file_, &info) != 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path_));
  const int64_t file_bytes = info.st_size;
  const auto wrong = [&](const auto&... what) {
    return absl::InvalidArgumentError(absl::StrCat(path_, ": ", what...));
  };
  if (file_bytes < kLengthBytes) {
    return wrong("has ", file_bytes, " bytes; it is truncated, or not a safetensors file");
  }
  uint64_t length;
  RETURN_IF_ERROR(ReadBytes(0, sizeof(length), &length));
  if (length > static_cast<uint64_t>(std::min<int64_t>(kMaxHeaderBytes, file_bytes - kLengthBytes))) {
    return wrong("its header would need ", length, " bytes, but the file has ", file_bytes,
                 "; it is truncated, or not a safetensors file");
  }
  std::string text(length, '\0');
  RETURN_IF_ERROR(ReadBytes(kLengthBytes, length, text.data()));
  values_begin_ = kLengthBytes + static_cast<int64_t>(length);
  auto header = ParseHeader(text, file_bytes - values_begin_);
  if (!header.ok()) return At(path_, header.status());
  header_ = *std::move(header);
  for (const TensorEntry& tensor : header_.tensors) by_name_.emplace(tensor.name, &tensor);
  return absl::OkStatus();
}

const TensorEntry* SafetensorsFile::Find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : found->second;
}

bool SafetensorsFile::HasChecksum(const TensorEntry& tensor) const {
  return metadata().count(ChecksumKey(tensor.name)) > 0;
}

absl::Status SafetensorsFile::Read(const std::string& name, int64_t first, int64_t count, float* out) const {
  const TensorEntry* tensor = Find(name);
  if (!tensor) {
    const auto append_name = [](std::string* text, const TensorEntry& entry) { text->append(entry.name); };
    return absl::NotFoundError(absl::StrCat(path_, ": has no tensor \"", name, "\"; it has ",
                                            absl::StrJoin(tensors(), ", ", append_name)));
  }
  if (first < 0 || count < 0 || first > tensor->size || count > tensor->size - first) {
    return absl::OutOfRangeError(absl::StrCat(path_, ": tensor \"", name, "\" has ", tensor->size,
                                              " values; ", count, " from ", first, " on were requested"));
  }
  const absl::Status status =
      ReadBytes(values_begin_ + tensor->begin + first * kValueBytes, count * kValueBytes, out);
  if (!status.ok() || count < tensor->size) return status;
  return CompareChecksum(*tensor, Crc32(out, count * kValueBytes));
}

absl::Status SafetensorsFile::VerifyChecksums() const {
  for (const TensorEntry& tensor : tensors()) {
    RETURN_IF_ERROR(VerifyChecksum(tensor));
  }
  return absl::OkStatus();
}

absl::Status SafetensorsFile::VerifyChecksum(const TensorEntry& tensor) const {
  if (!HasChecksum(tensor)) return absl::OkStatus();
  std::vector<char> buffer(std::min<int64_t>(tensor.size * kValueBytes, 1 << 20));
  uint32_t checksum = 0;
  for (int64_t done = 0; done < tensor.size * kValueBytes;) {
    const int64_t count = std::min<int64_t>(buffer.size(), tensor.size * kValueBytes - done);
    RETURN_IF_ERROR(ReadBytes(values_begin_ + tensor.begin + done, count, buffer.data()));
    checksum = Crc32(buffer.data(), count, checksum);
    done += count;
  }
  return CompareChecksum(tensor, checksum);
}

absl::Status SafetensorsFile::CompareChecksum(const TensorEntry& tensor, uint32_t found) const {
  const auto expected = metadata().find(ChecksumKey(tensor.name));
  if (expected == metadata().end() || expected->second == ChecksumText(found)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path_, ": tensor \"", tensor.name, "\" is damaged: its CRC-32 is ",
                                          ChecksumText(found), ", expected ", expected->second));
}

absl::Status SafetensorsFile::ReadBytes(int64_t offset, int64_t count, void* out) const {
  char* next = static_cast<char*>(out);
  while (count > 0) {
    const ssize_t got = pread(file_, next, std::min<int64_t>(count, int64_t{1} << 30), offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read ", path_));
    if (got == 0) return absl::DataLossError(absl::StrCat(path_, ": was truncated while it was read"));
    next += got;
    offset += got;
    count -= got;
  }
  return absl::OkStatus();
}

}  // namespace catchment
