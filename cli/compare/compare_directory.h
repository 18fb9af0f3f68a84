// The directory of a comparison (--out):
//
//   compare.json   what is compared; written first
//   runs/NAME/     one run each, as `catchment train` leaves it, without checkpoints
//   search/NAME/   probes of --search
//   report.json, report.html
#ifndef CATCHMENT_CLI_COMPARE_COMPARE_DIRECTORY_H_
#define CATCHMENT_CLI_COMPARE_COMPARE_DIRECTORY_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/compare/compare_options.h"
#include "cli/compare/compare_plan.h"
#include "cli/report/comparison.h"
#include "nlohmann/json.hpp"

namespace catchment {

// All that the runs follow from; what only the report does (--target) is not in it.
nlohmann::ordered_json CompareRecord(const CompareOptions& options, const v1::Job& given);

// What differs, named as the flag or as the job's lines; empty when nothing does.
std::string DescribeDifference(const nlohmann::ordered_json& before, const nlohmann::ordered_json& now);

// While it lives, no other comparison can use the directory.
class CompareDirectory {
 public:
  // FailedPrecondition when it holds another comparison, naming the difference, or is in use.
  static absl::StatusOr<CompareDirectory> Open(const std::string& path, bool overwrite,
                                               const nlohmann::ordered_json& record);

  CompareDirectory(CompareDirectory&& other) noexcept;
  CompareDirectory& operator=(CompareDirectory&& other) = delete;
  ~CompareDirectory();

  std::string PathOf(const PlannedRun& run) const { return path_ + "/" + run.directory; }
  // That all runs start from, where a program described its model.
  std::string initial_weights() const { return path_ + "/initial.safetensors"; }
  std::string report_json() const { return path_ + "/report.json"; }
  std::string report_html() const { return path_ + "/report.html"; }

 private:
  CompareDirectory(std::string path, int lock_fd) : path_(std::move(path)), lock_fd_(lock_fd) {}
  absl::Status Prepare(bool overwrite, const nlohmann::ordered_json& record) const;

  std::string path_;
  int lock_fd_ = -1;
};

// Whether the directory at `path` has all of the run: it ended as its budget wants, with the very same job.
bool IsDone(const PlannedRun& run, const std::string& path);

// From the directories of runs to what a report is made of.
// A run that has not ended as its budget wants is there with the reason, and without results.
RunResult CollectRun(const CompareDirectory& directory, const PlannedRun& run);

// Of the probes that are done, the one with the best accuracy, of equal ones, and of real targets, with the
// lowest loss; -1: none is.
int BestProbe(const std::vector<RunResult>& probes);

Comparison Collect(const CompareOptions& options, const CompareDirectory& directory, const ComparePlan& plan,
                   const FoundHyperparameters& found);

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_COMPARE_DIRECTORY_H_
