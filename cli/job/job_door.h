// Jobs for programs: requests and answers in JSON, as docs/doors.md describes them.
#ifndef CATCHMENT_CLI_JOB_JOB_DOOR_H_
#define CATCHMENT_CLI_JOB_JOB_DOOR_H_

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/job/read_job.h"
#include "proto/job.pb.h"

namespace catchment {

// The text of each field that is set, by its path: "optimizer.learning_rate".
using JobFields = std::map<std::string, std::string>;
JobFields FieldsOf(const v1::Job& job);

// Returns what is said of a flag that does not exist but would set fields of the job; empty: there are none.
std::string AdviceOfFlag(const std::string& name, const std::string& value);

// Changes a job as `clear`, `set` and `stragglers` of a request say. InvalidArgument for a field that it does
// not have.
absl::Status ChangeJob(const nlohmann::json& request, v1::Job* job);

// Returns {version: 1, valid: false, error, code} for an error.
nlohmann::ordered_json DoorError(const absl::Status& status);

// Returns an answer as a line, without a line break.
std::string DoorLine(const nlohmann::ordered_json& answer);

// Answers requests about jobs. An object is used by one thread.
class JobDoor {
 public:
  // `job` and `program` are those of the command line; they are read when a request needs them, and once.
  JobDoor(std::string job, std::string program, int servers)
      : path_(std::move(job)), program_(std::move(program)), servers_(servers) {}

  // Returns the answer to a request, which is one object. Errors are answers, too.
  nlohmann::ordered_json Answer(const std::string& request);

 private:
  absl::StatusOr<nlohmann::ordered_json> AnswerTo(const nlohmann::json& request);
  absl::StatusOr<nlohmann::ordered_json> AnswerJob(const nlohmann::json& request);
  // Returns the job that a request begins with.
  absl::StatusOr<v1::Job> Begin(const nlohmann::json& request);
  absl::StatusOr<v1::Job> OwnJob();

  const std::string path_;
  const std::string program_;
  const int servers_;
  std::optional<absl::StatusOr<v1::Job>> own_;  // absent: not read yet
  std::optional<ProgramDescription> description_;
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_JOB_JOB_DOOR_H_
