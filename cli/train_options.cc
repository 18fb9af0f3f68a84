#include "cli/train_options.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "cli/flags.h"

namespace catchment {
namespace {

constexpr char kUsage[] = R"(catchment train JOB --out=DIR [flags]

Trains a job with servers, workers and an evaluator as processes on this machine, shows how it goes, ends them
all, and writes to DIR: summary.json, metrics.jsonl, model.safetensors (with evaluation.keep_best also
model-best.safetensors), job.textproto, checkpoints/ and logs/.

Examples:
  catchment train examples/mnist_cnn.textproto --workers=2 --out=out
  catchment train examples/mnist_cnn.textproto --servers=2 --workers=4 --set algorithm.preset=downpour \
      --set optimizer.learning_rate=0.02 --set epochs=5 --out=out-downpour
  catchment train examples/mnist_mlp.textproto --set data.drawn_digits={} --out=out-drawn     no data needed
  catchment train --program="python train.py" --workers=2 --out=out-program         a PyTorch model: docs/python.md
  catchment train --resume --out=out                  goes on from the last checkpoint in DIR

Flags:
)";

constexpr char kNotes[] = R"(
Exit code: 0: the job is done; 1: it failed; 2: wrong command line; 128 + N: signal N ended it.
SIGINT (Ctrl-C) and SIGTERM stop the job in order, with a checkpoint; a second one kills.
A worker that dies is named with the reason and its last words, and the others go on.
)";

FlagSet MakeFlags(TrainOptions* o) {
  FlagSet flags;
  flags.AddString("out", "DIR", &o->out, "Where everything goes. Required.");
  flags.AddInt("servers", "N", 1, &o->servers,
               "Server processes, among which the weights are split. Default 1.");
  flags.AddInt("workers", "N", 1, &o->workers, "Worker processes. Default: the job's `workers`, or 1.");
  flags.AddList(
      "set", "PATH=VALUE", &o->set,
      "Changes a field of the job: --set batch_size=128 --set optimizer.momentum=0.5. Any number of times.");
  flags.AddSwitch(
      "resume", &o->resume,
      "Goes on from the last checkpoint in DIR, with any number of servers and workers. JOB may be left "
      "out: the one in DIR is taken.");
  flags.AddSwitch("overwrite", &o->overwrite, "Deletes an earlier run in DIR first.");
  flags.AddSwitch("json", &o->json,
                  "Only summary.json's content on standard output, notes on standard error.");
  flags.AddSwitch(
      "evaluator", &o->evaluator,
      "A process that scores the test set while training goes on. Default true; --evaluator=false for none.");
  flags.AddInt("threads", "N", 1, &o->threads,
               "Threads of each worker. Default: this machine's processors divided between the workers.");
  flags.AddString("device", "DEVICE", &o->device,
                  "auto, cpu, cuda or cuda:INDEX, in place of the job's `device`.");
  flags.AddString(
      "program", "COMMAND", &o->program,
      "Computes the gradients in place of layers of the job: each worker starts it, with /bin/sh. JOB may be "
      "left out, and so may its `model` and `data`: the program is run once more, before, to describe them.");
  flags.AddSeconds("stall_seconds", &o->stall_seconds,
                   "Ends the job when nothing has moved for so long. Default 600.");
  flags.AddString("tls_ca", "FILE", &o->tls.ca,
                  "Authority's certificate (PEM), for mutual TLS between all processes.");
  flags.AddString("tls_cert", "FILE", &o->tls.cert, "This machine's certificate (PEM), valid for 127.0.0.1.");
  flags.AddString("tls_key", "FILE", &o->tls.key, "Its private key (PEM).");
  return flags;
}

bool IsDevice(absl::string_view device) {
  int index = 0;
  if (absl::ConsumePrefix(&device, "cuda:")) return absl::SimpleAtoi(device, &index) && index >= 0;
  return device == "auto" || device == "cpu" || device == "cuda";
}

absl::Status Check(const TrainOptions& o, const std::vector<std::string>& positional) {
  if (positional.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("takes one job, got also: ", positional[1]));
  }
  if (positional.empty() && !o.resume && o.program.empty()) {
    return absl::InvalidArgumentError(
        "which job? For example: catchment train examples/mnist_cnn.textproto --out=out");
  }
  if (o.out.empty()) return absl::InvalidArgumentError("--out=DIR is missing: where everything goes");
  if (o.resume && o.overwrite) {
    return absl::InvalidArgumentError(
        "--resume goes on with an earlier run and --overwrite deletes it: take one");
  }
  if (!o.device.empty() && !IsDevice(o.device)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--device=", o.device, ": takes auto, cpu, cuda or cuda:INDEX"));
  }
  const int tls_files = !o.tls.ca.empty() + !o.tls.cert.empty() + !o.tls.key.empty();
  if (tls_files != 0 && tls_files != 3) {
    return absl::InvalidArgumentError("mutual TLS takes all of --tls_ca, --tls_cert and --tls_key");
  }
  return absl::OkStatus();
}

// As a shell takes it.
std::string ShellQuoted(const std::string& arg) {
  const bool plain = !arg.empty() && std::all_of(arg.begin(), arg.end(), [](char c) {
    return absl::ascii_isalnum(c) || absl::StrContains("-_=./:,+@%", std::string(1, c));
  });
  if (plain) return arg;
  std::string quoted = "'";
  for (char c : arg) quoted += c == '\'' ? "'\\''" : std::string(1, c);
  return quoted + "'";
}

}  // namespace

absl::StatusOr<TrainOptions> ParseTrainOptions(const std::vector<std::string>& args) {
  TrainOptions options;
  FlagSet flags = MakeFlags(&options);
  absl::StatusOr<std::vector<std::string>> positional = flags.Parse(args);
  if (!positional.ok()) return positional.status();
  options.help = flags.help();
  if (options.help) return options;
  if (absl::Status status = Check(options, *positional); !status.ok()) return status;
  if (!positional->empty()) options.job = positional->front();
  options.args = args;
  return options;
}

std::string TrainHelp() {
  TrainOptions defaults;
  return absl::StrCat(kUsage, MakeFlags(&defaults).Describe(), kNotes);
}

std::string ResumeCommand(const TrainOptions& options) {
  std::string command = "catchment train";
  for (const std::string& arg : options.args) {
    if (!absl::StartsWith(arg, "--overwrite") && !absl::StartsWith(arg, "--resume")) {
      absl::StrAppend(&command, " ", ShellQuoted(arg));
    }
  }
  return command + " --resume";
}

}  // namespace catchment
