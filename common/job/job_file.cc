#include "common/job/job_file.h"

#include "absl/strings/str_cat.h"
#include "common/job/overrides.h"
#include "common/job/text_format.h"

namespace catchment {

absl::StatusOr<v1::Job> LoadJob(const std::string& path, const std::vector<std::string>& overrides) {
  const auto text = ReadTextFile(path);
  if (!text.ok()) {
    return absl::Status(text.status().code(), absl::StrCat("the job file: ", text.status().message()));
  }
  v1::Job job;
  absl::Status status = ParseText(*text, path, "", &job);
  if (status.ok()) status = ApplyOverrides(overrides, &job);
  if (!status.ok()) return status;
  return job;
}

}  // namespace catchment
