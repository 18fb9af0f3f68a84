#include "common/base/machine.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/file_access.h"

namespace catchment {
namespace {

constexpr int kNoQuota = std::numeric_limits<int>::max();

int AllowedProcessors() {
  cpu_set_t set;
  CPU_ZERO(&set);
  // Fails if the machine has more processors than the set can have.
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return static_cast<int>(std::thread::hardware_concurrency());
}

int RoundedUp(const std::string& quota, const std::string& period) {
  double used = 0, of = 0;
  // "max" and -1 stand for no quota.
  if (!absl::SimpleAtod(quota, &used) || !absl::SimpleAtod(period, &of) || used <= 0 || of <= 0)
    return kNoQuota;
  return static_cast<int>(std::min<double>(kNoQuota, std::ceil(used / of)));
}

int QuotaOf(const std::string& group) {
  const std::vector<std::string> version2 = absl::StrSplit(FirstLine(group + "/cpu.max"), ' ');
  if (version2.size() == 2) return RoundedUp(version2[0], version2[1]);
  return RoundedUp(FirstLine(group + "/cpu.cfs_quota_us"), FirstLine(group + "/cpu.cfs_period_us"));
}

}  // namespace

int ProcessorQuota(const std::string& root) {
  int quota = kNoQuota;
  for (const std::string& group : ControlGroups("cpu", root)) quota = std::min(quota, QuotaOf(group));
  return quota;
}

int AvailableProcessors() { return std::max(1, std::min(AllowedProcessors(), ProcessorQuota())); }

namespace {

void AddGroupAndAncestors(const std::string& mount, std::string path, std::vector<std::string>* groups) {
  groups->push_back(mount);
  for (; path.size() > 1; path.erase(path.rfind('/'))) groups->push_back(mount + path);
}

}  // namespace

std::vector<std::string> ControlGroups(const std::string& controller, const std::string& root) {
  const std::string mounts = root + "/sys/fs/cgroup";
  const absl::StatusOr<std::string> lines = ReadFile(root + "/proc/self/cgroup");
  std::vector<std::string> groups;
  if (!lines.ok()) return groups;
  // HIERARCHY:CONTROLLERS:PATH; without controllers in version 2.
  for (const absl::string_view line : absl::StrSplit(*lines, '\n')) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3 || fields[2].rfind('/', 0) != 0) continue;
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    if (fields[1].empty()) {
      AddGroupAndAncestors(mounts, fields[2], &groups);
      AddGroupAndAncestors(mounts + "/unified", fields[2], &groups);
    } else if (absl::c_linear_search(controllers, controller)) {
      AddGroupAndAncestors(absl::StrCat(mounts, "/", fields[1]), fields[2], &groups);
      AddGroupAndAncestors(absl::StrCat(mounts, "/", controller), fields[2], &groups);
    }
  }
  return groups;
}

std::string FirstLine(const std::string& path) {
  const absl::StatusOr<std::string> content = ReadFile(path);
  return content.ok() ? content->substr(0, content->find('\n')) : "";
}

namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
// Version 1 states "no limit" as the largest multiple of a page.
constexpr int64_t kLargestLimit = int64_t{1} << 60;

// The names of the files and of the entry of memory.stat differ between the versions.
struct Names {
  const char* limit;
  const char* used;
  const char* page_cache;
};
constexpr Names kVersions[] = {{"/memory.max", "/memory.current", "inactive_file"},
                               {"/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"}};

int64_t LimitIn(const std::string& file) {
  int64_t limit = 0;
  return absl::SimpleAtoi(FirstLine(file), &limit) && limit < kLargestLimit ? limit : kNoLimit;
}

// Returns the number after `key` in a file of lines "KEY NUMBER ..."; 0 if there is none.
int64_t EntryOf(const std::string& file, const std::string& key) {
  const absl::StatusOr<std::string> content = ReadFile(file);
  if (!content.ok()) return 0;
  for (const absl::string_view line : absl::StrSplit(*content, '\n')) {
    const std::vector<absl::string_view> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    int64_t value = 0;
    if (words.size() >= 2 && words[0] == key && absl::SimpleAtoi(words[1], &value)) return value;
  }
  return 0;
}

int64_t FreeInGroup(const std::string& group, const Names& names) {
  const int64_t limit = LimitIn(group + names.limit);
  if (limit == kNoLimit) return kNoLimit;
  int64_t used = 0;
  if (!absl::SimpleAtoi(FirstLine(group + names.used), &used)) return limit;
  // The kernel frees the pages of files that it has cached when processes need them.
  const int64_t cached = EntryOf(group + "/memory.stat", names.page_cache);
  return std::max<int64_t>(0, limit - std::max<int64_t>(0, used - cached));
}

}  // namespace

int64_t MemoryLimit(const std::string& root) {
  int64_t limit = kNoLimit;
  for (const std::string& group : ControlGroups("memory", root)) {
    for (const Names& names : kVersions) limit = std::min(limit, LimitIn(group + names.limit));
  }
  return limit;
}

int64_t FreeMemory(const std::string& root) {
  constexpr int64_t kKib = 1024;
  int64_t free = kKib * EntryOf(root + "/proc/meminfo", "MemAvailable:");
  for (const std::string& group : ControlGroups("memory", root)) {
    for (const Names& names : kVersions) free = std::min(free, FreeInGroup(group, names));
  }
  return free;
}

}  // namespace catchment
