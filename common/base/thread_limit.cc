#include "common/base/thread_limit.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/control_groups.h"
#include "common/base/file_access.h"
#include "common/base/processors.h"

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

// The name in the message of ExplainAndEnd.
const std::string* program_name = nullptr;

[[noreturn]] void ExplainAndEnd() {
  try {
    if (const std::exception_ptr current = std::current_exception()) std::rethrow_exception(current);
  } catch (const std::system_error& error) {
    std::cerr << *program_name << ": " << error.code().message();
    if (error.code() == std::errc::resource_unavailable_try_again) {
      const ThreadRoom room = FindThreadRoom();
      std::cerr << ": cannot start a thread: the limit of processes and threads"
                << (room.source.empty() ? "" : absl::StrCat(", ", room.limit, " (", room.source, "),"))
                << " is reached: " << kThreadsRemedy << " (exit code 1)" << std::endl;
      _exit(EXIT_FAILURE);
    }
    std::cerr << std::endl;
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

void ExplainMissingThreads(const std::string& name) {
  program_name = new std::string(name);
  std::set_terminate(ExplainAndEnd);
}

}  // namespace catchment
