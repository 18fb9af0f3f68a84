#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "cli/local_cluster.h"

namespace catchment {
namespace {

namespace fs = std::filesystem;

absl::StatusOr<std::string> FindDaemon(const fs::path& directory, const std::string& folder,
                                       const std::string& program) {
  const fs::path beside = directory / program;
  const fs::path neighbour = directory.parent_path() / folder / program;
  for (const fs::path& path : {beside, neighbour}) {
    if (access(path.c_str(), X_OK) == 0 && fs::is_regular_file(path)) return path.string();
  }
  return absl::NotFoundError(absl::StrCat("no program ", program, ": looked for ", beside.string(), " and ",
                                          neighbour.string(), "; build it with: bazel build //", folder, ":",
                                          program));
}

}  // namespace

absl::StatusOr<DaemonPaths> FindDaemons(const std::string& directory) {
  absl::StatusOr<std::string> server = FindDaemon(directory, "server", "catchment_server");
  if (!server.ok()) return server.status();
  absl::StatusOr<std::string> worker = FindDaemon(directory, "worker", "catchment_worker");
  if (!worker.ok()) return worker.status();
  return DaemonPaths{*std::move(server), *std::move(worker)};
}

absl::StatusOr<std::string> OwnDirectory() {
  std::error_code error;
  const fs::path self = fs::read_symlink("/proc/self/exe", error);
  if (error) return absl::UnavailableError(absl::StrCat("cannot read /proc/self/exe: ", error.message()));
  return self.parent_path().string();
}

absl::StatusOr<DaemonPaths> FindOwnDaemons() {
  const absl::StatusOr<std::string> here = OwnDirectory();
  if (!here.ok()) return here.status();
  return FindDaemons(*here);
}

}  // namespace catchment
