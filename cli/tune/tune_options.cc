#include "absl/strings/str_cat.h"
#include "cli/job/read_job.h"
#include "cli/tune/tune.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

constexpr char kUsage[] = R"(catchment tune JOB --over=PATH=RANGE [--over=...] [--out=DIR] [flags]

Searches for the values of fields with the best test accuracy by successive halving: all trials train with a
small share of the budget, then the best third start over with three times that share, and so on up to the
whole budget. Writes report.html, report.json and best.textproto, the job file with the values found, to DIR.
After an interruption, the same command executes only the missing runs.

Examples:
  catchment tune examples/mnist_mlp.textproto --over=optimizer.learning_rate=log:0.001..1 \
      --over=optimizer.momentum=0..0.95 --trials=27 --out=tuned
  catchment tune examples/mnist_mlp.textproto --over=algorithm.preset=sync,downpour,easgd \
      --over=optimizer.learning_rate=log:0.001..1 --workers=16 --simulate --step=lognormal:50ms:0.3 --out=tuned
)";

constexpr char kNotes[] = R"(
Exit code: 0: every run finished or diverged; 1: a run failed, or no trial has a result; 2: wrong command
line; 128 + N: signal N ended it.
docs/tune.md explains the search, the report and the keys of report.json.
)";

absl::Status Refuse(const std::string& reason) { return absl::InvalidArgumentError(reason); }

// Returns the first given flag of AddModelFlags; empty if there is none.
std::string ModelFlag(const SimulateOptions& o) {
  if (o.step) return "step";
  if (o.start) return "start";
  if (o.network) return "network";
  if (!o.stragglers.empty()) return "straggler";
  if (!o.failures_text.empty()) return "failures";
  if (o.quadratic) return "gradient";
  return o.from.empty() ? "" : "from";
}

absl::Status Check(const TuneOptions& o) {
  if (o.over.empty()) {
    return Refuse(
        "--over=PATH=RANGE is required: a field to search over, "
        "such as --over=optimizer.learning_rate=log:0.001..1");
  }
  if (o.over.size() > kMaxDimensions) {
    return Refuse(absl::StrCat("--over: is given ", o.over.size(), " times; a search has at most ",
                               kMaxDimensions, " fields; search the most important ones first"));
  }
  for (size_t i = 0; i < o.over.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (o.over[i].path != o.over[j].path) continue;
      return Refuse(absl::StrCat("--over=", o.over_texts[i], ": ", o.over[i].path,
                                 " already has a range; leave one of them out"));
    }
    if (o.over[i].path == "workers" || o.over[i].path == "seed") {
      return Refuse(absl::StrCat("--over=", o.over_texts[i], ": ", o.over[i].path,
                                 " is the same in all trials; use `catchment compare` for several"));
    }
  }
  if (const std::string flag = ModelFlag(o.runs); !o.simulate && !flag.empty())
    return Refuse(absl::StrCat("--", flag, ": is for simulated runs; add --simulate, or leave it out"));
  RETURN_IF_ERROR(CheckPlanFlags(o.runs.plan));
  if (!o.simulate) return CheckLaunchFlags(o.runs.plan);
  if (o.runs.plan.launcher != LauncherKind::kLocal)
    return Refuse("--launcher: simulated runs use this machine; leave out --launcher or --simulate");
  if (!o.runs.plan.program.empty())
    return Refuse(
        "--program: a simulation computes the gradients of the job's layers; "
        "leave out --program or --simulate");
  return absl::OkStatus();
}

}  // namespace

CommandLine TuneCommandLine(TuneOptions* o) {
  CommandLine line{.name = "catchment tune", .usage = kUsage, .notes = kNotes};
  line.argument = {"JOB",
                   "examples/mnist_mlp.textproto --over=optimizer.learning_rate=log:0.001..1 --out=tuned",
                   &o->runs.plan.job, [o] { return !o->runs.plan.program.empty(); }};
  FlagSet& flags = line.flags;
  flags.AddParsed(
      "over", "PATH=log:LOW..HIGH|LOW..HIGH|A,B,...",
      [o](const std::string& text) {
        ASSIGN_OR_RETURN(const SearchDimension dimension, ParseDimension(text));
        o->over.push_back(dimension);
        o->over_texts.push_back(text);
        return absl::OkStatus();
      },
      "Searches over a field of the job, named as for --set: over a logarithmic or linear range, "
      "or a list of values. May be repeated.");
  flags.AddInt("trials", "N", 2, &o->trials, "Trials of the first rung. Default 27.");
  flags.AddInt("workers", "N", 1, &o->workers, "Workers of every run. Default: the job's.");
  o->runs.plan.out = "out-tune";
  AddRunFlags(&o->runs.plan, &flags);
  AddLaunchFlags(&o->runs.plan, &flags);
  flags.AddSwitch("simulate", &o->simulate,
                  "Simulates the runs, as `catchment simulate` does, with the flags below.");
  AddModelFlags(&o->runs, &flags);
  line.check = [o] { return Check(*o); };
  return line;
}

}  // namespace catchment
