// The output of `--version`: the version, the commit, and the features of the build.
#ifndef CATCHMENT_COMMON_VERSION_H_
#define CATCHMENT_COMMON_VERSION_H_

#include <string>

namespace catchment {

// Returns the name of `program` with the version, then one line each for the commit and the features:
//
//   catchment_worker 0.1.0
//   commit: 0123456789ab
//   oneDNN: 2.6.3
//   CUDA: plugin built
//
// The commit is given to the build with `--stamp --embed_label=COMMIT`, as in deploy/bundle.sh. Other builds
// report that it was not recorded, so that a new commit alone does not relink the programs.
std::string DescribeVersion(const std::string& program);

// Returns "0.1.0, commit 0123456789ab", or only the version if the commit was not recorded. Processes of a
// job report it to each other.
std::string BuildVersion();

}  // namespace catchment

#endif  // CATCHMENT_COMMON_VERSION_H_
