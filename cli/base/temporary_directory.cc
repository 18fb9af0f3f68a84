#include "cli/base/temporary_directory.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <system_error>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/machine.h"

namespace catchment {
namespace {

namespace fs = std::filesystem;

constexpr char kLock[] = "temporary.lock";

// Returns true if the lock file is one that a process of this host and user held, which has ended.
bool IsLeftBehind(int lock) {
  struct stat about;
  if (fstat(lock, &about) != 0 || !S_ISREG(about.st_mode) || about.st_uid != geteuid()) return false;
  // The owner is written once the lock is held: without one, the directory may be just being created.
  const std::string host = HostName() + " ";
  std::string owner(host.size(), '\0');
  if (pread(lock, owner.data(), owner.size(), 0) != static_cast<ssize_t>(owner.size()) || owner != host)
    return false;
  struct flock whole_file = {};
  whole_file.l_type = F_WRLCK;
  whole_file.l_whence = SEEK_SET;
  return fcntl(lock, F_OFD_SETLK, &whole_file) == 0;
}

// Deletes the directory if a process that was killed has left it.
void DeleteIfLeftBehind(const std::string& path) {
  const int directory = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (directory < 0) return;
  const absl::Cleanup close_directory = [directory] { close(directory); };
  struct stat about;
  if (fstat(directory, &about) != 0 || about.st_uid != geteuid() || (about.st_mode & ALLPERMS) != S_IRWXU)
    return;
  const int lock = openat(directory, kLock, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (lock < 0) return;
  const absl::Cleanup close_lock = [lock] { close(lock); };
  if (!IsLeftBehind(lock)) return;
  // Files are deleted through the descriptor, because another directory may take the name, the lock file
  // last.
  std::error_code error;
  std::vector<fs::path> content;
  for (const auto& entry : fs::directory_iterator(absl::StrCat("/proc/self/fd/", directory), error)) {
    if (entry.path().filename() != kLock) content.push_back(entry.path());
  }
  for (const fs::path& one : content) fs::remove_all(one, error);
  unlinkat(directory, kLock, 0);
  rmdir(path.c_str());
}

void DeleteLeftBehind(const std::string& parent) {
  std::error_code error;
  for (fs::directory_iterator entries(parent, error); !error && entries != fs::directory_iterator();
       entries.increment(error)) {
    if (absl::StartsWith(entries->path().filename().string(), "catchment-"))
      DeleteIfLeftBehind(entries->path().string());
  }
}

std::string SystemDirectory() {
  std::error_code error;
  const fs::path path = fs::temp_directory_path(error);
  return error ? "/tmp" : path.string();
}

// Returns the directories in which commands of this user create others.
std::set<std::string> Places(const std::string& parent) {
  std::set<std::string> places = {parent, SystemDirectory()};
  if (const char* const runtime = std::getenv("XDG_RUNTIME_DIR")) places.insert(runtime);
  return places;
}

}  // namespace

absl::StatusOr<TemporaryDirectory> TemporaryDirectory::Create(const std::string& name) {
  return CreateIn(SystemDirectory(), name);
}

absl::StatusOr<TemporaryDirectory> TemporaryDirectory::CreateIn(const std::string& parent,
                                                                const std::string& name) {
  for (const std::string& place : Places(parent)) DeleteLeftBehind(place);
  std::string path = (fs::path(parent) / (name + "-XXXXXX")).string();
  if (mkdtemp(path.data()) == nullptr)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot create the temporary directory ", path));
  absl::StatusOr<DirectoryLock> lock = DirectoryLock::Take(path, {kLock, "another process"});
  if (lock.ok()) return TemporaryDirectory(path, *std::move(lock));
  std::error_code error;
  fs::remove_all(path, error);
  return lock.status();
}

TemporaryDirectory::~TemporaryDirectory() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

}  // namespace catchment
