#include "common/processors.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <thread>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

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

// Returns the first line of a file; empty if it cannot be read.
std::string FirstLine(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
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

// Returns the smallest quota of `path` and of the groups above it. Inside a container some of them may not be there.
int SmallestQuota(const std::string& mount, std::string path) {
  int quota = QuotaOf(mount);
  for (; path.size() > 1; path.erase(path.rfind('/'))) quota = std::min(quota, QuotaOf(mount + path));
  return quota;
}

}  // namespace

int ProcessorQuota(const std::string& root) {
  const std::string mounts = root + "/sys/fs/cgroup/";
  std::ifstream groups(root + "/proc/self/cgroup");
  int quota = kNoQuota;
  // HIERARCHY:CONTROLLERS:PATH; without controllers in version 2.
  for (std::string line; std::getline(groups, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3 || fields[2].rfind('/', 0) != 0) continue;
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    if (fields[1].empty()) {
      quota =
          std::min({quota, SmallestQuota(mounts, fields[2]), SmallestQuota(mounts + "unified", fields[2])});
    } else if (absl::c_linear_search(controllers, "cpu")) {
      quota = std::min(
          {quota, SmallestQuota(mounts + fields[1], fields[2]), SmallestQuota(mounts + "cpu", fields[2])});
    }
  }
  return quota;
}

int AvailableProcessors() { return std::max(1, std::min(AllowedProcessors(), ProcessorQuota())); }

}  // namespace catchment
