#include "common/base/memory.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/base/control_groups.h"
#include "common/base/file_access.h"

namespace catchment {
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
