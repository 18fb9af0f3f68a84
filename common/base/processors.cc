#include "common/base/processors.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <thread>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "common/base/control_groups.h"

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

}  // namespace catchment
