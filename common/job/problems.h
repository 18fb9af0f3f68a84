// The problems of a job that is not valid. Each has the path of a field, a reason, and a human-readable text
// with the value, the cause and the remedy. A program compares paths and reasons, which a new wording does
// not change.
#ifndef CATCHMENT_COMMON_JOB_PROBLEMS_H_
#define CATCHMENT_COMMON_JOB_PROBLEMS_H_

#include <cmath>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace catchment {

enum class Reason {
  kRange,     // the field cannot have this value
  kMissing,   // it is empty, or not set
  kUnknown,   // it names something that does not exist
  kUnused,    // nothing in this job reads it
  kNeeds,     // it needs other fields to be set
  kConflict,  // it cannot be combined with the value of another field
  kModel,     // the layer does not fit its input, or the data
};

struct Problem {
  std::string path;
  Reason reason = Reason::kRange;
  std::string text;
};

// Gathers problems.
class Problems {
 public:
  void Add(const std::string& path, Reason reason, const std::string& text) {
    list_.push_back({path, reason, text});
  }
  // Adds problems from lines of the form "path: text", or "text" if the problem is not one of a field.
  void AddLines(absl::string_view lines, Reason reason) {
    for (const absl::string_view line : absl::StrSplit(lines, '\n')) {
      const size_t end = line.find(": ");
      const bool has_path = end != absl::string_view::npos && line.find(' ') > end;
      Add(std::string(has_path ? line.substr(0, end) : ""), reason,
          std::string(has_path ? line.substr(end + 2) : line));
    }
  }

  template <typename T>
  void Require(bool holds, const std::string& path, T value, const std::string& rule) {
    if (!holds) Add(path, Reason::kRange, absl::StrCat("is ", value, "; ", rule));
  }

  // Comparisons with a NaN are false, so none passes.
  template <typename T>
  void AtLeast(T low, const std::string& path, T value) {
    Require(value >= low, path, value, absl::StrCat("must be at least ", low));
  }
  template <typename T>
  void Within(T low, T high, const std::string& path, T value) {
    Require(value >= low && value <= high, path, value, absl::StrCat("must be from ", low, " to ", high));
  }
  void BelowOne(const std::string& path, double value) {
    Require(value >= 0 && value < 1, path, value, "must be in [0, 1)");
  }
  void Positive(const std::string& path, double value) {
    Require(value > 0 && std::isfinite(value), path, value, "must be a number above 0");
  }

  const std::vector<Problem>& list() const { return list_; }
  // Returns InvalidArgument with such a line for each problem; OK without any.
  absl::Status ToStatus() const {
    if (list_.empty()) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrJoin(list_, "\n", [](std::string* lines, const Problem& problem) {
          absl::StrAppend(lines, problem.path, problem.path.empty() ? "" : ": ", problem.text);
        }));
  }

 private:
  std::vector<Problem> list_;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_PROBLEMS_H_
