#include <algorithm>
#include <cmath>
#include <optional>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/compare/compare.h"
#include "cli/compare/kubernetes_run.h"
#include "cli/compare/slurm_job.h"
#include "cli/job/read_job.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/job/presets.h"

namespace catchment {
namespace {

constexpr char kUsage[] = R"(catchment compare JOB --algorithms=A,B,... [--out=DIR] [flags]

Trains the job with each algorithm, each number of workers and each seed, with the same data, initial weights
and budget, and writes report.html and report.json to DIR. Runs are executed one after another on this machine
or on Kubernetes, or each as a Slurm job. A search with short runs first finds each algorithm's learning rate
and momentum, so the comparison is between algorithms and not between settings. After an interruption, the
same command executes only the missing runs.

Examples:
  catchment compare examples/mnist_mlp.textproto --algorithms=sync,downpour,easgd --out=out
  catchment compare examples/mnist_mlp.textproto --algorithms=sync,downpour,easgd --dry_run
  catchment compare examples/mnist_mlp.textproto --algorithms=sync,downpour,staleness_aware,easgd \
      --workers=1,2,4 --seeds=3 --budget=samples:120000 --straggler=1:4x --out=out
  catchment compare --program="python train.py" --algorithms=sync,downpour,easgd --out=out      docs/python.md
  catchment compare examples/mnist_mlp.textproto --algorithms=sync,downpour --workers=4,8,16 \
      --launcher=slurm --nodes=4 --partition=main --out=out
  catchment compare examples/mnist_mlp.textproto --algorithms=sync,downpour --workers=4,8,16 \
      --launcher=kubectl --image=registry.example/catchment:0.1.0 --out=out
)";

constexpr char kNotes[] = R"(
Exit code: 0: every run finished or diverged; 1: a run failed; 2: wrong command line;
128 + N: signal N ended it.
docs/compare.md explains the report and the keys of report.json.
)";

absl::Status Refuse(const std::string& reason) { return absl::InvalidArgumentError(reason); }

absl::Status ParseAlgorithms(const std::string& text, std::vector<std::string>* algorithms) {
  for (const std::string& name : std::vector<std::string>(absl::StrSplit(text, ','))) {
    if (FindPreset(name) == nullptr) return Refuse(UnknownPreset(name));
    if (std::count(algorithms->begin(), algorithms->end(), name) > 0) {
      return Refuse(absl::StrCat(name, " is listed twice"));
    }
    algorithms->push_back(name);
  }
  return absl::OkStatus();
}

absl::Status ParseWorkers(const std::string& text, std::vector<int>* numbers) {
  std::set<int> workers;
  for (const std::string& word : std::vector<std::string>(absl::StrSplit(text, ','))) {
    int n = 0;
    if (!absl::SimpleAtoi(word, &n) || n < 1 || !workers.insert(n).second) {
      return Refuse("takes different whole numbers from 1, separated by commas: 1,2,4");
    }
  }
  numbers->assign(workers.begin(), workers.end());
  return absl::OkStatus();
}

// Parses a whole number above 0, also one written as 1e5.
bool ParseCount(const std::string& text, int64_t* count) {
  constexpr double kExact = 9007199254740992;  // 2^53
  double number = 0;
  if (absl::SimpleAtoi(text, count)) return *count > 0;
  if (!absl::SimpleAtod(text, &number) || number != std::floor(number)) return false;
  if (number < 1 || number > kExact) return false;
  *count = static_cast<int64_t>(number);
  return true;
}

absl::Status ParseBudget(const std::string& text, CompareBudget* budget) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  if (parts.first == "samples" && ParseCount(parts.second, &budget->samples)) return absl::OkStatus();
  if (parts.first == "seconds" && absl::SimpleAtod(parts.second, &budget->seconds) &&
      std::isfinite(budget->seconds) && budget->seconds > 0) {
    return absl::OkStatus();
  }
  if (parts.first == "samples")
    return Refuse("takes a whole number of samples above 0, such as samples:100000 or samples:1e5");
  if (parts.first == "seconds") return Refuse("takes a number of seconds above 0, such as seconds:60");
  double number;
  return Refuse(absl::StrCat("takes samples:N or seconds:N, N above 0",
                             absl::SimpleAtod(text, &number) ? ": did you mean samples:" + text + "?" : ""));
}

absl::Status ParseStraggler(const std::string& text, std::vector<v1::Straggler>* stragglers) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits(':', 1));
  uint32_t worker = 0;
  double times = 0;
  if (!absl::SimpleAtoi(parts.first, &worker) ||
      !absl::SimpleAtod(absl::StripSuffix(parts.second, "x"), &times) || !(times >= 1)) {
    return Refuse("takes WORKER:TIMES, such as 1:4x: worker 1 four times slower");
  }
  v1::Straggler straggler;
  straggler.set_worker(worker);
  straggler.set_slowdown_factor(times);
  stragglers->push_back(straggler);
  return absl::OkStatus();
}

absl::Status ParseTarget(const std::string& text, double* target) {
  if (absl::SimpleAtod(text, target) && *target > 0 && *target < 1) return absl::OkStatus();
  return Refuse("takes a share of the test samples, above 0 and below 1, such as 0.97");
}

absl::Status ParseSearch(const std::string& text, SearchKind* search) {
  for (const SearchKind kind : {SearchKind::kHalving, SearchKind::kNone}) {
    if (text != ToString(kind)) continue;
    *search = kind;
    return absl::OkStatus();
  }
  return Refuse("takes halving or none");
}

struct LauncherName {
  const char* name;
  LauncherKind kind;
  const char* place;
};

constexpr LauncherName kLaunchers[] = {{"local", LauncherKind::kLocal, "on this machine"},
                                       {"slurm", LauncherKind::kSlurm, "on Slurm"},
                                       {"kubectl", LauncherKind::kKubernetes, "on Kubernetes"}};

absl::Status ParseLauncher(const std::string& text, LauncherKind* launcher) {
  for (const LauncherName& known : kLaunchers) {
    if (text != known.name) continue;
    *launcher = known.kind;
    return absl::OkStatus();
  }
  return Refuse("takes local, slurm or kubectl");
}

const LauncherName& NameOf(LauncherKind kind) {
  return *std::find_if(std::begin(kLaunchers), std::end(kLaunchers),
                       [kind](const LauncherName& known) { return known.kind == kind; });
}

// Returns an error that names a flag which belongs to another launcher.
absl::Status CheckLauncherFlags(const CompareOptions& o) {
  struct LauncherFlag {
    std::string flag;
    LauncherKind launcher;
    bool given;
  };
  std::vector<LauncherFlag> flags = {{"nodes", LauncherKind::kSlurm, o.slurm.nodes > 0},
                                     {"gpus_per_node", LauncherKind::kSlurm, o.slurm.gpus_per_node > 0},
                                     {"partition", LauncherKind::kSlurm, !o.slurm.partition.empty()},
                                     {"overlay", LauncherKind::kKubernetes, !o.overlay.empty()}};
  for (const auto& [flag, value] : GivenFlags(o.kubernetes)) {
    flags.push_back({flag, LauncherKind::kKubernetes, true});
  }
  for (const LauncherFlag& flag : flags) {
    if (!flag.given || flag.launcher == o.launcher) continue;
    const LauncherName& launcher = NameOf(flag.launcher);
    return Refuse(absl::StrCat("--", flag.flag, ": is for runs ", launcher.place,
                               "; add --launcher=", launcher.name, ", or leave it out"));
  }
  return absl::OkStatus();
}

// Returns an error that names a flag which only runs on this machine support.
absl::Status CheckForCluster(const CompareOptions& o) {
  const std::string launcher = absl::StrCat("with --launcher=", NameOf(o.launcher).name);
  if (o.budget.seconds > 0) {
    return Refuse(absl::StrCat("--budget=", ToString(o.budget), ": ", launcher,
                               " a run ends after samples; give --budget=samples:N"));
  }
  if (o.device.empty()) return absl::OkStatus();
  return Refuse(absl::StrCat("--device=", o.device, ": ", launcher,
                             " the job has the device: --set device=", absl::AsciiStrToUpper(o.device)));
}

// A field that every run has from elsewhere.
struct DecidedField {
  const char* path;
  const char* remedy;
};

constexpr DecidedField kDecided[] = {
    {"workers", "set the numbers of workers by --workers, such as --workers=8"},
    {"checkpoint",
     "runs write no checkpoints during training, since an interrupted run is repeated; leave it out"}};

// Returns the value that `set` has for the field `path`, or for a part of it.
std::optional<absl::string_view> ValueFor(const std::string& path, absl::string_view set) {
  if (!absl::ConsumePrefix(&set, path) || set.empty() || (set[0] != '=' && set[0] != '.'))
    return std::nullopt;
  return set.substr(set.find('=') + 1);
}

absl::Status CheckLauncher(const CompareOptions& o) {
  RETURN_IF_ERROR(CheckLauncherFlags(o));
  if (o.launcher == LauncherKind::kLocal) return absl::OkStatus();
  RETURN_IF_ERROR(CheckForCluster(o));
  return o.launcher == LauncherKind::kSlurm ? CheckForSlurm(o) : CheckForKubernetes(o);
}

absl::Status Check(const CompareOptions& o) {
  if (o.algorithms.empty()) {
    return Refuse("--algorithms=A,B,... is required: presets such as sync,downpour,easgd");
  }
  RETURN_IF_ERROR(CheckPlanFlags(o));
  for (const v1::Straggler& straggler : o.stragglers) {
    if (straggler.worker() < static_cast<uint32_t>(o.workers.back())) continue;
    return Refuse(absl::StrCat("--straggler=", ToString(straggler), ": no run has a worker ",
                               straggler.worker(), ": workers are numbered from 0, and no run has more than ",
                               o.workers.back()));
  }
  return CheckLaunchFlags(o);
}

}  // namespace

absl::Status CheckLaunchFlags(const CompareOptions& o) {
  const std::string device = absl::AsciiStrToLower(o.device);
  if (!device.empty() && device != "auto" && device != "cpu" && device != "cuda") {
    return Refuse(absl::StrCat("--device=", o.device, ": takes auto, cpu or cuda"));
  }
  return CheckLauncher(o);
}

absl::Status CheckPlanFlags(const CompareOptions& o) {
  for (const std::string& set : o.set) {
    for (const DecidedField& field : kDecided) {
      if (ValueFor(field.path, set)) return Refuse(absl::StrCat("--set=", set, ": ", field.remedy));
    }
    const std::optional<absl::string_view> preset = ValueFor("algorithm.preset", set);
    if (!preset || o.algorithms.empty() ||
        std::count(o.algorithms.begin(), o.algorithms.end(), *preset) > 0) {
      continue;
    }
    return Refuse(absl::StrCat("--set=", set,
                               ": the presets are those of --algorithms; add it there, or leave it out"));
  }
  return absl::OkStatus();
}

void AddPlanFlags(const std::string& algorithms_default, CompareOptions* o, FlagSet* flags) {
  flags->AddParsed(
      "algorithms", "A,B,...", [o](const std::string& text) { return ParseAlgorithms(text, &o->algorithms); },
      "Presets; `catchment validate --help` lists them. " + algorithms_default);
  flags->AddParsed(
      "workers", "N,M,...", [o](const std::string& text) { return ParseWorkers(text, &o->workers); },
      absl::StrCat("Numbers of workers. Default ", absl::StrJoin(o->workers, ","), "."));
  flags->AddInt("seeds", "N", 1, &o->seeds,
                absl::StrCat("Runs of each kind, with consecutive seeds from the job's. Default ", o->seeds,
                             "; with 1, noise cannot be estimated."));
  flags->AddParsed(
      "search", "halving|none", [o](const std::string& text) { return ParseSearch(text, &o->search); },
      absl::StrCat(
          "halving: finds the learning rate and the momentum of each algorithm, with each number of "
          "workers, by successive halving among short runs, at the cost of about one run each. none: "
          "uses the job's or the preset's values. Values of --set are kept. Default ",
          ToString(o->search), "."));
  flags->AddParsed(
      "target", "ACCURACY", [o](const std::string& text) { return ParseTarget(text, &o->target); },
      "Test accuracy, such as 0.97, to which runs are timed. Default: chosen from the results. "
      "May differ when the command is repeated.");
  AddRunFlags(o, flags);
}

void AddRunFlags(CompareOptions* o, FlagSet* flags) {
  flags->AddParsed(
      "budget", "samples:N|seconds:N", [o](const std::string& text) { return ParseBudget(text, &o->budget); },
      "Budget of each run. Default: the job's. With seconds the learning rate is constant, because its "
      "schedule needs a budget in samples.");
  flags->AddParsed(
      "out", "DIR",
      [o](const std::string& text) {
        o->out = text;
        return text.empty() ? Refuse("names no directory") : absl::OkStatus();
      },
      absl::StrCat("Directory for all output. Default ", o->out, "."));
  flags->AddSwitch("overwrite", &o->overwrite, "Deletes the earlier results in DIR first.");
  AddSetFlag(&o->set, flags);
  flags->AddInt("servers", "N", 1, &o->servers, "Server processes. Default 1.");
}

CommandLine CompareCommandLine(CompareOptions* o) {
  CommandLine line{.name = "catchment compare", .usage = kUsage, .notes = kNotes};
  o->out = "out-compare";
  line.argument = {"JOB", "examples/mnist_mlp.textproto --algorithms=sync,downpour --out=out", &o->job,
                   [o] { return !o->program.empty(); }};
  FlagSet& flags = line.flags;
  AddPlanFlags("Required.", o, &flags);
  flags.AddParsed(
      "straggler", "WORKER:TIMES",
      [o](const std::string& text) { return ParseStraggler(text, &o->stragglers); },
      "1:4x makes worker 1 (counted from 0) four times slower. May be repeated.");
  flags.AddSwitch("dry_run", &o->dry_run,
                  "Prints the runs that this comparison has, and those that it leaves out and why; "
                  "starts nothing and writes nothing.");
  AddLaunchFlags(o, &flags);
  line.check = [o] { return Check(*o); };
  return line;
}

void AddLaunchFlags(CompareOptions* o, FlagSet* flags) {
  flags->AddInt("threads", "N", 1, &o->threads,
                "Threads of each worker. Default 1, for any number of workers.");
  flags->AddString("device", "DEVICE", &o->device, "auto, cpu or cuda. Overrides the job's `device`.");
  flags->AddString("program", "COMMAND", &o->program,
                   "Computes the gradients, as in `catchment train`. JOB may be left out then.");
  flags->AddSeconds("stall_seconds", &o->stall_seconds,
                    "Ends a run after this time without progress. Default 600.");
  flags->AddParsed(
      "launcher", "local|slurm|kubectl",
      [o](const std::string& text) { return ParseLauncher(text, &o->launcher); },
      "Executes the runs one after another on this machine (default); each as a Slurm job, started on a "
      "login node with DIR on a shared file system; or one after another on Kubernetes.");
  flags->AddInt("nodes", "N", 1, &o->slurm.nodes,
                "Slurm: nodes of each run, at most one for each worker. Default 1.");
  flags->AddInt(
      "gpus_per_node", "G", 1, &o->slurm.gpus_per_node,
      "Slurm: a GPU for each worker, at most G on a node. A run uses the fewest nodes, at most --nodes, "
      "between which its workers can be divided equally.");
  flags->AddString(
      "partition", "P", &o->slurm.partition,
      "Slurm: the partition. Default: the cluster's. Set other options of sbatch by its environment "
      "variables, such as SBATCH_ACCOUNT and SBATCH_TIMELIMIT.");
  AddSiteFlags("Kubernetes: ", &o->kubernetes, flags);
  flags->AddString(
      "overlay", "DIR", &o->overlay,
      "Kubernetes: a component of kustomize (kind: Component) with other changes of the manifests, "
      "such as node selectors. The cluster and the namespace are kubectl's.");
}

std::string ToString(const CompareBudget& budget) {
  if (budget.samples > 0) return absl::StrCat("samples:", budget.samples);
  return budget.seconds > 0 ? absl::StrCat("seconds:", Short(budget.seconds)) : "the job's";
}

std::string ToString(SearchKind search) { return search == SearchKind::kNone ? "none" : "halving"; }

std::string ToString(const v1::Straggler& straggler) {
  return absl::StrCat(straggler.worker(), ":", Short(straggler.slowdown_factor()), "x");
}

}  // namespace catchment
