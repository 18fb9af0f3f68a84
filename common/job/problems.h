// The problems of a job, gathered over all checks, so that a user sees all of them at once.
#ifndef CATCHMENT_COMMON_JOB_PROBLEMS_H_
#define CATCHMENT_COMMON_JOB_PROBLEMS_H_

#include <cmath>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace catchment {

// Gathers problems, one on each line.
class Problems {
 public:
  void Add(const std::string& path, const std::string& text) {
    lines_.push_back(absl::StrCat(path, ": ", text));
  }
  void AddLines(const std::string& lines) { lines_.push_back(lines); }

  template <typename T>
  void Require(bool holds, const std::string& path, T value, const std::string& rule) {
    if (!holds) Add(path, absl::StrCat("is ", value, "; ", rule));
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

  bool empty() const { return lines_.empty(); }
  const std::vector<std::string>& lines() const { return lines_; }
  absl::Status ToStatus() const {
    return lines_.empty() ? absl::OkStatus() : absl::InvalidArgumentError(absl::StrJoin(lines_, "\n"));
  }

 private:
  std::vector<std::string> lines_;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_PROBLEMS_H_
