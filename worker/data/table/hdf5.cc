#include <fcntl.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/memory_file.h"
#include "common/base/status_macros.h"
#include "worker/data/table/formats.h"
#include "worker/data/table/hdf5_values.h"

namespace catchment {
namespace {

Hdf5Request RequestOf(const std::string& path, const TableSpec& spec) {
  return {path, spec.features, spec.labels, DimensionsOf(spec.shape)};
}

std::string NameOf(const Hdf5Request& request, const std::string& set) {
  return absl::StrCat(request.path, ": data set \"", set, "\"");
}

// Anonymous memory with a descriptor.
class Memory {
 public:
  static absl::StatusOr<Memory> Create(const std::string& path) {
    const absl::StatusOr<int> file = CreateMemoryFile("hdf5", kHdf5ValuesBegin, WithoutMemfd::kUseFile);
    if (file.ok()) return Memory(*file);
    return absl::Status(file.status().code(),
                        absl::StrCat(path, ": cannot be read: ", file.status().message()));
  }
  Memory(Memory&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Memory() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

 private:
  explicit Memory(int fd) : fd_(fd) {}
  int fd_;
};

absl::StatusOr<pid_t> StartChild(const Hdf5Request& request, int memory) {
  std::vector<std::string> arguments = Hdf5Arguments(request);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, memory, kHdf5Memory);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  pid_t child = 0;
  const int error = posix_spawn(&child, "/proc/self/exe", &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  if (error == 0) return child;
  return absl::ErrnoToStatus(
      error, absl::StrCat(request.path, ": cannot start a process that reads it (/proc/self/exe)"));
}

// Returns why a child that has ended with this status of waitpid has left no result.
absl::Status Unfinished(const std::string& path, int status) {
  const int signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  if (signal == SIGKILL) {
    return absl::ResourceExhaustedError(absl::StrCat(
        path, ": the process that read it was killed (signal 9); is there memory for its values?"));
  }
  const std::string how = signal == SIGXCPU ? "uses too much processor time"
                          : signal != 0     ? absl::StrCat("signal ", signal)
                                            : absl::StrCat("exit code ", WEXITSTATUS(status));
  return absl::DataLossError(
      absl::StrCat(path, ": libhdf5 failed on this file (", how,
                   "): the file is damaged; copy it again, or write it again with the program that made it"));
}

absl::Status ReadInChild(const Hdf5Request& request, int memory) {
  ASSIGN_OR_RETURN(const pid_t child, StartChild(request, memory));
  int status = 0;
  while (waitpid(child, &status, 0) < 0) {
    // ECHILD: SIGCHLD is ignored, and how the child has ended is not known. What it has written is complete
    // or not.
    if (errno != EINTR) break;
  }
  uint32_t complete = 0;
  const ssize_t size = pread(memory, &complete, sizeof complete, offsetof(Hdf5Header, complete));
  if (size == sizeof complete && complete == Hdf5Header::kComplete) return absl::OkStatus();
  return Unfinished(request.path, status);
}

// Returns all of the memory, which no process can change any more. Returns null if that fails.
std::shared_ptr<const char> Map(int memory) {
  struct stat about;
  const bool sealed = fcntl(memory, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) == 0;
  if (fstat(memory, &about) != 0 || about.st_size < kHdf5ValuesBegin || (IsMemfd(memory) && !sealed))
    return nullptr;
  const int64_t size = about.st_size;
  if (!sealed) {
    // A file that takes the place of anonymous memory, and that cannot be sealed.
    std::shared_ptr<char[]> copy(new char[size]);
    int64_t have = 0;
    for (ssize_t n = 1; have < size && n > 0; have += n)
      n = pread(memory, copy.get() + have, size - have, have);
    return have == size ? std::shared_ptr<const char>(copy, copy.get()) : nullptr;
  }
  // Private, because before Linux 6.7 sealed memory could not be mapped otherwise.
  void* const data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, memory, 0);
  if (data == MAP_FAILED) return nullptr;
  return {static_cast<const char*>(data),
          [size](const char* begin) { munmap(const_cast<char*>(begin), size); }};
}

// Returns true if `size` bytes of memory hold what the header describes.
bool Holds(const Hdf5Header& header, int64_t row_bytes, int64_t size) {
  if (header.values > Hdf5Values::kDoubles || header.rows <= 0 || header.label_columns <= 0) return false;
  if (header.rows > (size - kHdf5ValuesBegin) / row_bytes) return false;
  const int64_t labels = size - Hdf5LabelsBegin(header.rows * row_bytes);
  return header.label_columns <= labels / header.rows / int64_t{sizeof(double)};
}

}  // namespace

absl::StatusOr<TableRows> TakeHdf5Rows(const Hdf5Request& request, const TableSpec& spec, int memory) {
  struct stat about;
  const std::shared_ptr<const char> data = Map(memory);
  if (data == nullptr || fstat(memory, &about) != 0) {
    return absl::InternalError(absl::StrCat(request.path, ": its values cannot be mapped"));
  }
  Hdf5Header header;
  std::memcpy(&header, data.get(), sizeof header);
  header.message[sizeof header.message - 1] = 0;
  if (header.code != 0) return absl::Status(static_cast<absl::StatusCode>(header.code), header.message);
  const int64_t row_bytes = request.row_size() * SizeOf(header.values);
  if (!Holds(header, row_bytes, about.st_size)) {
    return absl::DataLossError(
        absl::StrCat(request.path, ": libhdf5 failed on this file: the file is damaged"));
  }
  TableRows rows;
  rows.size = header.rows;
  const char* const features = data.get() + kHdf5ValuesBegin;
  const std::string name = NameOf(request, request.features);
  const int64_t count = rows.size * request.row_size();
  if (header.values == Hdf5Values::kBytes) {
    rows.bytes = {data, reinterpret_cast<const uint8_t*>(features)};
  } else if (header.values == Hdf5Values::kFloats && spec.normalization.empty()) {
    rows.floats = {data, reinterpret_cast<const float*>(features)};
    RETURN_IF_ERROR(CheckFinite({rows.floats.get(), static_cast<size_t>(count)}, request.row_size(),
                                [&](int64_t row) { return CountedRow(name, row); }));
  } else {
    const auto* const floats = reinterpret_cast<const float*>(features);
    const auto* const doubles = reinterpret_cast<const double*>(features);
    const bool wide = header.values == Hdf5Values::kDoubles;
    std::vector<float> values;
    values.reserve(count);
    RETURN_IF_ERROR(AddFeatures(
        spec, rows.size, [&](int64_t i) { return wide ? doubles[i] : double{floats[i]}; },
        [&](int64_t i) { return CountedValue(name, i, request.row_size()); }, &values));
    rows.floats = Share(std::move(values));
  }
  const auto* const labels =
      reinterpret_cast<const double*>(data.get() + Hdf5LabelsBegin(rows.size * row_bytes));
  RETURN_IF_ERROR(AddAllLabels(spec, {labels, static_cast<size_t>(rows.size * header.label_columns)},
                               NameOf(request, request.labels), &rows));
  return rows;
}

absl::StatusOr<TableRows> ReadHdf5(const std::string& path, const TableSpec& spec) {
  ASSIGN_OR_RETURN(const Memory memory, Memory::Create(path));
  const Hdf5Request request = RequestOf(path, spec);
  RETURN_IF_ERROR(ReadInChild(request, memory.fd()));
  return TakeHdf5Rows(request, spec, memory.fd());
}

absl::StatusOr<TableRows> ReadHdf5InThisProcess(const std::string& path, const TableSpec& spec) {
  ASSIGN_OR_RETURN(const Memory memory, Memory::Create(path));
  const Hdf5Request request = RequestOf(path, spec);
  WriteHdf5Values(request, memory.fd());
  return TakeHdf5Rows(request, spec, memory.fd());
}

}  // namespace catchment
