#include <hdf5/serial/hdf5.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "worker/data/table/formats.h"

namespace catchment {
namespace {

// Long doubles are the largest numbers that the library converts.
constexpr size_t kMostValueBytes = 16;
// Bytes that a stored byte can become: 1,032 with DEFLATE, fewer with other filters.
constexpr double kMostUnpacked = 1100;

// Closes what HDF5 opened.
class Handle {
 public:
  Handle(hid_t id, herr_t (*close)(hid_t)) : id_(id), close_(close) {}
  Handle(Handle&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  ~Handle() {
    if (id_ >= 0) close_(id_);
  }
  bool ok() const { return id_ >= 0; }
  hid_t id() const { return id_; }

 private:
  hid_t id_;
  herr_t (*close_)(hid_t);
};

// The innermost message of the library's last error.
std::string LastError() {
  std::string text;
  const auto take = [](unsigned n, const H5E_error2_t* error, void* out) -> herr_t {
    if (n == 0 && error->desc != nullptr) *static_cast<std::string*>(out) = error->desc;
    return 0;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take, &text);
  return text;
}

struct DataSet {
  std::string path;  // of the file
  std::string name;
  Handle set;
  Handle type;
  std::vector<hsize_t> shape;

  std::string ToString() const { return absl::StrCat(path, ": data set \"", name, "\""); }
  int64_t rows() const { return static_cast<int64_t>(shape[0]); }
  int64_t row_size() const {
    return static_cast<int64_t>(
        std::accumulate(shape.begin() + 1, shape.end(), hsize_t{1}, std::multiplies<>()));
  }
  bool is_bytes() const {
    return H5Tget_class(type.id()) == H5T_INTEGER && H5Tget_size(type.id()) == 1 &&
           H5Tget_sign(type.id()) == H5T_SGN_NONE;
  }
};

absl::Status Bad(const DataSet& data, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(data.ToString(), " ", what));
}

// Checks that the values take no more memory than what is stored of them can hold, so that a damaged file cannot
// make the library or the reader allocate what its header claims.
absl::Status CheckSize(const DataSet& data) {
  const size_t value_bytes = H5Tget_size(data.type.id());
  if (value_bytes > kMostValueBytes) {
    return Bad(data, absl::StrCat("holds numbers of ", value_bytes, " bytes; at most ", kMostValueBytes,
                                  " can be read"));
  }
  auto bytes = static_cast<double>(value_bytes);
  for (const hsize_t dimension : data.shape) bytes *= static_cast<double>(dimension);
  const Handle layout(H5Dget_create_plist(data.set.id()), H5Pclose);
  if (H5Pget_layout(layout.id()) == H5D_CHUNKED) {
    std::vector<hsize_t> chunk(data.shape.size());
    if (H5Pget_chunk(layout.id(), static_cast<int>(chunk.size()), chunk.data()) < 0) {
      return Bad(data, "has chunks of another number of dimensions");
    }
    auto chunk_bytes = static_cast<double>(value_bytes);
    for (const hsize_t dimension : chunk) chunk_bytes *= static_cast<double>(dimension);
    bytes = std::max(bytes, chunk_bytes);
  }
  const hsize_t stored = H5Dget_storage_size(data.set.id());
  if (bytes <= kMostUnpacked * static_cast<double>(stored)) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(data.ToString(), " is damaged: its ",
                                          absl::StrJoin(data.shape, " x "), " values do not fit in the ",
                                          stored, " bytes that are stored of them"));
}

absl::StatusOr<DataSet> Find(const std::string& path, hid_t file, const std::string& name) {
  if (H5Lexists(file, name.c_str(), H5P_DEFAULT) <= 0) {
    return absl::NotFoundError(absl::StrCat(path, ": has no data set \"", name,
                                            "\"; data.table.features and data.table.labels name them"));
  }
  Handle set(H5Dopen2(file, name.c_str(), H5P_DEFAULT), H5Dclose);
  if (!set.ok()) return absl::InvalidArgumentError(absl::StrCat(path, ": \"", name, "\" is no data set"));
  DataSet data = {path, name, std::move(set), Handle(-1, H5Tclose), {}};
  Handle type(H5Dget_type(data.set.id()), H5Tclose);
  const H5T_class_t kind = H5Tget_class(type.id());
  if (kind != H5T_INTEGER && kind != H5T_FLOAT) return Bad(data, "holds neither integers nor floats");
  const Handle space(H5Dget_space(data.set.id()), H5Sclose);
  const int rank = H5Sget_simple_extent_ndims(space.id());
  if (rank < 1) return Bad(data, "has no dimension; it must have a row for each sample");
  std::vector<hsize_t> shape(rank);
  H5Sget_simple_extent_dims(space.id(), shape.data(), nullptr);
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return Bad(data, "has no rows");
  DataSet found = {path, name, std::move(data.set), std::move(type), std::move(shape)};
  if (absl::Status status = CheckSize(found); !status.ok()) return status;
  return found;
}

template <typename T>
absl::StatusOr<std::vector<T>> ReadAll(const DataSet& data, hid_t type) {
  std::vector<T> values(data.rows() * data.row_size());
  if (H5Dread(data.set.id(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values.data()) >= 0) return values;
  return absl::DataLossError(absl::StrCat(data.ToString(),
                                          " cannot be read, it is damaged or packed by a filter "
                                          "that this HDF5 does not have: ",
                                          LastError()));
}

absl::Status ReadFeatures(const DataSet& data, const TableSpec& spec, TableRows* rows) {
  if (data.row_size() != spec.shape.size()) {
    return Bad(data, absl::StrCat("is ", absl::StrJoin(data.shape, " x "), ", rows of ", data.row_size(),
                                  " values; data.table.shape, ", ToString(spec.shape), ", makes ",
                                  spec.shape.size()));
  }
  rows->size = data.rows();
  if (data.is_bytes()) {
    auto bytes = ReadAll<uint8_t>(data, H5T_NATIVE_UINT8);
    if (!bytes.ok()) return bytes.status();
    rows->bytes = Share(*std::move(bytes));
    return absl::OkStatus();
  }
  auto values = ReadAll<float>(data, H5T_NATIVE_FLOAT);
  if (!values.ok()) return values.status();
  const absl::Status finite =
      CheckFinite(*values, spec.shape.size(), [&](int64_t row) { return CountedRow(data.ToString(), row); });
  rows->floats = Share(*std::move(values));
  return finite;
}

absl::Status ReadLabels(const DataSet& data, const DataSet& features, const TableSpec& spec,
                        TableRows* rows) {
  if (data.rows() != rows->size) {
    return Bad(data, absl::StrCat("has ", data.rows(), " rows, and \"", features.name, "\" ", rows->size,
                                  "; they do not belong together"));
  }
  const auto values = ReadAll<double>(data, H5T_NATIVE_DOUBLE);
  if (!values.ok()) return values.status();
  return AddAllLabels(spec, *values, data.ToString(), rows);
}

absl::StatusOr<Handle> Open(const std::string& path) {
  // Errors are answered, not printed.
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  if (access(path.c_str(), F_OK) != 0) {
    return absl::NotFoundError(absl::StrCat(path, ": No such file or directory"));
  }
  const Handle how(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  // Some shared file systems have no locks, and no process writes these files.
  H5Pset_file_locking(how.id(), false, true);
  Handle file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, how.id()), H5Fclose);
  if (file.ok()) return file;
  return absl::DataLossError(
      absl::StrCat(path, ": is no HDF5 file, or is cut short or damaged: ", LastError()));
}

}  // namespace

absl::StatusOr<TableRows> ReadHdf5(const std::string& path, const TableSpec& spec) {
  const absl::StatusOr<Handle> file = Open(path);
  if (!file.ok()) return file.status();
  const absl::StatusOr<DataSet> features = Find(path, file->id(), spec.features);
  if (!features.ok()) return features.status();
  const absl::StatusOr<DataSet> labels = Find(path, file->id(), spec.labels);
  if (!labels.ok()) return labels.status();
  TableRows rows;
  if (absl::Status status = ReadFeatures(*features, spec, &rows); !status.ok()) return status;
  if (absl::Status status = ReadLabels(*labels, *features, spec, &rows); !status.ok()) return status;
  return rows;
}

}  // namespace catchment
