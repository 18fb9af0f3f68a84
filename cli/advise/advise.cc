#include "cli/advise/advise.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cli/advise/evidence.h"
#include "cli/advise/recommendations.h"
#include "cli/job/read_job.h"
#include "cli/live/job_control.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/master_address.h"
#include "common/job/job_text.h"
#include "common/net/rpc.h"
#include "common/program/command_line.h"
#include "simulation/models.h"

namespace catchment {
namespace {

constexpr char kUsage[] = R"(catchment advise JOB|RUN_DIR|HOST:PORT [flags]

Recommends a preset with its momentum and learning rate, says how certain that is, and how many servers suit
the job. It simulates every preset, and the job's own settings, on the job's model, and recommends only those
that trained:

  JOB         a job file; --step gives the time of a step
  RUN_DIR     the --out of a run, with its measured step times, slow workers, round trips and staleness
  HOST:PORT   the server with index 0 of a running job, with its measurements so far

It computes for about a minute on this machine. `catchment compare` measures the best presets in real runs.

Examples:
  catchment advise examples/mnist_mlp.textproto --workers=8 --step=lognormal:50ms:0.3 --network=10Gbit:50us
  catchment advise out
  catchment advise out --workers=32 --servers=2        the same cluster with more workers and servers
  catchment advise node0:7000 --json | jq .recommended
)";

constexpr char kNotes[] = R"(
Exit code: 0: advice was given; 1: the job, the run or the master could not be read; 2: wrong command line.
docs/advise.md explains what is simulated, the rules and the JSON.
)";

struct Options {
  std::string subject;
  std::vector<std::string> set;
  int workers = 0;  // 0: those of the subject
  int servers = 0;
  std::optional<Distribution> step;
  std::optional<NetworkModel> network;
  std::vector<StragglerModel> stragglers;
  bool json = false;
  TlsFiles tls;
  bool insecure = false;
  MasterFlags master;  // of Subject::kMaster
};

enum class Subject { kJob, kRun, kMaster };

Subject SubjectOf(const std::string& subject) {
  std::error_code error;
  if (std::filesystem::is_directory(subject, error))
    return ReadMasterPlace(subject).ok() ? Subject::kMaster : Subject::kRun;
  const bool address = subject.find(':') != std::string::npos && !std::filesystem::exists(subject, error);
  return address ? Subject::kMaster : Subject::kJob;
}

absl::Status Check(Options* options) {
  const Subject subject = SubjectOf(options->subject);
  if (!options->set.empty() && subject != Subject::kJob) {
    return absl::InvalidArgumentError("--set changes a job file; the job of a run cannot be changed");
  }
  if (subject != Subject::kMaster) return absl::OkStatus();
  options->master = {options->subject, options->tls, options->insecure};
  RETURN_IF_ERROR(CheckMasterFlags(&options->master));
  return PlaceOfMaster(options->master).status();
}

// Returns a function that parses a flag's value to *out.
template <typename Value>
std::function<absl::Status(const std::string&)> Parser(absl::StatusOr<Value> (*parse)(const std::string&),
                                                       std::optional<Value>* out) {
  return [parse, out](const std::string& text) {
    const absl::StatusOr<Value> value = parse(text);
    if (value.ok()) *out = *value;
    return value.status();
  };
}

CommandLine MakeCommandLine(Options* o) {
  CommandLine line{.name = "catchment advise", .usage = kUsage, .notes = kNotes};
  line.argument = {"JOB|RUN_DIR|HOST:PORT", "examples/mnist_mlp.textproto --step=lognormal:50ms:0.3",
                   &o->subject};
  line.flags.AddInt("workers", "N", 1, &o->workers, "Workers. Default: those of the job.");
  line.flags.AddInt("servers", "N", 1, &o->servers, "Servers. Default: those of the run, or 1.");
  line.flags.AddParsed("step", "DISTRIBUTION", Parser(ParseDistribution, &o->step),
                       "Time to compute a minibatch, such as constant:120ms or lognormal:120ms:0.3. Default: "
                       "the measured time, or that of model.synthetic.");
  line.flags.AddParsed("network", "BANDWIDTH:LATENCY", Parser(ParseNetwork, &o->network),
                       "Link of each process, in each direction, such as 10Gbit:50us. Default: the measured "
                       "round trip of an asynchronous run, or 10Gbit:50us.");
  line.flags.AddParsed(
      "straggler", "WHO:TIMESx",
      [o](const std::string& text) -> absl::Status {
        ASSIGN_OR_RETURN(const StragglerModel straggler, ParseStraggler(text));
        if (straggler.of_steps) {
          return absl::InvalidArgumentError("needs slow workers; for slow steps give --step a larger spread");
        }
        o->stragglers.push_back(straggler);
        return absl::OkStatus();
      },
      "3:10x makes worker 3 ten times slower; 1%:10x one of a hundred workers. May be repeated. Default: the "
      "measured slow workers, or faults.stragglers.");
  line.flags.AddSwitch("json", &o->json, "Prints one JSON object.");
  AddSetFlag(&o->set, &line.flags);
  AddSecurityFlags(&o->tls, &o->insecure, &line.flags);
  line.check = [o] { return Check(o); };
  return line;
}

absl::StatusOr<Evidence> EvidenceOfJobFile(const Options& options) {
  ASSIGN_OR_RETURN(const v1::Job job, LoadCompleteJob(options.subject, options.set, options.workers));
  ASSIGN_OR_RETURN(Evidence evidence, EvidenceOfJob(job, std::max(1, options.servers)));
  evidence.job_file = options.subject;
  const absl::StatusOr<v1::Job> given = LoadJob(options.subject, options.set);
  evidence.own_optimizer = given.ok() && given->has_optimizer();
  return evidence;
}

absl::StatusOr<Evidence> EvidenceOfMaster(const Options& options) {
  ASSIGN_OR_RETURN(JobControl master, JobControl::Create(options.master));
  const absl::StatusOr<v1::JobStatus> status = master.GetStatus();
  if (status.ok()) return EvidenceOfStatus(*status);
  if (absl::IsFailedPrecondition(status.status())) return status.status();
  return absl::UnavailableError(absl::StrCat(status.status().message(), "\nIs the job running, and is ",
                                             master.address(), " the address of the server with index 0?"));
}

absl::StatusOr<Evidence> Collect(const Options& options) {
  switch (SubjectOf(options.subject)) {
    case Subject::kRun:
      return EvidenceOfRun(options.subject);
    case Subject::kMaster:
      return EvidenceOfMaster(options);
    default:
      return EvidenceOfJobFile(options);
  }
}

// Overrides the numbers of workers and servers, and drops measurements that do not apply to the new numbers.
void Override(const Options& options, Evidence* evidence) {
  // A job file has been read with them.
  const bool other = options.workers > 0 && SubjectOf(options.subject) != Subject::kJob;
  const uint32_t workers = other ? options.workers : evidence->job.workers();
  const int servers = options.servers > 0 ? options.servers : evidence->servers;
  if (workers != evidence->job.workers() || servers != evidence->servers) evidence->measured.reset();
  evidence->job.set_workers(workers);
  evidence->servers = servers;
  if (!options.stragglers.empty()) {
    v1::Job job;
    job.set_workers(workers);
    for (const StragglerModel& straggler : options.stragglers) SetStragglers(straggler, &job);
    evidence->slow = SlowWorkersOf(job);
  }
  if (options.step) {
    evidence->step = options.step;
    evidence->step_source = "--step";
  }
  if (options.network) {
    evidence->network = *options.network;
    evidence->network_source = "--network";
  }
}

absl::StatusOr<int> Advise(const Options& options, const Streams& streams) {
  ASSIGN_OR_RETURN(Evidence evidence, Collect(options));
  Override(options, &evidence);
  ASSIGN_OR_RETURN(const Recommendations recommendations,
                   Recommend(evidence, [&](const std::string& line) { *streams.err << line << '\n'; }));
  if (options.json) {
    *streams.out
        << AdviceJson(evidence, recommendations).dump(2, ' ', false, nlohmann::json::error_handler_t::replace)
        << '\n';
  } else {
    *streams.out << AdviceText(evidence, recommendations);
  }
  return 0;
}

}  // namespace

int RunAdviseCommand(const std::vector<std::string>& args, const Streams& streams) {
  Options options;
  CommandLine line = MakeCommandLine(&options);
  return RunCommandLine(&line, args, streams.out, streams.err, [&] { return Advise(options, streams); });
}

}  // namespace catchment
