// The problems of a job as a line that a new wording does not change.
#ifndef CATCHMENT_TESTS_COMMON_JOB_FOUND_PROBLEMS_H_
#define CATCHMENT_TESTS_COMMON_JOB_FOUND_PROBLEMS_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "common/job/validate.h"

namespace catchment {

inline const char* NameOf(Reason reason) {
  switch (reason) {
    case Reason::kRange:
      return "range";
    case Reason::kMissing:
      return "missing";
    case Reason::kUnknown:
      return "unknown";
    case Reason::kUnused:
      return "unused";
    case Reason::kNeeds:
      return "needs";
    case Reason::kConflict:
      return "conflict";
    case Reason::kModel:
      return "model";
  }
  return "?";
}

// Returns "optimizer.momentum range, epochs range"; empty if the job is valid.
inline std::string FoundProblems(v1::Job job) {
  const Problems problems = FillDefaultsAndCheck(&job);
  std::string found;
  for (const Problem& problem : problems.list())
    absl::StrAppend(&found, found.empty() ? "" : ", ", problem.path, " ", NameOf(problem.reason));
  return found;
}

}  // namespace catchment

#endif  // CATCHMENT_TESTS_COMMON_JOB_FOUND_PROBLEMS_H_
