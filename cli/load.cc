#include "cli/load.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/job/job_file.h"
#include "common/job/validate.h"

namespace catchment {

absl::StatusOr<v1::Job> LoadCompleteJob(const std::string& path, std::vector<std::string> set, int workers) {
  const bool overridden = std::any_of(set.begin(), set.end(),
                                      [](const std::string& s) { return absl::StartsWith(s, "workers="); });
  if (workers > 0 && !overridden) set.push_back(absl::StrCat("workers=", workers));
  absl::StatusOr<v1::Job> job = LoadJob(path, set);
  if (!job.ok()) return job.status();
  return FillDefaultsAndValidate(*std::move(job));
}

}  // namespace catchment
