#include "cli/compare/compare_options.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/flags.h"
#include "common/job/presets.h"
#include "common/nearest_name.h"
#include "common/text.h"

namespace catchment {
namespace {

constexpr char kUsage[] = R"(catchment compare JOB --algorithms=A,B,... --out=DIR [flags]

Trains the job with each algorithm, each number of workers and each seed, one run after another on this machine, with
the same data, initial weights and budget, and writes report.html and report.json to DIR. Started again after an
interruption, it runs only what is missing.

Examples:
  catchment compare examples/mnist_mlp.textproto --algorithms=sync,downpour,easgd --out=out
  catchment compare examples/mnist_mlp.textproto --algorithms=sync,downpour,staleness_aware,easgd \
      --workers=1,2,4 --seeds=3 --budget=samples:120000 --straggler=1:4x --out=out
  catchment compare --program="python train.py" --algorithms=sync,downpour,easgd --out=out         docs/python.md

Flags:
)";

constexpr char kNotes[] = R"(
Exit code: 0: all runs are done; 1: a run failed, or all did; 2: wrong command line; 128 + N: signal N ended it.
docs/compare.md explains the report and the keys of report.json.
)";

// Flags as text, before they are taken apart.
struct Texts {
  std::string algorithms;
  std::string workers;
  std::string budget;
  std::string target;
  std::vector<std::string> stragglers;
};

FlagSet MakeFlags(CompareOptions* o, Texts* texts) {
  FlagSet flags;
  flags.AddString("algorithms", "A,B,...", &texts->algorithms,
                  "Presets; `catchment validate --help` lists them. Required.");
  flags.AddString("workers", "N,M,...", &texts->workers, "Numbers of workers. Default 1,2,4.");
  flags.AddInt(
      "seeds", "N", 1, &o->seeds,
      "Runs of each kind, with seeds from the job's on. Default 3; with 1, noise cannot be estimated.");
  flags.AddString(
      "budget", "samples:N|seconds:N", &texts->budget,
      "What ends each run. Default: the job's budget. With seconds the learning rate is constant: its "
      "schedule is over a budget in samples.");
  flags.AddList("straggler", "WORKER:TIMES", &texts->stragglers,
                "1:4x makes worker 1 (they count from 0) four times slower. Any number of times.");
  flags.AddSwitch(
      "search", &o->search,
      "First tries momentum 0, 0.3, 0.6, 0.9 and the learning rate and a tenth of it, for each algorithm "
      "with the most workers and a quarter of the budget, and takes the best.");
  flags.AddString(
      "target", "ACCURACY", &texts->target,
      "Test accuracy, such as 0.97, that runs are timed to. Default: chosen from the results. May change "
      "when the command is started again.");
  flags.AddString("out", "DIR", &o->out, "Where everything goes. Required.");
  flags.AddSwitch("overwrite", &o->overwrite, "Deletes an earlier comparison in DIR first.");
  flags.AddList("set", "PATH=VALUE", &o->set,
                "Changes a field of the job, for all runs: --set batch_size=32. Any number of times.");
  flags.AddInt("servers", "N", 1, &o->servers, "Server processes. Default 1.");
  flags.AddInt("threads", "N", 1, &o->threads,
               "Threads of each worker. Default 1, however many workers there are.");
  flags.AddString("device", "DEVICE", &o->device, "auto, cpu or cuda, in place of the job's `device`.");
  flags.AddString(
      "program", "COMMAND", &o->program,
      "Computes the gradients, as for `catchment train`, which says more. JOB may then be left out.");
  flags.AddSeconds("stall_seconds", &o->stall_seconds,
                   "Gives a run up when nothing has moved for so long. Default 600.");
  return flags;
}

absl::Status Bad(const std::string& flag, const std::string& got, const std::string& allowed) {
  return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", got, ": ", allowed));
}

absl::Status ParseAlgorithms(const std::string& text, CompareOptions* o) {
  if (text.empty()) {
    return absl::InvalidArgumentError("--algorithms is missing: presets such as sync,downpour,easgd");
  }
  std::vector<std::string> names;
  for (const Preset& preset : Presets()) names.push_back(preset.name);
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(text, ','))) {
    if (FindPreset(name) == nullptr) {
      const std::string nearest = NearestName(name, names);
      return Bad("algorithms", text,
                 absl::StrCat("no preset \"", name, "\"; ",
                              nearest.empty() ? absl::StrCat("there are ", ListPresets())
                                              : absl::StrCat("did you mean ", nearest, "?")));
    }
    if (std::count(o->algorithms.begin(), o->algorithms.end(), name) > 0) {
      return Bad("algorithms", text, absl::StrCat(name, " is named twice; each runs once"));
    }
    o->algorithms.push_back(name);
  }
  return absl::OkStatus();
}

absl::Status ParseWorkers(const std::string& text, CompareOptions* o) {
  if (text.empty()) return absl::OkStatus();
  std::set<int> workers;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(text, ','))) {
    int n = 0;
    if (!absl::SimpleAtoi(word, &n) || n < 1 || !workers.insert(n).second) {
      return Bad("workers", text, "takes whole numbers from 1, each once, with commas between: 1,2,4");
    }
  }
  o->workers.assign(workers.begin(), workers.end());
  return absl::OkStatus();
}

absl::Status ParseBudget(const std::string& text, CompareBudget* budget) {
  if (text.empty()) return absl::OkStatus();
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  if (parts.first == "samples" && absl::SimpleAtoi(parts.second, &budget->samples) && budget->samples > 0) {
    return absl::OkStatus();
  }
  if (parts.first == "seconds" && absl::SimpleAtod(parts.second, &budget->seconds) &&
      std::isfinite(budget->seconds) && budget->seconds > 0) {
    return absl::OkStatus();
  }
  return Bad("budget", text, "takes samples:N or seconds:N, N above 0");
}

absl::Status ParseStraggler(const std::string& text, CompareOptions* o) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  uint32_t worker = 0;
  double times = 0;
  if (!absl::SimpleAtoi(parts.first, &worker) ||
      !absl::SimpleAtod(absl::StripSuffix(parts.second, "x"), &times) || !(times >= 1)) {
    return Bad("straggler", text, "takes WORKER:TIMES, such as 1:4x: worker 1 four times slower");
  }
  if (worker >= static_cast<uint32_t>(o->workers.back())) {
    return Bad("straggler", text,
               absl::StrCat("no run has a worker ", worker, ": they count from 0, and the most are ",
                            o->workers.back()));
  }
  v1::Straggler straggler;
  straggler.set_worker(worker);
  straggler.set_times(times);
  o->stragglers.push_back(straggler);
  return absl::OkStatus();
}

absl::Status ParseTarget(const std::string& text, double* target) {
  if (text.empty()) return absl::OkStatus();
  if (absl::SimpleAtod(text, target) && *target > 0 && *target < 1) return absl::OkStatus();
  return Bad("target", text, "takes a share of the test samples, above 0 and below 1, such as 0.97");
}

absl::Status TakeApart(const Texts& texts, CompareOptions* o) {
  if (absl::Status status = ParseAlgorithms(texts.algorithms, o); !status.ok()) return status;
  if (absl::Status status = ParseWorkers(texts.workers, o); !status.ok()) return status;
  if (absl::Status status = ParseBudget(texts.budget, &o->budget); !status.ok()) return status;
  for (const std::string& straggler : texts.stragglers) {
    if (absl::Status status = ParseStraggler(straggler, o); !status.ok()) return status;
  }
  return ParseTarget(texts.target, &o->target);
}

absl::Status Check(const CompareOptions& o, const std::vector<std::string>& positional) {
  if (positional.size() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("takes one job, got also: ", positional[1]));
  }
  if (positional.empty() && o.program.empty()) {
    return absl::InvalidArgumentError(
        "which job? For example: catchment compare examples/mnist_mlp.textproto --algorithms=sync,downpour "
        "--out=out");
  }
  if (o.out.empty()) return absl::InvalidArgumentError("--out=DIR is missing: where everything goes");
  if (!o.device.empty() && o.device != "auto" && o.device != "cpu" && o.device != "cuda") {
    return Bad("device", o.device, "takes auto, cpu or cuda");
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CompareOptions> ParseCompareOptions(const std::vector<std::string>& args) {
  CompareOptions options;
  Texts texts;
  FlagSet flags = MakeFlags(&options, &texts);
  const absl::StatusOr<std::vector<std::string>> positional = flags.Parse(args);
  if (!positional.ok()) return positional.status();
  options.help = flags.help();
  if (options.help) return options;
  if (absl::Status status = Check(options, *positional); !status.ok()) return status;
  if (absl::Status status = TakeApart(texts, &options); !status.ok()) return status;
  if (!positional->empty()) options.job = positional->front();
  options.args = args;
  return options;
}

std::string CompareHelp() {
  CompareOptions defaults;
  Texts texts;
  return absl::StrCat(kUsage, MakeFlags(&defaults, &texts).Describe(), kNotes);
}

std::string ToString(const CompareBudget& budget) {
  if (budget.samples > 0) return absl::StrCat("samples:", budget.samples);
  return budget.seconds > 0 ? absl::StrCat("seconds:", Short(budget.seconds)) : "the job's";
}

std::string ToString(const v1::Straggler& straggler) {
  return absl::StrCat(straggler.worker(), ":", Short(straggler.times()), "x");
}

}  // namespace catchment
