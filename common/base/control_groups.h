// The cgroups (version 1 or 2) that limit this process: containers, systemd units and Slurm set them.
#ifndef CATCHMENT_COMMON_BASE_CONTROL_GROUPS_H_
#define CATCHMENT_COMMON_BASE_CONTROL_GROUPS_H_

#include <string>
#include <vector>

namespace catchment {

// Returns the directories of the process's cgroup with this controller, such as "cpu" or "memory", and of the
// cgroups above it. Some may not exist, as inside a container. `root` is the directory with proc/ and sys/.
std::vector<std::string> ControlGroups(const std::string& controller, const std::string& root);

// Returns the first line of a file; empty if it cannot be read.
std::string FirstLine(const std::string& path);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_CONTROL_GROUPS_H_
