#include <cstring>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/status_macros.h"
#include "worker/data/mapped_file.h"
#include "worker/data/table/formats.h"

namespace catchment {
namespace {

constexpr int64_t kMaxValues = int64_t{1} << 40;

struct NpyArray {
  std::string path;
  std::shared_ptr<const MappedFile> file;
  std::string type;  // 'descr', such as <f4
  std::vector<int64_t> shape;
  const char* values = nullptr;  // not aligned

  int64_t rows() const { return shape[0]; }
  int64_t row_size() const {
    return std::accumulate(shape.begin() + 1, shape.end(), int64_t{1}, std::multiplies<>());
  }
};

absl::Status Bad(const NpyArray& array, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(array.path, ": ", what));
}

// Calls convert(T()) for the type T of the array's values; false for one that is not read.
template <typename F>
bool WithType(absl::string_view type, F&& convert) {
  if (type == "<f4") return convert(float()), true;
  if (type == "<f8") return convert(double()), true;
  if (type == "|u1" || type == "|b1") return convert(uint8_t()), true;
  if (type == "|i1") return convert(int8_t()), true;
  if (type == "<u2") return convert(uint16_t()), true;
  if (type == "<i2") return convert(int16_t()), true;
  if (type == "<u4") return convert(uint32_t()), true;
  if (type == "<i4") return convert(int32_t()), true;
  if (type == "<u8") return convert(uint64_t()), true;
  if (type == "<i8") return convert(int64_t()), true;
  return false;
}

// Calls use(value), with a function that returns value(i) of the array.
template <typename F>
void WithValues(const NpyArray& array, F&& use) {
  WithType(array.type, [&](auto type) {
    use([&array](int64_t i) {
      decltype(type) value;
      std::memcpy(&value, array.values + i * static_cast<int64_t>(sizeof value), sizeof value);
      return static_cast<double>(value);
    });
  });
}

// Returns the text between `key` and `after` in the header's dictionary; "" if they are not found.
absl::string_view Field(absl::string_view header, absl::string_view key, absl::string_view after) {
  const size_t at = header.find(absl::StrCat("'", key, "':"));
  if (at == absl::string_view::npos) return "";
  header.remove_prefix(at + key.size() + 3);
  return absl::StripAsciiWhitespace(header.substr(0, header.find(after)));
}

absl::Status ParseType(absl::string_view header, NpyArray* array) {
  const absl::string_view type = Field(header, "descr", ",");
  array->type = std::string(absl::StripPrefix(absl::StripSuffix(type, "'"), "'"));
  int64_t bytes = 0;
  if (WithType(array->type, [&](auto value) { bytes = sizeof value; })) return absl::OkStatus();
  const bool is_big = absl::StartsWith(array->type, ">");
  return Bad(*array, absl::StrCat("its values are ", array->type, is_big ? ", big-endian" : "",
                                  "; save little-endian float32, "
                                  "float64 or integers, such as array.astype('<f4')"));
}

absl::Status ParseShape(absl::string_view header, NpyArray* array) {
  if (absl::StrContains(header, "'fortran_order': True")) {
    return Bad(*array, "is in Fortran order; save numpy.ascontiguousarray(array)");
  }
  absl::string_view shape = Field(header, "shape", ")");
  if (!absl::ConsumePrefix(&shape, "(")) return Bad(*array, "its header has no shape");
  int64_t values = 1;
  for (absl::string_view text : absl::StrSplit(shape, ',', absl::SkipWhitespace())) {
    int64_t dimension = 0;
    if (!absl::SimpleAtoi(text, &dimension) || dimension < 0 ||
        (dimension > 0 && values > kMaxValues / dimension)) {
      return Bad(*array, absl::StrCat("its shape, (", shape, "), cannot be read"));
    }
    values *= dimension;
    array->shape.push_back(dimension);
  }
  if (array->shape.empty()) return Bad(*array, "is a single number; it must have a row for each sample");
  return values > 0 ? absl::OkStatus() : Bad(*array, "has no rows");
}

// Returns the header in the whole file's text, and the offset of the values in *begin.
absl::StatusOr<absl::string_view> FindHeader(const NpyArray& array, size_t* begin) {
  const absl::string_view text = array.file->text();
  constexpr char kMagic[] = "\x93NUMPY";
  if (!absl::StartsWith(text, kMagic))
    return Bad(array, "is not a NumPy file: it does not begin with \\x93NUMPY");
  const absl::Status cut = absl::DataLossError(absl::StrCat(array.path, ": is cut short in its header"));
  if (text.size() < 10) return cut;
  const int version = static_cast<unsigned char>(text[6]);
  if (version != 1 && version != 2) {
    return Bad(array, absl::StrCat("is of NumPy's format ", version, "; 1 and 2 are read"));
  }
  const size_t prefix = version == 1 ? 10 : 12;
  if (text.size() < prefix) return cut;
  size_t length = 0;
  std::memcpy(&length, text.data() + 8, prefix - 8);
  if (text.size() - prefix < length) return cut;
  *begin = prefix + length;
  return text.substr(prefix, length);
}

absl::StatusOr<NpyArray> Open(const std::string& path) {
  ASSIGN_OR_RETURN(auto file, MappedFile::Open(path));
  NpyArray array;
  array.path = path;
  array.file = std::move(file);
  size_t begin = 0;
  ASSIGN_OR_RETURN(const absl::string_view header, FindHeader(array, &begin));
  RETURN_IF_ERROR(ParseType(header, &array));
  RETURN_IF_ERROR(ParseShape(header, &array));
  array.values = array.file->data() + begin;
  int64_t width = 0;
  WithType(array.type, [&](auto value) { width = sizeof value; });
  const int64_t want = array.rows() * array.row_size() * width;
  const int64_t have = array.file->size() - static_cast<int64_t>(begin);
  if (have == want) return array;
  return absl::DataLossError(absl::StrCat(path, ": is ", have < want ? "cut short" : "too long",
                                          ": its shape, (", absl::StrJoin(array.shape, ", "), "), takes ",
                                          want, " bytes of values, and it has ", have));
}

absl::Status ReadFeatures(const NpyArray& array, const TableSpec& spec, TableRows* rows) {
  const std::string mismatch = DescribeRowMismatch(array.shape, DimensionsOf(spec.shape));
  if (!mismatch.empty()) return Bad(array, mismatch);
  rows->size = array.rows();
  if (array.type == "|u1") {
    rows->bytes = std::shared_ptr<const uint8_t>(array.file, reinterpret_cast<const uint8_t*>(array.values));
    return absl::OkStatus();
  }
  std::vector<float> values;
  values.reserve(rows->size * spec.shape.size());
  absl::Status status;
  WithValues(array, [&](auto value) {
    status = AddFeatures(
        spec, rows->size, value, [&](int64_t i) { return CountedValue(array.path, i, spec.shape.size()); },
        &values);
  });
  rows->floats = Share(std::move(values));
  return status;
}

absl::Status ReadLabels(const NpyArray& array, const NpyArray& features, const TableSpec& spec,
                        TableRows* rows) {
  if (array.rows() != rows->size) {
    return Bad(array, absl::StrCat("has ", array.rows(), " rows, and ", features.path, " ", rows->size,
                                   "; they are not a matching pair"));
  }
  std::vector<double> labels(rows->size * array.row_size());
  WithValues(array, [&](auto value) {
    for (size_t i = 0; i < labels.size(); ++i) labels[i] = value(static_cast<int64_t>(i));
  });
  return AddAllLabels(spec, labels, array.path, rows);
}

}  // namespace

absl::StatusOr<TableRows> ReadNpy(const std::string& path, const TableSpec& spec) {
  const size_t name = path.rfind('/') + 1;  // npos + 1 is 0
  const size_t at = path.find(spec.features, name);
  if (at == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": its name has no \"", spec.features, "\" (data.table.features) to replace by \"", spec.labels,
        "\" (data.table.labels) to find its labels' file; name only files of features, or set both fields"));
  }
  std::string labels_path = path;
  labels_path.replace(at, spec.features.size(), spec.labels);
  ASSIGN_OR_RETURN(const NpyArray features, Open(path));
  ASSIGN_OR_RETURN(const NpyArray labels, Open(labels_path));
  TableRows rows;
  RETURN_IF_ERROR(ReadFeatures(features, spec, &rows));
  RETURN_IF_ERROR(ReadLabels(labels, features, spec, &rows));
  return rows;
}

}  // namespace catchment
