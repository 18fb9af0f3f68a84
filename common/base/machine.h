// The processors and the memory that this process may use, and the cgroups that limit them.
#ifndef CATCHMENT_COMMON_BASE_MACHINE_H_
#define CATCHMENT_COMMON_BASE_MACHINE_H_

#include <unistd.h>

#include <cstdint>
#include <string>
#include <vector>

namespace catchment {

// Returns the smaller one of the number of processors in the process's affinity mask, which taskset, Slurm
// and cpusets set, and its cgroup's quota, which containers and systemd's CPUQuota set; at least 1.
int AvailableProcessors();

// Returns the quota of the process's cgroups (version 1 or 2) and of those above them, rounded up to whole
// processors; INT_MAX if there is none. `root` is the directory with proc/ and sys/.
int ProcessorQuota(const std::string& root = "/");

// Containers, systemd units and Slurm limit a process by its cgroup (version 1 or 2).
// Returns the directories of the process's cgroup with this controller, such as "cpu" or "memory", and of the
// cgroups above it. Some may not exist, as inside a container. `root` is the directory with proc/ and sys/.
std::vector<std::string> ControlGroups(const std::string& controller, const std::string& root);

// Returns the first line of a file; empty if it cannot be read.
std::string FirstLine(const std::string& path);

// Returns the smallest limit, in bytes, of the process's cgroups (version 1 or 2); INT64_MAX if there is
// none. `root` is the directory with proc/ and sys/.
int64_t MemoryLimit(const std::string& root = "/");

// Returns the bytes that the process can still allocate: what the machine has available, or less if a
// cgroup's limit, minus what its processes use, is smaller. 0 if it is not known.
int64_t FreeMemory(const std::string& root = "/");

// Returns this host's name; empty if it cannot be read.
inline std::string HostName() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_MACHINE_H_
