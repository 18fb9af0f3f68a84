#include "cli/job/read_job.h"

#include <signal.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/base/process.h"
#include "cli/job/job_door.h"
#include "common/base/atomic_file.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/job/job_text.h"
#include "common/job/text_format.h"
#include "common/job/validate.h"

namespace catchment {
namespace {

constexpr double kLookSeconds = 0.05;
constexpr int kTailLines = 8;

std::string WeightsFile(const std::string& directory) { return directory + "/weights.safetensors"; }

absl::Status NoDescription(const std::string& command, const std::string& how,
                           const std::vector<std::string>& tail) {
  return absl::InternalError(absl::StrCat(
      "the program `", command, "` ", how,
      " without describing its model: does it call catchment.join()? The last ",
      "lines that it printed:\n    ", tail.empty() ? "(nothing)" : absl::StrJoin(tail, "\n    ")));
}

// Returns an error if the shell could not start the command.
absl::Status CheckStarted(const std::string& command, const ProcessEnd& end,
                          const std::vector<std::string>& last_line) {
  constexpr int kNotExecutable = 126, kNotFound = 127;
  if (end.exit_code != kNotExecutable && end.exit_code != kNotFound) return absl::OkStatus();
  const std::string file = command.substr(0, command.find(' '));
  std::error_code error;
  const bool script = absl::EndsWith(file, ".py") || std::filesystem::is_regular_file(file, error);
  return absl::InternalError(
      absl::StrCat("the program `", command, "` could not be started (", absl::StrJoin(last_line, ""), ")",
                   script ? absl::StrCat(": name its interpreter, --program=\"python ", command, "\"")
                          : ": --program is a command for /bin/sh, such as \"python train.py\""));
}

}  // namespace

absl::StatusOr<ProgramDescription> ProgramDescription::Ask(const std::string& command,
                                                           SignalWaiter* signals) {
  ASSIGN_OR_RETURN(TemporaryDirectory directory, TemporaryDirectory::Create("catchment-program"));
  ProgramDescription description(std::move(directory));
  RETURN_IF_ERROR(description.Run(command, signals));
  RETURN_IF_ERROR(description.Read(command));
  return description;
}

absl::Status ProgramDescription::Run(const std::string& command, SignalWaiter* signals) const {
  ASSIGN_OR_RETURN(Process process, Process::Start({.name = "the program",
                                                    .argv = {"/bin/sh", "-c", command},
                                                    .log = directory_.path() + "/log",
                                                    .defaults = {"CATCHMENT_DESCRIBE=" + directory_.path()},
                                                    .ends_group = true}));
  std::optional<ProcessEnd> end;
  while (!(end = process.WaitFor(kLookSeconds)).has_value()) {
    const int signal = signals == nullptr ? 0 : signals->Wait(kLookSeconds);
    if (signal != 0 && signal != SIGCHLD) return absl::AbortedError("stopped before training began");
  }
  if (end->in_order()) return absl::OkStatus();
  RETURN_IF_ERROR(CheckStarted(command, *end, process.LastLines(1)));
  return NoDescription(command, absl::StrCat("ended (", ToString(*end), ")"), process.LastLines(kTailLines));
}

absl::Status ProgramDescription::Read(const std::string& command) {
  const std::string file = directory_.path() + "/model.textproto";
  const absl::StatusOr<std::string> text = ReadTextFile(file);
  if (!text.ok()) {
    const absl::StatusOr<std::string> log = ReadTextFile(directory_.path() + "/log");
    return NoDescription(command, "ended (exit code 0)", LastLines(log.value_or(""), kTailLines));
  }
  RETURN_IF_ERROR(ParseText(*text, file, "", &part_));
  part_.mutable_model()->set_initial_weights(WeightsFile(directory_.path()));
  // Notes about what the job will not do; programs in other languages need not write any.
  std::cerr << EscapeControls(ReadTextFile(directory_.path() + "/notes").value_or("")) << std::flush;
  return absl::OkStatus();
}

absl::Status ProgramDescription::KeepWeights(const std::string& path, v1::Job* job) const {
  if (job->model().initial_weights() != WeightsFile(directory_.path())) return absl::OkStatus();
  job->mutable_model()->set_initial_weights(std::filesystem::absolute(path).lexically_normal());
  return CopyWeights(path);
}

absl::Status ProgramDescription::CopyWeights(const std::string& path) const {
  return CopyAtomically(WeightsFile(directory_.path()), path);
}

absl::StatusOr<v1::Job> ReadJob(const std::string& path, const std::string& program, SignalWaiter* signals,
                                std::optional<ProgramDescription>* description) {
  v1::Job job;
  if (!path.empty()) {
    ASSIGN_OR_RETURN(job, LoadJob(path, {}));
  }
  if (program.empty() || job.model().has_external()) return job;
  if (job.model().layers_size() > 0 || job.model().has_synthetic() || job.data().source_case() != 0) {
    return absl::InvalidArgumentError(
        "model, data: the program of --program defines both; "
        "remove them from the job file, or omit --program");
  }
  ASSIGN_OR_RETURN(ProgramDescription asked, ProgramDescription::Ask(program, signals));
  description->emplace(std::move(asked));
  v1::Job described = (*description)->part();
  // The job's own groups replace the program's: a group's place in the list counts.
  if (job.optimizer().groups_size() > 0) described.mutable_optimizer()->clear_groups();
  described.MergeFrom(job);
  return described;
}

absl::StatusOr<v1::Job> LoadCompleteJob(const std::string& path, std::vector<std::string> set, int workers) {
  ASSIGN_OR_RETURN(v1::Job job, LoadJob(path, {}));
  return CompleteJob(std::move(job), std::move(set), workers);
}

absl::StatusOr<v1::Job> CompleteJob(v1::Job job, std::vector<std::string> set, int workers) {
  const bool overridden = std::any_of(set.begin(), set.end(),
                                      [](const std::string& s) { return absl::StartsWith(s, "workers="); });
  if (workers > 0 && !overridden) set.push_back(absl::StrCat("workers=", workers));
  RETURN_IF_ERROR(ApplyOverrides(set, &job));
  return FillDefaultsAndValidate(std::move(job));
}

std::string AdviceOfFlag(const std::string& name, const std::string& value) {
  const std::string field = FieldOfFlag(name);
  if (field.empty()) return "";
  return absl::StrCat(field, absl::StrContains(field, " or ") ? " are fields" : " is a field",
                      " of the job: --set ", field.substr(0, field.find(' ')), "=",
                      value.empty() ? "VALUE" : value);
}

void AddSetFlag(std::vector<std::string>* set, FlagSet* flags) {
  flags->AddList("set", "PATH=VALUE", set,
                 "Changes a field of the job: --set batch_size=128 --set "
                 "optimizer.momentum=0.5. May be repeated.");
  flags->SetAdvice(AdviceOfFlag);
}

int PrintInvalid(const std::string& path, const absl::Status& status, std::ostream* err) {
  if (!absl::IsInvalidArgument(status)) {
    *err << "catchment: " << status.message() << '\n';
    return kExitFailed;
  }
  *err << (path.empty() ? "the job" : path) << " is not valid:\n" << status.message() << '\n';
  return kExitFailed;
}

}  // namespace catchment
