// The output of `--version`: the version, the commit, and the libraries of the build.
#ifndef CATCHMENT_COMMON_BASE_VERSION_H_
#define CATCHMENT_COMMON_BASE_VERSION_H_

#include <string>

namespace catchment {

// Returns the name of `program` with the version, then one line each for the commit and the libraries:
//
//   catchment_worker 0.1.0
//   commit: 0123456789ab
//   oneDNN: 2.6.3
//
// The commit is that of the sources when the program was linked, "-dirty" with changes that are in none; a
// new commit alone does not relink it. It is given by common/bazel/workspace_status.sh, or by --embed_label.
std::string DescribeVersion(const std::string& program);

// Returns "0.1.0, commit 0123456789ab", or only the version if the commit was not recorded. Processes of a
// job report it to each other.
std::string BuildVersion();

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_VERSION_H_
