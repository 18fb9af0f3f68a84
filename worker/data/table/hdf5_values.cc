#include "worker/data/table/hdf5_values.h"

#include <fcntl.h>
#include <hdf5/serial/hdf5.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <csignal>
#include <cstring>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/file_access.h"
#include "common/base/memory_file.h"
#include "common/base/status_macros.h"
#include "worker/data/table/hdf5_parts.h"

namespace catchment {
namespace {

constexpr char kReadFlag[] = "--internal_read_hdf5";
constexpr int kArguments = 6;

// Long doubles are the largest numbers that the library converts.
constexpr size_t kMaxValueBytes = 16;
// Bytes that a stored byte can become: 1,032 with DEFLATE, fewer with other filters.
constexpr double kMaxUnpacked = 1100;
constexpr double kMaxBytes = int64_t{1} << 46;

// Returns the innermost message of the library's last error.
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
  Hdf5Handle set;
  Hdf5Handle type;
  std::vector<hsize_t> shape;

  std::string ToString() const { return absl::StrCat(path, ": data set \"", name, "\""); }
  int64_t rows() const { return static_cast<int64_t>(shape[0]); }
  int64_t row_size() const {
    return static_cast<int64_t>(
        std::accumulate(shape.begin() + 1, shape.end(), hsize_t{1}, std::multiplies<>()));
  }
  Hdf5Values values() const {
    const bool integers = H5Tget_class(type.id()) != H5T_FLOAT;
    const size_t size = H5Tget_size(type.id());
    if (H5Tget_class(type.id()) == H5T_INTEGER && size == 1 && H5Tget_sign(type.id()) == H5T_SGN_NONE)
      return Hdf5Values::kBytes;
    return size <= (integers ? 2 : sizeof(float)) ? Hdf5Values::kFloats : Hdf5Values::kDoubles;
  }
};

absl::Status Bad(const DataSet& data, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(data.ToString(), " ", what));
}

double Bytes(size_t value_bytes, const std::vector<hsize_t>& dimensions) {
  auto bytes = static_cast<double>(value_bytes);
  for (const hsize_t dimension : dimensions) bytes *= static_cast<double>(dimension);
  return bytes;
}

absl::Status TooLarge(const DataSet& data, hsize_t stored) {
  return absl::DataLossError(absl::StrCat(data.ToString(), " is damaged: its ",
                                          absl::StrJoin(data.shape, " x "), " values do not fit in the ",
                                          stored, " bytes that are stored of them"));
}

// Values that were never written, or that lie in other files, take memory without being stored here.
absl::Status CheckMemory(const DataSet& data, double bytes) {
  const double memory =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (bytes <= std::min(kMaxBytes, memory)) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(data.ToString(), " has ", absl::StrJoin(data.shape, " x "),
                                                   " values, more than the memory of this machine"));
}

absl::Status CheckExternalParts(const DataSet& data, hid_t layout, double bytes) {
  double stored = 0;
  for (int i = 0; i < H5Pget_external_count(layout); ++i) {
    char name[PATH_MAX] = {};
    off_t begin = 0;
    hsize_t size = 0;
    struct stat about;
    if (H5Pget_external(layout, i, sizeof name - 1, name, &begin, &size) < 0) {
      return Bad(data, "has values in other files, whose names cannot be read");
    }
    if (stat(name, &about) != 0) return Bad(data, absl::StrCat("has values in ", name, ", which is missing"));
    const auto there = static_cast<double>(std::max<off_t>(0, about.st_size - begin));
    stored += std::min(there, static_cast<double>(size));
  }
  return bytes <= stored ? absl::OkStatus() : TooLarge(data, static_cast<hsize_t>(stored));
}

absl::Status CheckChunks(const DataSet& data, hid_t layout, double bytes) {
  std::vector<hsize_t> chunk(data.shape.size());
  if (H5Pget_chunk(layout, static_cast<int>(chunk.size()), chunk.data()) < 0) {
    return Bad(data, "has chunks with a different number of dimensions");
  }
  hsize_t written = 0;
  const Hdf5Handle space(H5Dget_space(data.set.id()), H5Sclose);
  if (H5Dget_num_chunks(data.set.id(), space.id(), &written) < 0)
    return Bad(data, "has chunks that cannot be counted");
  const hsize_t stored = H5Dget_storage_size(data.set.id());
  const double chunk_bytes = Bytes(H5Tget_size(data.type.id()), chunk);
  const double unpacked = std::max(1.0, static_cast<double>(written)) * chunk_bytes;
  if (unpacked > kMaxUnpacked * static_cast<double>(stored) && written > 0) return TooLarge(data, stored);
  return CheckMemory(data, std::max(bytes, chunk_bytes));
}

// Checks that the values need no more memory than their stored bytes can hold, so that a damaged file cannot
// make the library or the reader allocate what its header claims.
absl::Status CheckSize(const DataSet& data) {
  const size_t value_bytes = H5Tget_size(data.type.id());
  if (value_bytes > kMaxValueBytes) {
    return Bad(data, absl::StrCat("holds numbers of ", value_bytes, " bytes; at most ", kMaxValueBytes,
                                  " can be read"));
  }
  const double bytes = Bytes(value_bytes, data.shape);
  const Hdf5Handle layout(H5Dget_create_plist(data.set.id()), H5Pclose);
  if (H5Pget_layout(layout.id()) == H5D_CHUNKED) return CheckChunks(data, layout.id(), bytes);
  if (H5Pget_layout(layout.id()) == H5D_VIRTUAL) return CheckMemory(data, bytes);
  if (H5Pget_external_count(layout.id()) > 0) return CheckExternalParts(data, layout.id(), bytes);
  const hsize_t stored = H5Dget_storage_size(data.set.id());
  const double most = std::min(kMaxBytes, kMaxUnpacked * static_cast<double>(stored));
  return bytes <= most ? absl::OkStatus() : TooLarge(data, stored);
}

absl::StatusOr<DataSet> Find(const std::string& path, hid_t file, const std::string& name, Hdf5Parts* parts) {
  ASSIGN_OR_RETURN(Hdf5Handle set, parts->Open(file, name));
  DataSet data = {path, name, std::move(set), Hdf5Handle(-1, H5Tclose), {}};
  Hdf5Handle type(H5Dget_type(data.set.id()), H5Tclose);
  const H5T_class_t kind = H5Tget_class(type.id());
  // An enumeration, such as NumPy's bool, is read as its integers.
  if (kind != H5T_INTEGER && kind != H5T_FLOAT && kind != H5T_ENUM) {
    return Bad(data, "holds neither integers nor floats");
  }
  const Hdf5Handle space(H5Dget_space(data.set.id()), H5Sclose);
  const int rank = H5Sget_simple_extent_ndims(space.id());
  if (rank < 1) return Bad(data, "has no dimension; it must have a row for each sample");
  std::vector<hsize_t> shape(rank);
  H5Sget_simple_extent_dims(space.id(), shape.data(), nullptr);
  if (std::find(shape.begin(), shape.end(), 0) != shape.end()) return Bad(data, "has no rows");
  DataSet found = {path, name, std::move(data.set), std::move(type), std::move(shape)};
  RETURN_IF_ERROR(CheckSize(found));
  return found;
}

// Reads all values as the library's `type` to `out`, which has room for them.
absl::Status ReadAll(const DataSet& data, hid_t type, void* out) {
  if (H5Dread(data.set.id(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, out) >= 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat(data.ToString(),
                   " cannot be read: it is damaged, or compressed by a filter that this HDF5 library lacks: ",
                   LastError()));
}

absl::StatusOr<Hdf5Handle> Open(const std::string& path) {
  // Errors are answered, not printed.
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
  ASSIGN_OR_RETURN(const int descriptor, OpenFile(path, O_RDONLY));
  close(descriptor);
  Hdf5Handle file = OpenHdf5File(path);
  if (file.ok()) return file;
  return absl::DataLossError(
      absl::StrCat(path, ": is not an HDF5 file, or is cut short or damaged: ", LastError()));
}

absl::Status CheckTogether(const DataSet& features, const DataSet& labels, const Hdf5Request& request) {
  const std::vector<int64_t> shape(features.shape.begin(), features.shape.end());
  const std::string mismatch = DescribeRowMismatch(shape, request.shape);
  if (!mismatch.empty()) return absl::InvalidArgumentError(absl::StrCat(features.ToString(), ": ", mismatch));
  if (labels.rows() == features.rows()) return absl::OkStatus();
  return Bad(labels, absl::StrCat("has ", labels.rows(), " rows, and \"", features.name, "\" ",
                                  features.rows(), "; they are not a matching pair"));
}

// Writable shared memory.
class Mapping {
 public:
  Mapping(int memory, int64_t size)
      : data_(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0)), size_(size) {}
  Mapping(const Mapping&) = delete;
  ~Mapping() {
    if (ok()) munmap(data_, size_);
  }
  bool ok() const { return data_ != MAP_FAILED; }
  char* data() const { return static_cast<char*>(data_); }

 private:
  void* const data_;
  const int64_t size_;
};

// Ends the process with SIGXCPU when it has taken 20 s of processor time and 1 s for each 4 MiB of values, of
// which a slow processor unpacks ten times as much: for some damaged files the library does not return.
void LimitProcessorTime(int64_t bytes) {
  const auto seconds = static_cast<rlim_t>(20 + (bytes >> 22));
  rlimit limit = {};
  if (getrlimit(RLIMIT_CPU, &limit) != 0) return;
  limit.rlim_cur = std::min(limit.rlim_max, seconds);
  setrlimit(RLIMIT_CPU, &limit);
}

absl::Status WriteValues(const Hdf5Request& request, int memory, Hdf5Header* header) {
  ASSIGN_OR_RETURN(const Hdf5Handle file, Open(request.path));
  Hdf5Parts parts(request.path);
  ASSIGN_OR_RETURN(const DataSet features, Find(request.path, file.id(), request.features, &parts));
  ASSIGN_OR_RETURN(const DataSet labels, Find(request.path, file.id(), request.labels, &parts));
  RETURN_IF_ERROR(CheckTogether(features, labels, request));
  header->rows = features.rows();
  header->label_columns = labels.row_size();
  header->values = features.values();
  const int64_t value_bytes = SizeOf(header->values);
  const int64_t labels_begin = Hdf5LabelsBegin(header->rows * request.row_size() * value_bytes);
  const int64_t size = labels_begin + header->rows * header->label_columns * int64_t{sizeof(double)};
  if (const absl::Status status = ResizeMemoryFile(memory, size); !status.ok()) {
    return absl::Status(status.code(),
                        absl::StrCat(request.path, ": no memory of ", size, " bytes: ", status.message()));
  }
  const Mapping values(memory, size);
  if (!values.ok()) {
    return absl::ErrnoToStatus(errno, absl::StrCat(request.path, ": cannot map ", size, " bytes"));
  }
  if (request.limits_processor_time) LimitProcessorTime(size);
  const hid_t type = header->values == Hdf5Values::kBytes    ? H5T_NATIVE_UINT8
                     : header->values == Hdf5Values::kFloats ? H5T_NATIVE_FLOAT
                                                             : H5T_NATIVE_DOUBLE;
  RETURN_IF_ERROR(ReadAll(features, type, values.data() + kHdf5ValuesBegin));
  return ReadAll(labels, H5T_NATIVE_DOUBLE, values.data() + labels_begin);
}

// Reads a file and ends the process if it was started for that (Hdf5Arguments). It runs before main, so that
// every program that contains the reader, which are also the tests and the fuzzer, can be started again as
// its own child.
[[gnu::constructor]] void ReadIfStartedForIt(int argc, char** argv) {
  if (argc != kArguments || std::strcmp(argv[1], kReadFlag) != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The library, which reads these when it starts, would look for parts elsewhere (hdf5_parts.h).
  for (const char* prefix : {"HDF5_EXT_PREFIX", "HDF5_VDS_PREFIX", "HDF5_EXTFILE_PREFIX"}) unsetenv(prefix);
  Hdf5Request request = {argv[2], argv[3], argv[4], {}, true};
  for (const absl::string_view text : absl::StrSplit(argv[5], 'x')) {
    int64_t dimension = 0;
    if (!absl::SimpleAtoi(text, &dimension)) _exit(0);
    request.shape.push_back(dimension);
  }
  LimitProcessorTime(0);
  WriteHdf5Values(request, kHdf5Memory);
  _exit(0);
}

}  // namespace

int64_t Hdf5Request::row_size() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::vector<std::string> Hdf5Arguments(const Hdf5Request& request) {
  return {"catchment_read_hdf5", kReadFlag,      request.path,
          request.features,      request.labels, absl::StrJoin(request.shape, "x")};
}

void WriteHdf5Values(const Hdf5Request& request, int memory) {
  const Mapping mapping(memory, kHdf5ValuesBegin);
  if (!mapping.ok()) return;
  auto* const header = reinterpret_cast<Hdf5Header*>(mapping.data());
  const absl::Status status = WriteValues(request, memory, header);
  header->code = status.raw_code();
  const absl::string_view message = status.message().substr(0, sizeof header->message - 1);
  std::copy(message.begin(), message.end(), header->message);
  header->complete = Hdf5Header::kComplete;
}

}  // namespace catchment
