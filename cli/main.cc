// The `catchment` command. Its subcommands are in cli/job/commands.h, cli/live/commands.h, cli/local/train.h,
// cli/cluster/manifests.h, cli/doctor/doctor.h, and in Python (cli/study.h).
#include <fcntl.h>
#include <unistd.h>

#include <functional>
#include <iostream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/base/process.h"
#include "cli/base/terminal.h"
#include "cli/cluster/manifests.h"
#include "cli/command_tables.h"
#include "cli/doctor/doctor.h"
#include "cli/job/commands.h"
#include "cli/live/commands.h"
#include "cli/local/local_cluster.h"
#include "cli/local/train.h"
#include "cli/simulate/simulate_door.h"
#include "cli/study.h"
#include "common/base/open_files.h"
#include "common/base/text.h"
#include "common/base/thread_limit.h"
#include "common/base/version.h"
#include "common/program/command_line.h"
#include "kernels/cuda/loader.h"

namespace catchment {
namespace {

constexpr char kHelp[] =
    R"(catchment: trains neural networks with parameter servers, by asynchronous or
synchronous SGD

  validate JOB             checks a job file and explains what it will do
  train JOB                trains it with servers and workers on this machine
  compare JOB --algorithms=A,B,...
                           trains it with several algorithms, reports the best
  simulate JOB --workers=1,16,256 --step=lognormal:120ms:0.3
                           predicts the same for a cluster you do not have
  tune JOB --over=PATH=RANGE
                           searches for the best values of fields, such as the
                           learning rate
  advise JOB|RUN_DIR|HOST:PORT
                           recommends an algorithm and a learning rate
  report DIR... --out=DIR  makes the report from finished runs
  runs [DIR...]            lists the runs under directories, with their results
  diff RUN RUN             shows in what two runs differ
  status HOST:PORT|DIR     shows the status of a running job and its delays
  watch HOST:PORT|DIR      shows its curves, workers and servers in a web page
  stop HOST:PORT|DIR       stops it with a checkpoint
  trace DIR                joins the timelines of its processes for Perfetto
  slurm JOB --nodes=N      prints its batch script for Slurm, or submits it
  manifests JOB --image=IMAGE
                           prints its manifests for Kubernetes
  doctor [HOST:PORT]       checks whether this machine can run a job
  pack JOB --out=DIR       writes its data as shards that workers share
  examples DIR             writes job files and programs to start from
  health HOST:PORT         queries the health of a server, for probes
  completion bash|zsh      prints a script that completes command lines
  man                      prints the manual page

  catchment SUBCOMMAND -h      what it does, and its most important flags
  catchment SUBCOMMAND --help  all flags, and examples
  catchment --version

A first run, without data:
  catchment examples examples
  catchment train examples/drawn_digits.textproto --workers=2

For jobs on several machines without Slurm and Kubernetes, start
catchment_server and catchment_worker on each: see deploy/README.md, which a
wheel has in share/doc/catchment.
)";

using Arguments = std::vector<std::string>;

struct Subcommand {
  std::string name;
  std::function<int(const Arguments&, const Streams&)> run;  // empty: Python has it
  bool prints_a_file = false;                                // whose lines stay whole on a terminal
};

Commands DescribeCommands();

const std::vector<Subcommand>& Subcommands() {
  static const auto* const all = new std::vector<Subcommand>{
      {"validate", RunValidate},
      {"train", RunTrainCommand},
      {"compare", nullptr},
      {"simulate", nullptr},
      {"tune", nullptr},
      {"advise", nullptr},
      {"report", nullptr},
      {"runs", nullptr},
      {"diff", nullptr},
      {"status", RunStatus},
      {"watch", nullptr},
      {"stop", RunStop},
      {"trace", RunTrace},
      {"slurm", nullptr},
      {"manifests", RunManifests, true},
      {"doctor", [](const Arguments& args,
                    const Streams& streams) { return RunDoctor(args, DataPathsFromEnvironment(), streams); }},
      {"pack", [](const Arguments& args,
                  const Streams& streams) { return RunPack(args, DataPathsFromEnvironment(), streams); }},
      {"examples", RunExamples},
      {"health", RunHealth},
      {"completion",
       [](const Arguments& args, const Streams& streams) {
         return RunCompletion(args, DescribeCommands, streams);
       },
       true},
      {"man",
       [](const Arguments& args, const Streams& streams) { return RunMan(args, DescribeCommands, streams); },
       true}};
  return *all;
}

// Returns the command lines of all subcommands, and of the daemons if they are there.
Commands DescribeCommands() {
  Commands commands;
  const Commands study = DescribeStudy();
  for (const Subcommand& one : Subcommands()) {
    if (!one.run) {
      const auto found = absl::c_find_if(study, [&](const auto& command) {
        return command["name"] == absl::StrCat("catchment ", one.name);
      });
      if (found != study.end()) commands.push_back(*found);
      continue;
    }
    std::ostringstream json;
    one.run({"--help=json"}, {&json, &json});
    commands.push_back(nlohmann::ordered_json::parse(json.str()));
  }
  const absl::StatusOr<DaemonPaths> daemons = FindOwnDaemons();
  if (!daemons.ok()) return commands;
  for (const std::string& path : {daemons->server, daemons->worker}) {
    if (absl::StatusOr<nlohmann::ordered_json> daemon =
            JsonOfProgram(ShellCommand("", {path, "--help=json"}));
        daemon.ok())
      commands.push_back(*std::move(daemon));
  }
  return commands;
}

const Subcommand* Find(const std::string& name) {
  for (const Subcommand& one : Subcommands()) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

int RunSubcommand(const Subcommand& subcommand, const Arguments& args, const Streams& streams) {
  const bool has_json = absl::c_any_of(
      args, [](const std::string& arg) { return absl::StartsWith(arg, "--json") || arg == "--help=json"; });
  if (subcommand.prints_a_file || has_json) KeepLines(streams);
  return subcommand.run ? subcommand.run(args, streams) : RunStudy(subcommand.name, args, streams);
}

int RefuseSubcommand(const std::string& word, std::ostream* err) {
  std::vector<std::string> names;
  for (const Subcommand& one : Subcommands()) names.push_back(one.name);
  const std::string nearest = NearestName(word, names);
  *err << "catchment: no subcommand " << word
       << (nearest.empty() ? "; `catchment --help` lists them" : "; is it `catchment " + nearest + "`?")
       << '\n';
  return kExitUsage;
}

// Describes the device that a worker started by this command could compute on.
std::string DescribeCuda() {
  const absl::StatusOr<DaemonPaths> daemons = FindOwnDaemons();
  if (!daemons.ok()) return absl::StrCat("unknown: ", daemons.status().message());
  return DescribeCudaPlugin(CudaPluginPath(daemons->worker.substr(0, daemons->worker.rfind('/'))));
}

int Run(const Arguments& args, const Streams& streams) {
  if (args.empty()) {
    *streams.err << kHelp;
    return kExitUsage;
  }
  const std::string& word = args[0];
  const Arguments rest(args.begin() + 1, args.end());
  if (word == "simulate" && rest == Arguments{"--door"}) return ServeSimulations(&std::cin, streams.out);
  if (const Subcommand* subcommand = Find(word)) return RunSubcommand(*subcommand, rest, streams);
  if (word == "--version" || word == "version") {
    *streams.out << DescribeVersion("catchment") << "CUDA: " << DescribeCuda() << '\n';
    return 0;
  }
  if (word == "--help=json") {
    KeepLines(streams);
    *streams.out << nlohmann::ordered_json(DescribeCommands()).dump(2) << '\n';
    return 0;
  }
  if (word != "--help" && word != "-h" && word != "help") return RefuseSubcommand(word, streams.err);
  if (const Subcommand* subcommand = rest.empty() ? nullptr : Find(rest[0]))
    return RunSubcommand(*subcommand, {"--help"}, streams);
  *streams.out << kHelp;
  return 0;
}

// Opens the standard streams that are closed, so that no file of the command has their place.
void KeepStandardStreams() {
  int file = 0;
  while (file >= 0 && file <= STDERR_FILENO) file = open("/dev/null", O_RDWR);
  if (file > STDERR_FILENO) close(file);
}

}  // namespace
}  // namespace catchment

int main(int argc, char** argv) {
  catchment::KeepStandardStreams();
  catchment::KeepFilesPrivate();
  catchment::ExplainMissingResources("catchment");
  return catchment::Run({argv + 1, argv + argc}, catchment::StandardStreams());
}
