#include "cli/load.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/job/job_text.h"
#include "common/job/text_format.h"
#include "common/job/validate.h"

namespace catchment {

absl::StatusOr<v1::Job> LoadCompleteJob(const std::string& path, std::vector<std::string> set, int workers) {
  absl::StatusOr<v1::Job> job = LoadJob(path, {});
  if (!job.ok()) return job.status();
  return CompleteJob(*std::move(job), std::move(set), workers);
}

absl::StatusOr<v1::Job> CompleteJob(v1::Job job, std::vector<std::string> set, int workers) {
  const bool overridden = std::any_of(set.begin(), set.end(),
                                      [](const std::string& s) { return absl::StartsWith(s, "workers="); });
  if (workers > 0 && !overridden) set.push_back(absl::StrCat("workers=", workers));
  if (absl::Status status = ApplyOverrides(set, &job); !status.ok()) return status;
  return FillDefaultsAndValidate(std::move(job));
}

}  // namespace catchment
