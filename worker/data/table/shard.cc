#include <cstddef>
#include <cstring>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/atomic_file.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/safetensors_header.h"
#include "worker/data/mapped_file.h"
#include "worker/data/table/formats.h"

namespace catchment {
namespace {

constexpr char kMagic[] = "CMTSHARD";
constexpr uint32_t kVersion = 1;
constexpr uint32_t kBytes = 0, kFloats = 1;
constexpr uint32_t kClass = 0, kReal = 1;
constexpr int64_t kAlignment = 64;
constexpr int64_t kMaxBytes = int64_t{1} << 50;
constexpr char kRemedy[] = "Pack it again with `catchment pack`";

struct Header {
  char magic[8] = {};
  uint32_t version = kVersion;
  uint32_t value_kind = kBytes;
  uint32_t label_kind = kClass;
  uint32_t label_size = 0;  // classes, or targets
  uint32_t rank = 0;
  uint32_t shape[3] = {1, 1, 1};
  uint64_t rows = 0;
  uint32_t labels_checksum = 0;
  uint32_t checksum = 0;
  char zeros[8] = {};
};
static_assert(sizeof(Header) == kAlignment && offsetof(Header, rows) == 40 &&
              offsetof(Header, checksum) == 52);

uint32_t ChecksumOf(const Header& header) { return Crc32(&header, offsetof(Header, checksum)); }

int64_t RoundUp(int64_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }

// Returns the bytes of a row's values.
int64_t ValueBytes(const Header& header) {
  int64_t bytes = header.value_kind == kBytes ? 1 : sizeof(float);
  for (uint32_t dimension : header.shape) bytes *= dimension;
  return bytes;
}
int64_t LabelBytes(const Header& header) {
  return header.label_kind == kClass ? sizeof(int32_t) : int64_t{header.label_size} * sizeof(float);
}
int64_t LabelsBegin(const Header& header) {
  return RoundUp(kAlignment + static_cast<int64_t>(header.rows) * ValueBytes(header));
}

void SetShape(const SampleShape& shape, Header* header) {
  header->rank = shape.is_vector() ? 1 : shape.is_sequence() ? 2 : 3;
  const int64_t image[3] = {shape.channels, shape.height, shape.width},
                sequence[3] = {shape.channels, shape.width, 1};
  for (int i = 0; i < 3; ++i)
    header->shape[i] = static_cast<uint32_t>((shape.is_sequence() ? sequence : image)[i]);
}

std::string ShapeText(const Header& header) {
  std::string text = absl::StrCat(header.shape[0]);
  for (uint32_t i = 1; i < header.rank; ++i) absl::StrAppend(&text, "x", header.shape[i]);
  return text;
}

std::string LabelText(uint32_t kind, uint32_t size) {
  return kind == kClass ? absl::StrCat(size, " classes") : absl::StrCat(size, " real targets");
}

// Returns true if sizes computed from the header are positive and do not overflow.
bool IsSound(const Header& header) {
  if (header.value_kind > kFloats || header.label_kind > kReal || header.label_size == 0) return false;
  if (header.rank < 1 || header.rank > 3 || header.rows == 0) return false;
  int64_t room = kMaxBytes;
  for (uint32_t dimension : header.shape) room /= std::max(1u, dimension);
  room /= header.value_kind == kBytes ? 1 : sizeof(float);
  const int64_t rows = static_cast<int64_t>(header.rows);
  return rows > 0 && rows <= room && ValueBytes(header) > 0 && rows <= kMaxBytes / LabelBytes(header);
}

absl::StatusOr<Header> ReadHeader(const std::string& path, const MappedFile& file) {
  Header header;
  const bool is_shard = file.size() >= 8 && std::memcmp(file.data(), kMagic, 8) == 0;
  if (!is_shard) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": is not a packed shard: it does not begin with ", kMagic, ". ", kRemedy));
  }
  if (file.size() < kAlignment) {
    return absl::DataLossError(absl::StrCat(path, ": is cut short in its header. ", kRemedy));
  }
  std::memcpy(&header, file.data(), sizeof header);
  if (header.version != kVersion) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is of version ", header.version,
                                                   ", and this program reads ", kVersion, ". ", kRemedy));
  }
  if (header.checksum != ChecksumOf(header) || !IsSound(header)) {
    return absl::DataLossError(absl::StrCat(path, ": its header is damaged. ", kRemedy));
  }
  return header;
}

absl::Status CheckSize(const std::string& path, const MappedFile& file, const Header& header) {
  const int64_t want = LabelsBegin(header) + static_cast<int64_t>(header.rows) * LabelBytes(header);
  if (file.size() == want) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path, ": is ", file.size() < want ? "cut short" : "too long",
                                          ": its ", header.rows, " rows take ", want, " bytes, and it has ",
                                          file.size(), ". ", kRemedy));
}

absl::Status CheckSpec(const std::string& path, const Header& header, const TableSpec& spec) {
  Header wanted;
  SetShape(spec.shape, &wanted);
  if (header.rank != wanted.rank || std::memcmp(header.shape, wanted.shape, sizeof wanted.shape) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": its samples are ", ShapeText(header),
                                                   ", and data.table.shape is ", ShapeText(wanted)));
  }
  wanted.label_kind = spec.target.is_real() ? kReal : kClass;
  wanted.label_size = spec.target.is_real() ? spec.target.reals : spec.target.classes;
  if (header.label_kind == wanted.label_kind && header.label_size == wanted.label_size)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": has ", LabelText(header.label_kind, header.label_size), ", and data.table ",
                   LabelText(wanted.label_kind, wanted.label_size)));
}

template <typename T>
std::vector<T> CopyLabels(const char* begin, int64_t count) {
  std::vector<T> labels(count);
  if (count > 0) std::memcpy(labels.data(), begin, count * sizeof(T));
  return labels;
}

absl::Status ReadLabels(const std::string& path, const MappedFile& file, const Header& header,
                        const TableSpec& spec, TableRows* rows) {
  const char* const begin = file.data() + LabelsBegin(header);
  if (Crc32(begin, rows->size * LabelBytes(header)) != header.labels_checksum) {
    return absl::DataLossError(absl::StrCat(path, ": its labels are damaged. ", kRemedy));
  }
  const bool real = header.label_kind == kReal;
  const int64_t width = real ? header.label_size : 1;
  const auto labels = CopyLabels<int32_t>(begin, real ? 0 : rows->size);
  const auto targets = CopyLabels<float>(begin, real ? rows->size * width : 0);
  std::vector<double> columns(width);
  for (int64_t row = 0; row < rows->size; ++row) {
    for (int64_t i = 0; i < width; ++i) columns[i] = real ? targets[row * width + i] : labels[row];
    RETURN_IF_ERROR(AddLabels(
        spec, columns, row, [&](int64_t at) { return CountedRow(path, at); }, rows));
  }
  return absl::OkStatus();
}

Header HeaderOf(const Dataset& data, int64_t begin, int64_t end, PackedValues packed) {
  Header header;
  std::memcpy(header.magic, kMagic, sizeof header.magic);
  header.label_kind = data.target().is_real() ? kReal : kClass;
  header.label_size = data.target().is_real() ? data.target().reals : data.target().classes;
  SetShape(data.input_shape(), &header);
  header.rows = end - begin;
  for (int64_t i = begin; i < end; ++i) {
    if (packed == PackedValues::kAsRead || data.content()->bytes(i) == nullptr) header.value_kind = kFloats;
  }
  return header;
}

std::vector<char> LabelsOf(const Dataset& data, const Header& header, int64_t begin, int64_t end) {
  std::vector<char> labels((end - begin) * LabelBytes(header));
  char* out = labels.data();
  for (int64_t i = begin; i < end; ++i, out += LabelBytes(header)) {
    const int32_t label = header.label_kind == kClass ? data.label(i) : 0;
    if (header.label_kind == kReal) data.CopyTargets(i, reinterpret_cast<float*>(out));
    if (header.label_kind == kClass) std::memcpy(out, &label, sizeof label);
  }
  return labels;
}

absl::Status WriteValues(const std::string& path, const Dataset& data, const Header& header, int64_t begin,
                         int64_t end, PackedValues packed, AtomicFile* file) {
  const int64_t size = data.input_shape().size();
  std::vector<float> converted(size);
  for (int64_t i = begin; i < end; ++i) {
    const uint8_t* const bytes = data.content()->bytes(i);
    const float* floats = data.content()->floats(i);
    if (packed == PackedValues::kAsRead) {
      data.CopyInput(i, converted.data());
      floats = converted.data();
    } else if (bytes != nullptr && header.value_kind == kFloats) {
      std::copy_n(bytes, size, converted.begin());
      floats = converted.data();
    }
    if (header.value_kind == kFloats) {
      RETURN_IF_ERROR(CheckFinite({floats, static_cast<size_t>(size)}, size,
                                  [&](int64_t) { return CountedRow(path, i - begin); }));
    }
    const void* const values = header.value_kind == kFloats ? static_cast<const void*>(floats) : bytes;
    RETURN_IF_ERROR(file->Write(values, ValueBytes(header)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TableRows> ReadShard(const std::string& path, const TableSpec& spec) {
  ASSIGN_OR_RETURN(const auto file, MappedFile::Open(path));
  ASSIGN_OR_RETURN(const Header header, ReadHeader(path, *file));
  RETURN_IF_ERROR(CheckSize(path, *file, header));
  RETURN_IF_ERROR(CheckSpec(path, header, spec));
  TableRows rows;
  rows.size = static_cast<int64_t>(header.rows);
  rows.mapped = true;
  RETURN_IF_ERROR(ReadLabels(path, *file, header, spec, &rows));
  const char* const values = file->data() + kAlignment;
  if (header.value_kind == kBytes) {
    rows.bytes = {file, reinterpret_cast<const uint8_t*>(values)};
  } else {
    rows.floats = {file, reinterpret_cast<const float*>(values)};
  }
  return rows;
}

absl::Status WriteShard(const std::string& path, const Dataset& data, int64_t begin, int64_t end,
                        PackedValues packed) {
  Header header = HeaderOf(data, begin, end, packed);
  const std::vector<char> labels = LabelsOf(data, header, begin, end);
  header.labels_checksum = Crc32(labels.data(), labels.size());
  header.checksum = ChecksumOf(header);
  const int64_t labels_begin = LabelsBegin(header);
  ASSIGN_OR_RETURN(const auto file,
                   AtomicFile::Create(path, labels_begin + static_cast<int64_t>(labels.size())));
  absl::Status status = file->Write(&header, sizeof header);
  if (status.ok()) status = WriteValues(path, data, header, begin, end, packed, file.get());
  const std::vector<char> padding(labels_begin - kAlignment - (end - begin) * ValueBytes(header));
  if (status.ok()) status = file->Write(padding.data(), padding.size());
  if (status.ok()) status = file->Write(labels.data(), labels.size());
  return status.ok() ? file->Commit() : status;
}

}  // namespace catchment
