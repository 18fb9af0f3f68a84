#include "worker/data/stage.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/file_access.h"
#include "common/base/mutex.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "glog/logging.h"
#include "worker/data/sample_threads.h"

namespace catchment {
namespace {

namespace fs = std::filesystem;

// The threads that copy, because a network's file system answers many requests at a time.
constexpr int kThreads = 8;
constexpr double kReportSeconds = 10;
constexpr auto kPause = std::chrono::milliseconds(100);
constexpr int64_t kBlock = 4096;  // of a file system

struct SourceFile {
  std::string path;
  int64_t size = 0;
};

struct Sources {
  std::vector<SourceFile> files;
  int64_t bytes = 0;
  int64_t room = 0;  // bytes in whole blocks
  uint64_t checksum = 0;
};

absl::Status SystemError(const std::string& what) {
  return absl::FailedPreconditionError(absl::StrCat(what, ": ", std::strerror(errno)));
}

absl::StatusOr<Sources> Examine(const std::vector<std::string>& paths) {
  Sources sources;
  sources.checksum = paths.size();
  for (const std::string& path : paths) {
    struct stat about;
    if (stat(path.c_str(), &about) != 0) return SystemError("cannot examine " + path);
    sources.files.push_back({path, about.st_size});
    sources.bytes += about.st_size;
    sources.room += (about.st_size + kBlock - 1) / kBlock * kBlock;
    for (const char c : path) sources.checksum = Derive(sources.checksum, static_cast<uint8_t>(c));
    for (const int64_t number :
         {int64_t{about.st_size}, int64_t{about.st_mtim.tv_sec}, int64_t{about.st_mtim.tv_nsec}})
      sources.checksum = Derive(sources.checksum, static_cast<uint64_t>(number));
  }
  return sources;
}

// Makes the directory of this user. Another user of the machine could fill one that is not private.
absl::StatusOr<std::string> OwnDirectory(const std::string& directory) {
  std::error_code error;
  const std::string whole = fs::absolute(directory, error).lexically_normal().string();
  if (!fs::is_directory(whole, error))
    return absl::NotFoundError(absl::StrCat(whole, " is not a directory; create it"));
  const std::string own = absl::StrCat(whole, "/catchment-stage-", geteuid());
  if (mkdir(own.c_str(), 0700) != 0 && errno != EEXIST) return SystemError("cannot create " + own);
  struct stat about;
  if (lstat(own.c_str(), &about) != 0) return SystemError("cannot examine " + own);
  if (S_ISDIR(about.st_mode) && about.st_uid == geteuid() && (about.st_mode & 0077) == 0) return own;
  return absl::FailedPreconditionError(
      absl::StrCat(own, " is not a private directory of this user; remove it, or choose another --stage"));
}

absl::Status CheckRoom(const std::string& directory, const Sources& sources) {
  struct statvfs about;
  if (statvfs(directory.c_str(), &about) != 0) return SystemError("cannot examine " + directory);
  const double room = static_cast<double>(about.f_bavail) * static_cast<double>(about.f_frsize);
  if (room < static_cast<double>(sources.room)) {
    return absl::ResourceExhaustedError(absl::StrCat(directory, " has ", Bytes(room),
                                                     " free, and the data have ",
                                                     Bytes(static_cast<double>(sources.room))));
  }
  if (about.f_files == 0 || about.f_favail >= sources.files.size()) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(directory, " has room for ", about.f_favail,
                                                   " files, and the data are ", sources.files.size()));
}

// Returns true if the file that is open is the one of this name: the last user of a lock removes its file.
bool IsFile(int file, const std::string& path) {
  struct stat open_file, named;
  return fstat(file, &open_file) == 0 && stat(path.c_str(), &named) == 0 &&
         open_file.st_ino == named.st_ino && open_file.st_dev == named.st_dev;
}

// Returns the descriptor of a lock file that is held shared (LOCK_SH) or exclusively (LOCK_EX); -1 if another
// process prevents it.
absl::StatusOr<int> TryLock(const std::string& path, int kind) {
  const absl::StatusOr<int> opened = OpenFile(path, O_RDWR | O_CREAT, FileNamedBy::kDirectory, 0600);
  // The last user of another copy has just removed the directory.
  if (absl::IsNotFound(opened.status())) return -1;
  RETURN_IF_ERROR(opened.status());
  const int file = *opened;
  const bool locked = flock(file, kind | LOCK_NB) == 0;
  if (locked && IsFile(file, path)) return file;
  const bool busy = locked || errno == EWOULDBLOCK;
  const absl::Status status = busy ? absl::OkStatus() : SystemError("cannot lock " + path);
  close(file);
  RETURN_IF_ERROR(status);
  return -1;
}

// Returns true if all copies are there. A machine that went down may have left files without their content.
bool IsComplete(const std::string& root, const Sources& sources) {
  for (const SourceFile& file : sources.files) {
    struct stat about;
    if (stat((root + file.path).c_str(), &about) != 0 || about.st_size != file.size) return false;
  }
  return true;
}

}  // namespace

class Stage::Copier {
 public:
  Copier(const Sources* sources, const Clock* clock, absl::FunctionRef<bool()> is_stopped)
      : sources_(*sources),
        clock_(*clock),
        is_stopped_(is_stopped),
        start_(clock->Now()),
        reported_(start_) {}

  // Makes `root` of `part`.
  absl::Status Run(const std::string& part, const std::string& root) {
    std::error_code error;
    fs::remove_all(root, error);
    fs::remove_all(part, error);
    RETURN_IF_ERROR(CheckRoom(fs::path(part).parent_path(), sources_));
    LOG(INFO) << "staging " << Plural(static_cast<int64_t>(sources_.files.size()), "file") << ", "
              << Bytes(static_cast<double>(sources_.bytes)) << ", in " << root;
    absl::Status status = MakeDirectories(part);
    if (status.ok()) {
      SampleThreads threads(kThreads);
      status = threads.Run(static_cast<int64_t>(sources_.files.size()),
                           [&](int, int64_t i) { return CopyFile(sources_.files[i], part); });
    }
    if (status.ok()) {
      fs::rename(part, root, error);
      if (error) status = absl::InternalError(absl::StrCat("cannot create ", root, ": ", error.message()));
    }
    if (!status.ok()) fs::remove_all(part, error);
    LOG_IF(INFO, status.ok()) << "staged in " << Duration(clock_.Now() - start_);
    return status;
  }

 private:
  absl::Status MakeDirectories(const std::string& part) {
    std::set<std::string> directories;
    for (const SourceFile& file : sources_.files)
      directories.insert(fs::path(part + file.path).parent_path());
    for (const std::string& directory : directories) {
      std::error_code error;
      fs::create_directories(directory, error);
      if (error) return absl::InternalError(absl::StrCat("cannot create ", directory, ": ", error.message()));
    }
    return absl::OkStatus();
  }

  absl::Status CopyFile(const SourceFile& file, const std::string& part) {
    if (is_stopped_()) return absl::CancelledError("staging was ended");
    std::error_code error;
    fs::copy_file(file.path, part + file.path, error);
    if (error) return absl::InternalError(absl::StrCat("cannot copy ", file.path, ": ", error.message()));
    MutexLock lock(&mu_);
    bytes_ += file.size;
    const double now = clock_.Now();
    if (now - reported_ < kReportSeconds) return absl::OkStatus();
    reported_ = now;
    LOG(INFO) << "staged " << Bytes(static_cast<double>(bytes_)) << " of "
              << Bytes(static_cast<double>(sources_.bytes)) << ", "
              << Bytes(static_cast<double>(bytes_) / (now - start_)) << " in a second";
    return absl::OkStatus();
  }

  const Sources& sources_;
  const Clock& clock_;
  const absl::FunctionRef<bool()> is_stopped_;
  const double start_;
  Mutex mu_;
  double reported_ ABSL_GUARDED_BY(mu_);
  int64_t bytes_ ABSL_GUARDED_BY(mu_) = 0;
};

absl::StatusOr<std::unique_ptr<Stage>> Stage::Copy(const std::string& directory,
                                                   const std::vector<std::string>& files, const Clock& clock,
                                                   absl::FunctionRef<bool()> is_stopped) {
  ASSIGN_OR_RETURN(const Sources sources, Examine(files));
  bool said = false;
  while (!is_stopped()) {
    ASSIGN_OR_RETURN(const std::string own, OwnDirectory(directory));
    const std::string root = absl::StrCat(own, "/", absl::Hex(sources.checksum, absl::kZeroPad16));
    const std::string lock_path = root + ".lock";
    ASSIGN_OR_RETURN(const int shared, TryLock(lock_path, LOCK_SH));
    if (shared >= 0 && IsComplete(root, sources)) {
      LOG(INFO) << "the data are read from " << root;
      return std::unique_ptr<Stage>(new Stage(root, shared));
    }
    if (shared >= 0) close(shared);
    ASSIGN_OR_RETURN(const int exclusive, TryLock(lock_path, LOCK_EX));
    if (exclusive < 0) {
      LOG_IF(INFO, !std::exchange(said, true)) << "another process of this machine is staging the data";
      std::this_thread::sleep_for(kPause);
      continue;
    }
    absl::Status status;
    if (!IsComplete(root, sources)) {
      status = Copier(&sources, &clock, is_stopped).Run(root + ".part", root);
      if (status.ok() && !IsComplete(root, sources))
        status = absl::DataLossError("the data have changed while they were staged");
    }
    // Before the next round another process may remove the copies, which are then made again.
    if (!status.ok()) unlink(lock_path.c_str());
    close(exclusive);
    RETURN_IF_ERROR(status);
  }
  return absl::CancelledError("staging was ended");
}

Stage::~Stage() {
  if (flock(lock_, LOCK_EX | LOCK_NB) == 0) {
    std::error_code error;
    fs::remove_all(root_, error);
    unlink((root_ + ".lock").c_str());
    // This succeeds only if the directory is empty.
    rmdir(fs::path(root_).parent_path().c_str());
  }
  close(lock_);
}

}  // namespace catchment
