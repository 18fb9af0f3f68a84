// The number of processors that this process may use.
#ifndef CATCHMENT_COMMON_BASE_PROCESSORS_H_
#define CATCHMENT_COMMON_BASE_PROCESSORS_H_

#include <string>

namespace catchment {

// Returns the smaller one of the number of processors in the process's affinity mask, which taskset, Slurm
// and cpusets set, and its cgroup's quota, which containers and systemd's CPUQuota set; at least 1.
int AvailableProcessors();

// Returns the quota of the process's cgroups (version 1 or 2) and of those above them, rounded up to whole
// processors; INT_MAX if there is none. `root` is the directory with proc/ and sys/.
int ProcessorQuota(const std::string& root = "/");

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_PROCESSORS_H_
