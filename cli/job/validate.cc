#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "cli/base/run_directory.h"
#include "cli/base/terminal.h"
#include "cli/job/commands.h"
#include "cli/job/job_door.h"
#include "cli/job/job_explanation.h"
#include "cli/job/job_facts.h"
#include "cli/job/read_job.h"
#include "common/base/atomic_file.h"
#include "common/base/directory_lock.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/job/job_text.h"
#include "common/job/presets.h"
#include "common/job/text_format.h"
#include "common/program/command_line.h"
#include "nlohmann/json.hpp"

namespace catchment {
namespace {

constexpr char kUsage[] = R"(catchment validate JOB [flags]

Checks a job and explains it: the preset's algorithm and its effect, the layers with their shapes and
parameters, the placement of the weights on servers, the memory of servers and workers, and the traffic. It
starts nothing.

Examples:
  catchment validate examples/mnist_cnn.textproto
  catchment validate examples/mnist_cnn.textproto --set algorithm.preset=easgd --servers=2 --workers=4
  catchment validate examples/mnist_cnn.textproto --servers=3 --json | jq '.placement[].bytes'
  catchment validate examples/mnist_cnn.textproto --set epochs=3 --workers=8 --write=job.textproto
  catchment validate --program="python train.py" --workers=8 --write=job.textproto
)";

constexpr char kNotes[] =
    "\nExit code: 0: the job is valid; 1: it is not (all errors are listed); 2: wrong command line.\n";

struct Options {
  std::string job;  // file; may be empty with a program
  std::vector<std::string> set;
  int servers = 1;
  int workers = 0;
  bool json = false;
  std::string program;
  std::string write;
  int claim = -1;
  bool overwrite = false;
  bool door = false;
};

CommandLine MakeCommandLine(Options* o) {
  CommandLine line{.name = "catchment validate", .usage = kUsage, .notes = kNotes};
  line.notes += HangingParagraph("Presets of algorithms: ", absl::StrCat(ListPresets(), "."), 2, 100);
  line.argument = {"JOB", "examples/mnist_cnn.textproto", &o->job,
                   [o] { return !o->program.empty() || o->door; }};
  AddSetFlag(&o->set, &line.flags);
  line.flags.AddInt("servers", "N", 1, &o->servers,
                    "Servers between which the weights are split. Default 1.");
  line.flags.AddInt("workers", "N", 1, &o->workers, "Workers. Default: the job's `workers`, or 1.");
  line.flags.AddSwitch("json", &o->json,
                       "Prints the figures, or the errors of an invalid job, as one JSON object.");
  line.flags.AddString(
      "write", "FILE", &o->write,
      "Writes the job to FILE, with the changes and all defaults, for daemons that are started one by one, "
      "since they have no --set. Weights described by a program are written to FILE.safetensors.");
  // For scripts that start daemons: the number of an open file, DIR/command.lock of the directory of --write.
  line.flags.AddInt("claim", "FD", 0, &o->claim, "");
  // Deletes an earlier run in the directory that is claimed.
  line.flags.AddSwitch("overwrite", &o->overwrite, "");
  // For programs: docs/doors.md.
  line.flags.AddSwitch("door", &o->door, "");
  line.flags.AddString("program", "COMMAND", &o->program,
                       "Describes the model of the job; JOB may be left out then: docs/python.md.");
  return line;
}

// Returns the explanation, and in *complete the text of the job with the changes and all defaults.
absl::StatusOr<std::string> Explain(const Options& options, std::string* complete) {
  std::optional<ProgramDescription> description;
  ASSIGN_OR_RETURN(v1::Job job, ReadJob(options.job, options.program, /*signals=*/nullptr, &description));
  ASSIGN_OR_RETURN(job, CompleteJob(std::move(job), options.set, options.workers));
  if (description.has_value() && !options.write.empty()) {
    RETURN_IF_ERROR(description->KeepWeights(options.write + ".safetensors", &job));
  }
  ASSIGN_OR_RETURN(const JobFacts facts, JobFacts::Create(job, options.servers));
  *complete = JobText(job);
  if (options.json) return JobToJson(facts).dump(2) + "\n";
  const std::vector<std::string> shortages = DescribeShortages(facts, /*directory=*/"");
  return absl::StrCat(ExplainJob(facts), shortages.empty() ? "" : "\n",
                      HangingParagraph("", absl::StrJoin(shortages, " "), 0, ProseColumns(100)));
}

// Daemons may be reading the file, which is therefore replaced.
absl::Status WriteJob(const std::string& path, const std::string& text) {
  std::error_code error;
  const bool replaces = std::filesystem::is_regular_file(path, error);
  return replaces ? WriteAtomically(path, text) : WriteFile(path, text, FileNamedBy::kUser);
}

nlohmann::ordered_json ErrorsToJson(const absl::Status& status) {
  const std::vector<std::string> lines = absl::StrSplit(status.message(), '\n', absl::SkipEmpty());
  return {{"version", 1}, {"valid", false}, {"errors", lines}};
}

std::string DirectoryOfClaim(const Options& options) {
  return std::filesystem::absolute(options.write).parent_path();
}

// Locks the directory that the job is written to as `catchment train` does, for the process that has started
// this command. Errors: FailedPrecondition if another command or a master uses it.
absl::Status Claim(const Options& options) {
  if (options.claim < 0) return absl::OkStatus();
  const std::string directory = DirectoryOfClaim(options);
  RETURN_IF_ERROR(DirectoryLock::TakeForCaller(directory, options.claim, {"command.lock", "another run"}));
  return DirectoryLock::Take(directory).status();
}

// Returns an error if --write would replace a file that an earlier --write has not written: its text is not
// that of a complete job.
absl::Status CheckMayReplace(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error) || std::filesystem::is_empty(path, error))
    return absl::OkStatus();
  // An earlier version has filled in the defaults that it had.
  const absl::StatusOr<v1::Job> job = LoadJob(path);
  const bool is_complete = job.ok() && job->has_faults() && job->has_checkpoint();
  if (is_complete && ReadTextFile(path).value_or("") == JobText(*job)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "--write=", path, " exists, and was not written by this command: choose another file, or delete it"));
}

int ServeDoor(const Options& options, std::istream* in, std::ostream* out) {
  JobDoor door(options.job, options.program, options.servers);
  for (std::string request; std::getline(*in, request);) *out << DoorLine(door.Answer(request)) << std::endl;
  return 0;
}

absl::StatusOr<int> Validate(const Options& options, const Streams& streams) {
  if (options.door) return ServeDoor(options, &std::cin, streams.out);
  RETURN_IF_ERROR(Claim(options));
  if (!options.write.empty()) RETURN_IF_ERROR(CheckMayReplace(options.write));
  std::string complete;
  const absl::StatusOr<std::string> text = Explain(options, &complete);
  if (!text.ok() && options.json) {
    *streams.out << ErrorsToJson(text.status()).dump(2) << '\n';
    return kExitFailed;
  }
  if (!text.ok()) return PrintInvalid(options.job, text.status(), streams.err);
  if (options.claim >= 0 && options.overwrite) RETURN_IF_ERROR(DeleteRun(DirectoryOfClaim(options)));
  if (!options.write.empty()) RETURN_IF_ERROR(WriteJob(options.write, complete));
  if (options.claim >= 0) {
    const std::string name = std::filesystem::path(options.write).filename();
    RETURN_IF_ERROR(ClaimForBatch(DirectoryOfClaim(options), name));
  }
  *streams.out << *text;
  return 0;
}

}  // namespace

int RunValidate(const std::vector<std::string>& args, const Streams& streams) {
  Options options;
  CommandLine line = MakeCommandLine(&options);
  return RunCommandLine(&line, args, streams.out, streams.err, [&] { return Validate(options, streams); });
}

}  // namespace catchment
