#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cli/base/process.h"
#include "cli/job/read_job.h"
#include "cli/local/train.h"

namespace catchment {
namespace {

constexpr char kUsage[] = R"(catchment train JOB [flags]

Trains a job with servers, workers and an evaluator as processes on this machine, shows the progress, and ends
them. Writes to the directory of --out: summary.json, metrics.jsonl, model.safetensors (with
evaluation.keep_best also model-best.safetensors), job.textproto, checkpoints/ and logs/.

Examples:
  catchment train examples/mnist_cnn.textproto --workers=2 --out=out
  catchment train examples/mnist_cnn.textproto --servers=2 --workers=4 --set algorithm.preset=downpour \
      --set optimizer.learning_rate=0.02 --set epochs=5 --out=out-downpour
  catchment train examples/mnist_mlp.textproto --set data.drawn_digits={} --out=out-drawn     no data needed
  catchment train --program="python train.py" --workers=2 --out=out-program     a PyTorch model: docs/python.md
  catchment train --resume --out=out                  resumes from the last checkpoint in DIR
  catchment train JOB --resume=auto --out=out         starts or continues: for scripts that may be repeated
)";

constexpr char kNotes[] = R"(
Exit code: 0: the job is done; 1: it failed; 2: wrong command line; 128 + N: signal N ended it.
SIGINT (Ctrl-C) and SIGTERM stop the job after saving a checkpoint; a second one kills its processes. SIGUSR1,
SIGUSR2 and SIGXCPU, with which batch systems warn of a limit, stop it, too.
If a worker dies, the reason and the end of its log are printed, and the others continue.
)";

bool IsDevice(const std::string& text) {
  const std::string lower = absl::AsciiStrToLower(text);
  absl::string_view device = lower;
  int index = 0;
  if (absl::ConsumePrefix(&device, "cuda:")) return absl::SimpleAtoi(device, &index) && index >= 0;
  return device == "auto" || device == "cpu" || device == "cuda";
}

absl::Status Check(const TrainOptions& o) {
  if (o.out.empty()) return absl::InvalidArgumentError("--out=: needs a directory");
  if (o.resume != AutoSwitch::kOff && o.overwrite) {
    return absl::InvalidArgumentError(
        "--resume continues an earlier run and --overwrite deletes it: choose one");
  }
  if (!o.device.empty() && !IsDevice(o.device)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device=", o.device, ": takes auto, cpu, cuda or cuda:INDEX"));
  }
  return absl::OkStatus();
}

}  // namespace

CommandLine TrainCommandLine(TrainOptions* o) {
  CommandLine line{.name = "catchment train", .usage = kUsage, .notes = kNotes};
  line.argument = {"JOB", "examples/mnist_cnn.textproto --out=out", &o->job,
                   [o] { return o->resume == AutoSwitch::kOn || !o->program.empty(); }};
  FlagSet& flags = line.flags;
  flags.AddString("out", "DIR", &o->out, "Directory for all output. Default out.");
  flags.AddInt("workers", "N", 1, &o->workers, "Worker processes. Default: the job's `workers`, or 1.");
  AddSetFlag(&o->set, &flags);
  flags.AddInt("servers", "N", 1, &o->servers,
               "Server processes, between which the weights are split. Default 1, or 2 with faults.standby.");
  flags.AddString("device", "DEVICE", &o->device,
                  "auto, cpu, cuda or cuda:INDEX. Overrides the job's `device`.");
  flags.AddString(
      "program", "COMMAND", &o->program,
      "Computes the gradients instead of the job's layers; each worker starts it with /bin/sh. JOB, or its "
      "`model` and `data`, may be left out: the program is then first run once to describe them.");
  flags.AddInt("threads", "N", 1, &o->threads,
               "Threads of each worker. Default: this machine's processors divided between the workers.");
  flags.AddAutoSwitch(
      "resume", &o->resume,
      "Resumes from the last checkpoint in DIR, with any number of servers and workers. Without JOB and "
      "--program it uses those in DIR. auto: resumes if there is a checkpoint, and begins otherwise.");
  flags.AddSwitch("overwrite", &o->overwrite, "Deletes an earlier run in DIR first.");
  flags.AddSwitch("verbose", &o->verbose, "Prints all measurements and a table of the workers at the end.");
  flags.AddSwitch("json", &o->json,
                  "Prints only the content of summary.json to standard output, and notes to standard error.");
  flags.AddSwitch(
      "evaluator", &o->evaluator,
      "Starts a process that scores the test set during training; --no-evaluator does not. Default true.");
  flags.AddString("trace", "DIR", &o->trace,
                  "Records a timeline of all processes in DIR, which `catchment trace DIR` joins into a "
                  "file for Perfetto. Default: none.");
  flags.AddString(
      "stage", "DIR", &o->stage,
      "Copies the images or packed shards of the job's data to this directory first, such as a local disk's; "
      "the workers share the copy, and the last one removes it. Default: the data are read where they are.");
  flags.AddSwitch("no_shared_memory", &o->no_shared_memory,
                  "Sends gradients and weights over sockets instead of through shared "
                  "memory: --set shared_memory=false.");
  flags.AddSeconds("stall_seconds", &o->stall_seconds,
                   "Ends the job after this time without progress. Default 600.");
  // For comparisons: docs/doors.md.
  flags.AddNumber("seconds", &o->seconds, "");
  flags.AddInt("evaluator_nice", "N", 0, &o->evaluator_nice, "");
  flags.AddSwitch("door", &o->door, "");
  line.check = [o] { return Check(*o); };
  return line;
}

std::string ResumeCommand(const TrainOptions& options) {
  std::vector<std::string> kept;
  for (const std::string& arg : options.args) {
    if (!absl::StartsWith(arg, "--overwrite") && !absl::StartsWith(arg, "--resume")) kept.push_back(arg);
  }
  return ShellCommand("catchment train", kept) + " --resume";
}

}  // namespace catchment
