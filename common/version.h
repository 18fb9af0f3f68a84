// What `--version` says: the version, the commit, and what the program was built with and for.
#ifndef CATCHMENT_COMMON_VERSION_H_
#define CATCHMENT_COMMON_VERSION_H_

#include <string>

namespace catchment {

// `program`'s name with the version, then a line each for the commit and the features:
//
//   catchment_worker 0.1.0
//   commit: 0123456789ab
//   oneDNN: 2.6.3
//   CUDA: plugin built
//
// The commit is what the build was told with `--stamp --embed_label=COMMIT`, as deploy/bundle.sh does; other
// builds say that it was not recorded, so that a commit alone makes nothing to link anew.
std::string DescribeVersion(const std::string& program);

// Returns "0.1.0, commit 0123456789ab", or the version alone where the commit was not recorded: what a
// process says of itself to others of its job.
std::string BuildVersion();

}  // namespace catchment

#endif  // CATCHMENT_COMMON_VERSION_H_
