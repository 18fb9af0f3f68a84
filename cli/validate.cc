#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/job_explanation.h"
#include "cli/job_facts.h"
#include "cli/load.h"
#include "cli/program_description.h"
#include "cli/run_directory.h"
#include "common/job/job_text.h"
#include "nlohmann/json.hpp"

namespace catchment {
namespace {

constexpr char kUsage[] = R"(catchment validate JOB [flags]

Checks a job and explains it: the algorithm that its preset stands for and what that will do, the layers with
their shapes and parameters, where the weights lie and how evenly, the memory of servers and workers, the
traffic. Nothing is started.

Examples:
  catchment validate examples/mnist_cnn.textproto
  catchment validate examples/mnist_cnn.textproto --set algorithm.preset=easgd --servers=2 --workers=4
  catchment validate examples/mnist_cnn.textproto --servers=3 --json | jq '.placement[].bytes'
  catchment validate examples/mnist_cnn.textproto --set epochs=3 --workers=8 --write=job.textproto
  catchment validate --program="python train.py" --workers=8 --write=job.textproto

Flags:
)";

struct Options {
  std::vector<std::string> set;
  int servers = 1;
  int workers = 0;
  bool json = false;
  std::string program;
  std::string write;
};

FlagSet MakeFlags(Options* o) {
  FlagSet flags;
  flags.AddList("set", "PATH=VALUE", &o->set, "Changes a field of the job. Any number of times.");
  flags.AddInt("servers", "N", 1, &o->servers, "Servers among which the weights are split. Default 1.");
  flags.AddInt("workers", "N", 1, &o->workers, "Workers. Default: the job's `workers`, or 1.");
  flags.AddSwitch("json", &o->json, "Prints the figures as one JSON object, an invalid job's errors too.");
  flags.AddString(
      "write", "FILE", &o->write,
      "Writes the job there, with the changes and every default, for daemons that are started one by "
      "one: they take no --set. The weights that a program described go beside it, as FILE.safetensors.");
  flags.AddString("program", "COMMAND", &o->program,
                  "Describes the model of JOB, which may then be left out: docs/python.md.");
  return flags;
}

// *complete: the job with the changes and every default, as text.
absl::StatusOr<std::string> Explain(const std::string& path, const Options& options, std::string* complete) {
  std::optional<ProgramDescription> description;
  absl::StatusOr<v1::Job> job = ReadJob(path, options.program, /*signals=*/nullptr, &description);
  if (job.ok()) job = CompleteJob(*std::move(job), options.set, options.workers);
  if (!job.ok()) return job.status();
  if (description.has_value() && !options.write.empty()) {
    if (absl::Status status = description->KeepWeights(options.write + ".safetensors", &*job); !status.ok()) {
      return status;
    }
  }
  const absl::StatusOr<JobFacts> facts = JobFacts::Create(*job, options.servers);
  if (!facts.ok()) return facts.status();
  *complete = JobText(*job);
  return options.json ? JobToJson(*facts).dump(2) + "\n" : ExplainJob(*facts);
}

nlohmann::ordered_json ErrorsToJson(const absl::Status& status) {
  const std::vector<std::string> lines = absl::StrSplit(status.message(), '\n', absl::SkipEmpty());
  return {{"valid", false}, {"errors", lines}};
}

}  // namespace

std::string ValidateHelp() {
  Options defaults;
  return absl::StrCat(
      kUsage, MakeFlags(&defaults).Describe(),
      "\nExit code: 0 for a valid job, 1 for another one (all errors are listed), 2 for a wrong command "
      "line.\n");
}

int RunValidate(const std::vector<std::string>& args, std::ostream* out, std::ostream* err) {
  Options options;
  FlagSet flags = MakeFlags(&options);
  const absl::StatusOr<std::vector<std::string>> positional = flags.Parse(args);
  if (!positional.ok()) {
    *err << "catchment validate: " << positional.status().message() << '\n';
    return 2;
  }
  if (flags.help()) {
    *out << ValidateHelp();
    return 0;
  }
  if (positional->size() > 1 || (positional->empty() && options.program.empty())) {
    *err << "catchment validate: takes one job, for example: catchment validate "
            "examples/mnist_cnn.textproto\n";
    return 2;
  }
  std::string complete;
  const std::string path = positional->empty() ? "" : positional->front();
  const absl::StatusOr<std::string> text = Explain(path, options, &complete);
  if (!text.ok() && options.json) {
    *out << ErrorsToJson(text.status()).dump(2) << '\n';
    return 1;
  }
  if (!text.ok()) {
    *err << (path.empty() ? "the job" : path) << " is not valid:\n" << text.status().message() << '\n';
    return 1;
  }
  if (!options.write.empty()) {
    if (const absl::Status status = WriteFile(options.write, complete); !status.ok()) {
      *err << "catchment validate: " << status.message() << '\n';
      return 1;
    }
  }
  *out << *text;
  return 0;
}

}  // namespace catchment
