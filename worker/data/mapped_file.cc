#include "worker/data/mapped_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/file_access.h"
#include "common/base/mutex.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace catchment {
namespace {

absl::Status Failed(const std::string& path, int error) {
  return absl::InternalError(absl::StrCat(path, ": ", std::strerror(error)));
}

}  // namespace

// An element of a list through which the signal handler looks. It is never freed, but used again.
struct MappedFile::Entry {
  std::atomic<const char*> data = nullptr;  // null: there is no file
  int64_t size = 0;
  std::string path;
  std::string shown;  // the path on one line
  Entry* next = nullptr;
};

namespace {

std::atomic<MappedFile::Entry*> entries = nullptr;

void Write(const char* text) {
  // Nothing can be done if standard error is closed.
  if (write(STDERR_FILENO, text, std::strlen(text)) < 0) return;
}

// Calls only functions that are safe in a signal handler.
void EndIfMapped(int signal, siginfo_t* info, void*) {
  const auto* const address = static_cast<const char*>(info->si_addr);
  for (const MappedFile::Entry* entry = entries.load(std::memory_order_acquire); entry != nullptr;
       entry = entry->next) {
    const char* const data = entry->data.load(std::memory_order_acquire);
    if (data == nullptr || address < data || address - data >= entry->size) continue;
    struct stat about;
    const bool shorter = stat(entry->path.c_str(), &about) != 0 || about.st_size < entry->size;
    Write(program_invocation_short_name);
    Write(": the data file ");
    Write(entry->shown.c_str());
    Write(
        shorter
            ? " has become shorter while it was in use: write a new file, and rename it, instead of changing "
              "one in place, or let the workers read copies (--stage) (exit code 1)\n"
            : " can no longer be read: its disk or its network file system has failed (exit code 1)\n");
    _exit(EXIT_FAILURE);
  }
  // The instruction is executed again, or the signal of another process sent again, which ends this one.
  ::signal(signal, SIG_DFL);
  if (info->si_code <= 0) raise(signal);
}

// Adds to the list and removes from it.
class Entries {
 public:
  static Entries& Get() {
    static auto* const all = new Entries;
    return *all;
  }

  MappedFile::Entry* Add(const std::string& path, const char* data, int64_t size) {
    MutexLock lock(&mu_);
    if (unused_.empty()) {
      unused_.push_back(new MappedFile::Entry{.next = entries.load(std::memory_order_relaxed)});
      entries.store(unused_.back(), std::memory_order_release);
    }
    MappedFile::Entry* const entry = unused_.back();
    unused_.pop_back();
    entry->size = size;
    entry->path = path;
    entry->shown = OneLine(path);
    entry->data.store(data, std::memory_order_release);
    return entry;
  }

  void Remove(MappedFile::Entry* entry) {
    MutexLock lock(&mu_);
    entry->data.store(nullptr, std::memory_order_release);
    unused_.push_back(entry);
  }

 private:
  Entries() {
    struct sigaction action = {};
    action.sa_sigaction = EndIfMapped;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGBUS, &action, nullptr);
  }

  Mutex mu_;
  std::vector<MappedFile::Entry*> unused_ ABSL_GUARDED_BY(mu_);
};

}  // namespace

absl::StatusOr<std::shared_ptr<const MappedFile>> MappedFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(const int file, OpenFile(path, O_RDONLY));
  struct stat about;
  absl::Status status = fstat(file, &about) == 0 ? absl::OkStatus() : Failed(path, errno);
  void* data = nullptr;
  if (status.ok() && about.st_size > 0) {
    data = mmap(nullptr, about.st_size, PROT_READ, MAP_SHARED, file, 0);
    if (data == MAP_FAILED) status = Failed(path, errno);
  }
  close(file);
  RETURN_IF_ERROR(status);
  return std::shared_ptr<const MappedFile>(
      new MappedFile(path, static_cast<const char*>(data), about.st_size));
}

MappedFile::MappedFile(const std::string& path, const char* data, int64_t size)
    : data_(data), size_(size), entry_(Entries::Get().Add(path, data, size)) {}

MappedFile::~MappedFile() {
  Entries::Get().Remove(entry_);
  if (size_ > 0) munmap(const_cast<char*>(data_), size_);
}

}  // namespace catchment
