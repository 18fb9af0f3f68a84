// The directory of a comparison (--out):
//
//   compare.json   the record of the options and the job, written first, and of the runs' data
//   runs/NAME/     the output of one run, as written by `catchment train`, without checkpoints
//   search/NAME/   likewise, of the searches for learning rates
//   squeue.log     on Slurm: what squeue printed last
//   kubectl.log    on Kubernetes: what kubectl printed last
//   report.json, report.html
//   best.textproto the best job of `catchment tune`
//   command.lock   held by the command that uses the directory
//   catchment.claim these names, which belong to Catchment
#ifndef CATCHMENT_CLI_COMPARE_COMPARE_DIRECTORY_H_
#define CATCHMENT_CLI_COMPARE_COMPARE_DIRECTORY_H_

#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/base/run_directory.h"
#include "cli/compare/compare.h"
#include "cli/compare/compare_plan.h"
#include "cli/compare/halving.h"
#include "cli/compare/run_data.h"
#include "cli/report/comparison.h"
#include "common/base/mutex.h"
#include "nlohmann/json.hpp"

namespace catchment {

// Returns everything that determines the runs, so not --target, which affects only the report.
nlohmann::ordered_json CompareRecord(const CompareOptions& options, const v1::Job& given);

// Returns the first difference, a flag or a line of the job; empty if there is none.
std::string DescribeDifference(const nlohmann::ordered_json& before, const nlohmann::ordered_json& now);

// kNone: there is no result of the run's job; kDone: the run ended at its budget; kDiverged: its training
// diverged.
enum class RunOutcome { kNone, kDone, kDiverged };

class CompareDirectory {
 public:
  // FailedPrecondition if it contains another comparison, naming the difference, or is in use.
  static absl::StatusOr<CompareDirectory> Open(const std::string& path, bool overwrite,
                                               const nlohmann::ordered_json& record);

  // Returns the errors that Open would have for files that are not Catchment's. Changes nothing.
  static absl::Status Check(const std::string& path);

  std::string PathOf(const PlannedRun& run) const { return directory_.path() + "/" + run.directory; }
  // Returns the outcome of a run. A run on other data than those of the last run that has ended counts as
  // kNone, and is done again.
  RunOutcome OutcomeOf(const PlannedRun& run) const;
  // Compares the data of a run that has ended with those of the runs before, and records them. Threads: safe.
  void NoteEnd(const PlannedRun& run) const;
  // Returns true if the data have changed since the runs before, which are done again.
  bool data_changed() const;
  // Does the same and forgets the change, after printing it to `out`. Errors: Unavailable if the data go on
  // changing.
  absl::StatusOr<bool> TakeChange(std::ostream* out) const;

  // The initial weights of all runs, if a program described its model.
  std::string initial_weights() const { return directory_.path() + "/initial.safetensors"; }
  const std::string& path() const { return directory_.path(); }

 private:
  // The data of the runs.
  struct Data {
    Mutex mu;
    RunData last ABSL_GUARDED_BY(mu);        // of the run that has ended last, also in an earlier command
    std::string change ABSL_GUARDED_BY(mu);  // a change that TakeChange has not returned; may be empty
    int changes ABSL_GUARDED_BY(mu) = 0;
  };

  explicit CompareDirectory(LockedDirectory directory)
      : directory_(std::move(directory)), data_(std::make_unique<Data>()) {}
  absl::Status Prepare(bool overwrite, const nlohmann::ordered_json& record) const;

  // Replaces the record, or leaves it as it is.
  absl::Status WriteRecord(const nlohmann::ordered_json& record) const;

  LockedDirectory directory_;
  std::unique_ptr<Data> data_;
};

// Returns the outcome of a run from its directory at `path`.
RunOutcome OutcomeOf(const PlannedRun& run, const std::string& path);

// Reads the result of a run from its directory. A run that is not done has the reason, and no results.
RunResult CollectRun(const CompareDirectory& directory, const PlannedRun& run);

// Returns the accuracy of a run and its loss, negated, by which runs are ranked; only the loss counts if
// targets are real numbers. Nothing if the run is not done or has neither.
std::optional<TrialScore> ScoreOf(const RunResult& run);

// Returns the settings of a complete job, as the algorithm `name` of a report.
AlgorithmFacts FactsOf(const std::string& name, const v1::Job& job);

// Sets the learning rate and the momentum of a complete job.
void SetRates(const v1::Job& job, RunResult* result);

// Returns the version of this program on one line.
std::string VersionLine();

// Returns the command line for a report. Absolute paths of the job file and of --out, which another machine
// does not have, are shortened to their last names.
std::string ReportedCommand(const std::string& command, const std::vector<std::string>& args);

// The files of a report in its directory.
inline constexpr char kReportPage[] = "/report.html";
inline constexpr char kReportJson[] = "/report.json";

// Writes them to `directory`, and the answer with their paths to `out`.
absl::Status WriteReport(const Comparison& comparison, const std::string& directory, std::ostream* out);

// Writes the report of a comparison whose runs have ended, and names the runs that diverged, which is a
// result. Errors: Unavailable if all runs have failed, and, after the report, if some have; those of writing.
absl::Status Conclude(const Comparison& comparison, const std::string& directory, std::ostream* out);

// Returns the content of the report.
Comparison Collect(const CompareOptions& options, const CompareDirectory& directory, const ComparePlan& plan);

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_COMPARE_DIRECTORY_H_
