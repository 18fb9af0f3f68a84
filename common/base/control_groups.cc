#include "common/base/control_groups.h"

#include "absl/algorithm/container.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/file_access.h"

namespace catchment {
namespace {

void AddGroupAndAncestors(const std::string& mount, std::string path, std::vector<std::string>* groups) {
  groups->push_back(mount);
  for (; path.size() > 1; path.erase(path.rfind('/'))) groups->push_back(mount + path);
}

}  // namespace

std::vector<std::string> ControlGroups(const std::string& controller, const std::string& root) {
  const std::string mounts = root + "/sys/fs/cgroup";
  const absl::StatusOr<std::string> lines = ReadFile(root + "/proc/self/cgroup");
  std::vector<std::string> groups;
  if (!lines.ok()) return groups;
  // HIERARCHY:CONTROLLERS:PATH; without controllers in version 2.
  for (const absl::string_view line : absl::StrSplit(*lines, '\n')) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3 || fields[2].rfind('/', 0) != 0) continue;
    const std::vector<std::string> controllers = absl::StrSplit(fields[1], ',');
    if (fields[1].empty()) {
      AddGroupAndAncestors(mounts, fields[2], &groups);
      AddGroupAndAncestors(mounts + "/unified", fields[2], &groups);
    } else if (absl::c_linear_search(controllers, controller)) {
      AddGroupAndAncestors(absl::StrCat(mounts, "/", fields[1]), fields[2], &groups);
      AddGroupAndAncestors(absl::StrCat(mounts, "/", controller), fields[2], &groups);
    }
  }
  return groups;
}

std::string FirstLine(const std::string& path) {
  const absl::StatusOr<std::string> content = ReadFile(path);
  return content.ok() ? content->substr(0, content->find('\n')) : "";
}

}  // namespace catchment
