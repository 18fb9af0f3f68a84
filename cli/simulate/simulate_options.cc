#include "absl/strings/str_cat.h"
#include "cli/simulate/simulate.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

constexpr char kUsage[] = R"(catchment simulate JOB --workers=N,M,... --step=DISTRIBUTION [--out=DIR] [flags]

Predicts what `catchment compare` would measure on a cluster you do not have: which algorithm is best, and
with how many workers. The code of the master, the shards and the workers' halves of the algorithms is that of
the real programs, run in virtual time; only clocks, the network and the time of a step are modelled.
Gradients are computed on this machine, once for each simulated step, so accuracies are real. The same seed
produces the same report.json.

Examples:
  catchment simulate examples/mnist_mlp.textproto --algorithms=sync,downpour,staleness_aware --workers=1,8,60 \
      --step=lognormal:50ms:0.3 --network=10Gbit:50us --out=sim
  catchment simulate examples/mnist_cnn.textproto --algorithms=sync,downpour --workers=64,256,1024 \
      --step=lognormal:120ms:0.3 --straggler=1%:10x --gradient=quadratic:100:0.1 --budget=samples:6400000 --out=sim
  catchment simulate job.textproto --from=out --workers=2,8,32 --out=sim      with the step times of that run
)";

constexpr char kNotes[] = R"(
DISTRIBUTION: constant:MEAN, lognormal:MEAN:SIGMA, exponential:MEAN or gamma:MEAN:SHAPE; times are 120ms,
50us, 2s.

Exit code: 0: every run finished or diverged; 1: a run failed, or none finished; 2: wrong command line.
docs/simulate.md says what is modelled, and how far the predictions are from measurements.
)";

// Returns a function that parses a flag's value to *out.
template <typename Value, typename Out>
std::function<absl::Status(const std::string&)> Parser(absl::StatusOr<Value> (*parse)(const std::string&),
                                                       Out* out) {
  return [parse, out](const std::string& text) {
    const absl::StatusOr<Value> value = parse(text);
    if (value.ok()) *out = *value;
    return value.status();
  };
}

absl::Status Check(const SimulateOptions& o) {
  RETURN_IF_ERROR(CheckPlanFlags(o.plan));
  return CheckStragglers(o, o.plan.workers.back());
}

}  // namespace

absl::Status CheckStragglers(const SimulateOptions& o, int most) {
  for (const StragglerModel& straggler : o.stragglers) {
    if (!straggler.worker || *straggler.worker < static_cast<uint32_t>(most)) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("--straggler=", straggler.text, ": no run has a worker ", *straggler.worker,
                     ": workers are numbered from 0, and no run has more than ", most));
  }
  return absl::OkStatus();
}

CommandLine SimulateCommandLine(SimulateOptions* o) {
  CommandLine line{.name = "catchment simulate", .usage = kUsage, .notes = kNotes};
  o->plan.out = "out-simulate";
  line.argument = {"JOB", "examples/mnist_mlp.textproto --step=lognormal:50ms:0.3 --out=sim", &o->plan.job};
  FlagSet& flags = line.flags;
  AddPlanFlags("Default: the job's.", &o->plan, &flags);
  AddModelFlags(o, &flags);
  flags.AddInt("seed", "N", 1, &o->seed, "First seed. Default: the job's.");
  line.check = [o] { return Check(*o); };
  return line;
}

void AddModelFlags(SimulateOptions* o, FlagSet* flags) {
  flags->AddParsed("step", "DISTRIBUTION", Parser(ParseDistribution, &o->step),
                   "Time to compute a minibatch. Default: from --from, or from model.synthetic.");
  flags->AddParsed(
      "start", "none|DISTRIBUTION", Parser(ParseStart, &o->start),
      "Additional time of each worker's first step, such as exponential:2s for programs that compile. "
      "Default: from --from, or exponential with the mean of a step.");
  flags->AddParsed("network", "BANDWIDTH:LATENCY", Parser(ParseNetwork, &o->network),
                   "Link of each process, in each direction, such as 10Gbit:50us, or unlimited:0us. "
                   "Default: from --from, or 10Gbit:50us.");
  flags->AddParsed(
      "straggler", "WHO:TIMESx",
      [o](const std::string& text) {
        const absl::StatusOr<StragglerModel> straggler = ParseStraggler(text);
        if (straggler.ok()) o->stragglers.push_back(*straggler);
        return straggler.status();
      },
      "3:10x makes worker 3 ten times slower; 1%:10x one of a hundred workers; "
      "1%steps:10x one of a hundred steps. May be repeated.");
  flags->AddParsed(
      "failures", "MEAN:AWAY[:hang]",
      [o](const std::string& text) {
        const absl::StatusOr<FailureModel> failures = ParseFailures(text);
        if (failures.ok()) o->failures = *failures;
        o->failures_text = text;
        return failures.status();
      },
      "2h:30s: each worker is lost at random, after two hours on average, and returns 30 seconds later. With "
      ":hang its connections stay open until then. A synthetic model then runs until each worker has failed "
      "four times on average, unless --budget or --set says otherwise. Default: none.");
  flags->AddParsed(
      "gradient", "job|quadratic:CONDITION:NOISE",
      [o](const std::string& text) {
        o->gradient = text;
        if (text == "job") return absl::OkStatus();
        const absl::StatusOr<QuadraticModel> quadratic = ParseQuadratic(text);
        if (quadratic.ok()) o->quadratic = *quadratic;
        return quadratic.status();
      },
      "Trains the job's model on its data, or a quadratic function instead, for thousands of workers; its "
      "accuracy is the fraction by which the loss has fallen. Default job.");
  flags->AddString(
      "from", "RUN_DIR", &o->from,
      "The --out of a finished run, from which step times, the additional time of first steps and "
      "the network are read. Flags override them.");
}

}  // namespace catchment
