#include "common/base/thread_limit.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <new>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/file_access.h"
#include "common/base/machine.h"

namespace catchment {
namespace {

namespace fs = std::filesystem;

// Linux exempts root, and those with CAP_SYS_ADMIN or CAP_SYS_RESOURCE, from RLIMIT_NPROC.
constexpr uint64_t kExempt = uint64_t{1} << 21 | uint64_t{1} << 24;

// Returns the value of a line "NAME:\tVALUE" of a file such as /proc/self/status; empty if there is none.
std::string ValueIn(const std::string& path, const std::string& name) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return "";
  for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (parts.size() == 2 && parts[0] == name) return std::string(absl::StripAsciiWhitespace(parts[1]));
  }
  return "";
}

bool IsExempt(const std::string& root) {
  uint64_t capabilities = 0;
  const std::string text = ValueIn(root + "/proc/self/status", "CapEff");
  return getuid() == 0 || (absl::SimpleHexAtoi(text, &capabilities) && (capabilities & kExempt) != 0);
}

// Returns the threads of this user in all processes that /proc shows.
int64_t ThreadsOfUser(const std::string& root) {
  int64_t sum = 0;
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(root + "/proc", error)) {
    const std::string name = entry.path().filename().string();
    if (!std::all_of(name.begin(), name.end(), absl::ascii_isdigit)) continue;
    const std::string status = entry.path().string() + "/status";
    const std::vector<std::string> users =
        absl::StrSplit(ValueIn(status, "Uid"), absl::ByAnyChar(" \t"), absl::SkipEmpty());
    int64_t threads = 0;
    if (users.empty() || users.front() != absl::StrCat(getuid())) continue;
    if (absl::SimpleAtoi(ValueIn(status, "Threads"), &threads)) sum += threads;
  }
  return sum;
}

void TakeTighter(ThreadRoom other, ThreadRoom* room) {
  if (other.left() < room->left()) *room = std::move(other);
}

// Returns the limit of the process's memory in bytes; RLIM_INFINITY if there is none.
rlim_t MemoryOfProcess() {
  rlimit addresses = {RLIM_INFINITY, RLIM_INFINITY}, data = addresses;
  getrlimit(RLIMIT_AS, &addresses);
  getrlimit(RLIMIT_DATA, &data);
  return std::min(addresses.rlim_cur, data.rlim_cur);
}

// The name in the messages.
const std::string* program_name = nullptr;

// Allocates nothing.
[[noreturn]] void EndWithoutMemory(const char* what) {
  constexpr unsigned long long kMegabyte = 1000 * 1000;
  const rlim_t limit = MemoryOfProcess();
  char text[512];
  int size;
  if (limit == RLIM_INFINITY) {
    size = snprintf(
        text, sizeof text,
        "%s: %s: this machine, or the memory cgroup of this process, has no memory left: give it more, "
        "or start fewer processes (exit code 1)\n",
        program_name->c_str(), what);
  } else {
    size = snprintf(
        text, sizeof text,
        "%s: %s: the limit of this process's memory, %llu MB (RLIMIT_AS or RLIMIT_DATA), is reached: raise "
        "it with `ulimit -v` and `ulimit -d`, or LimitAS= and LimitDATA= in a systemd unit (exit code 1)\n",
        program_name->c_str(), what, static_cast<unsigned long long>(limit) / kMegabyte);
  }
  if (write(STDERR_FILENO, text, std::min<size_t>(size, sizeof text - 1)) < 0) _exit(EXIT_FAILURE);
  _exit(EXIT_FAILURE);
}

// A thread could not be started: there is no memory for its stack, or the limit of threads is reached.
[[noreturn]] void EndWithoutThread() {
  constexpr char kWhat[] = "cannot start a thread";
  constexpr int64_t kPlenty = 16;
  try {
    const ThreadRoom room = FindThreadRoom();
    if (MemoryOfProcess() != RLIM_INFINITY && room.left() > kPlenty) EndWithoutMemory(kWhat);
    std::cerr << *program_name << ": " << kWhat << ": the limit of processes and threads"
              << (room.source.empty() ? "" : absl::StrCat(", ", room.limit, " (", room.source, "),"))
              << " is reached: " << kThreadsRemedy << " (exit code 1)" << std::endl;
    _exit(EXIT_FAILURE);
  } catch (const std::bad_alloc&) {
    EndWithoutMemory(kWhat);
  }
}

[[noreturn]] void ExplainAndEnd() {
  try {
    if (const std::exception_ptr current = std::current_exception()) std::rethrow_exception(current);
  } catch (const std::bad_alloc&) {
    EndWithoutMemory("cannot allocate memory");
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) EndWithoutThread();
    std::cerr << *program_name << ": " << error.code().message() << std::endl;
  } catch (const std::exception& error) {
    std::cerr << *program_name << ": " << error.what() << std::endl;
  } catch (...) {
    // abort() says enough of other objects.
  }
  std::abort();
}

}  // namespace

ThreadRoom FindThreadRoom(const std::string& root) {
  ThreadRoom room;
  rlimit limit = {};
  if (!IsExempt(root) && getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    TakeTighter({static_cast<int64_t>(limit.rlim_cur), ThreadsOfUser(root),
                 absl::StrCat("RLIMIT_NPROC of user ", getuid())},
                &room);
  }
  for (const std::string& group : ControlGroups("pids", root)) {
    ThreadRoom of_group;
    of_group.source = group + "/pids.max";
    if (absl::SimpleAtoi(FirstLine(of_group.source), &of_group.limit) &&
        absl::SimpleAtoi(FirstLine(group + "/pids.current"), &of_group.used))
      TakeTighter(std::move(of_group), &room);
  }
  return room;
}

int64_t ThreadsOfServer() { return 18 + 2 * std::min(AvailableProcessors(), 16); }

int64_t ThreadsOfWorker(int64_t threads) { return 12 + threads; }

absl::Status CheckThreads(const ThreadRoom& room, const std::string& who, int64_t needed) {
  if (needed <= room.left()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      who, ": about ", needed, " threads are needed, and the limit of processes and threads, ", room.limit,
      " (", room.source, "), leaves ", std::max<int64_t>(0, room.left()), ": ", kThreadsRemedy));
}

void ExplainMissingResources(const std::string& name) {
  program_name = new std::string(name);
  std::set_terminate(ExplainAndEnd);
}

}  // namespace catchment
