// The `catchment` command. Its subcommands are in cli/job/commands.h, cli/live/commands.h,
// cli/local/train.h, cli/compare/compare.h, cli/simulate/simulate.h, cli/tune/tune.h, cli/advise/advise.h and
// cli/doctor/doctor.h.
#include <functional>
#include <nlohmann/json.hpp>
#include <ostream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/advise/advise.h"
#include "cli/base/terminal.h"
#include "cli/cluster/manifests.h"
#include "cli/command_tables.h"
#include "cli/compare/compare.h"
#include "cli/compare/report_runs.h"
#include "cli/doctor/doctor.h"
#include "cli/job/commands.h"
#include "cli/live/commands.h"
#include "cli/local/local_cluster.h"
#include "cli/local/train.h"
#include "cli/simulate/simulate.h"
#include "cli/tune/tune.h"
#include "cli/watch/watch.h"
#include "common/base/open_files.h"
#include "common/base/text.h"
#include "common/base/thread_limit.h"
#include "common/base/version.h"
#include "common/program/command_line.h"
#include "kernels/cuda/loader.h"

namespace catchment {
namespace {

constexpr char kHelp[] =
    R"(catchment: trains neural networks with asynchronous or synchronous SGD on parameter servers

  catchment validate JOB              checks a job file and explains what it will do
  catchment train JOB                 trains it with servers and workers on this machine
  catchment compare JOB --algorithms=A,B,...
                                      trains it with several algorithms and reports which is best
  catchment simulate JOB --workers=1,16,256 --step=lognormal:120ms:0.3
                                      predicts the same for a cluster you do not have
  catchment tune JOB --over=PATH=RANGE
                                      searches for the best values of fields, such as the learning rate
  catchment advise JOB|RUN_DIR|HOST:PORT
                                      recommends an algorithm and a learning rate, by simulation
  catchment report DIR... --out=DIR   makes the report from finished runs, wherever they ran
  catchment status HOST:PORT|DIR      shows the status of a running job and what delays it
  catchment watch HOST:PORT|DIR       shows its curves, workers and servers in a web page
  catchment stop HOST:PORT|DIR        stops it with a checkpoint
  catchment trace DIR                 joins the timelines of its processes for Perfetto
  catchment manifests JOB --image=IMAGE
                                      prints its manifests for Kubernetes
  catchment doctor [HOST:PORT]        checks whether this machine can run a job, and names remedies
  catchment pack JOB --out=DIR        writes its data as shards that workers share in memory
  catchment examples DIR              writes job files and programs to start from
  catchment health HOST:PORT          queries the health of a server, for probes
  catchment completion bash|zsh       prints a script that completes command lines
  catchment man                       prints the manual page
  catchment SUBCOMMAND --help         examples and flags
  catchment --version

A first run, without data:
  catchment examples examples && catchment train examples/drawn_digits.textproto --workers=2

For jobs on several machines, start catchment_server and catchment_worker on each: see deploy/README.md.
)";

using Arguments = std::vector<std::string>;

struct Subcommand {
  std::string name;
  std::function<int(const Arguments&, const Streams&)> run;
};

Commands DescribeCommands();

const std::vector<Subcommand>& Subcommands() {
  static const auto* const all = new std::vector<Subcommand>{
      {"validate", RunValidate},
      {"train", RunTrainCommand},
      {"compare", RunCompareCommand},
      {"simulate", RunSimulateCommand},
      {"tune", RunTuneCommand},
      {"advise", RunAdviseCommand},
      {"report", RunReportCommand},
      {"status", RunStatus},
      {"watch", RunWatch},
      {"stop", RunStop},
      {"trace", RunTrace},
      {"manifests", RunManifests},
      {"doctor", [](const Arguments& args,
                    const Streams& streams) { return RunDoctor(args, DataPathsFromEnvironment(), streams); }},
      {"pack", [](const Arguments& args,
                  const Streams& streams) { return RunPack(args, DataPathsFromEnvironment(), streams); }},
      {"examples", RunExamples},
      {"health", RunHealth},
      {"completion", [](const Arguments& args,
                        const Streams& streams) { return RunCompletion(args, DescribeCommands, streams); }},
      {"man", [](const Arguments& args, const Streams& streams) {
         return RunMan(args, DescribeCommands, streams);
       }}};
  return *all;
}

// Returns the command lines of all subcommands, and of the daemons if they are there.
Commands DescribeCommands() {
  Commands commands;
  for (const Subcommand& one : Subcommands()) {
    std::ostringstream json;
    one.run({"--help=json"}, {&json, &json});
    commands.push_back(nlohmann::ordered_json::parse(json.str()));
  }
  const absl::StatusOr<DaemonPaths> daemons = FindOwnDaemons();
  if (!daemons.ok()) return commands;
  for (const std::string& path : {daemons->server, daemons->worker}) {
    if (absl::StatusOr<nlohmann::ordered_json> daemon = CommandOfProgram(path); daemon.ok())
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
  if (const Subcommand* subcommand = Find(word)) return subcommand->run(rest, streams);
  if (word == "--version" || word == "version") {
    *streams.out << DescribeVersion("catchment") << "CUDA: " << DescribeCuda() << '\n';
    return 0;
  }
  if (word != "--help" && word != "-h" && word != "help") return RefuseSubcommand(word, streams.err);
  if (const Subcommand* subcommand = rest.empty() ? nullptr : Find(rest[0]))
    return subcommand->run({"--help"}, streams);
  *streams.out << kHelp;
  return 0;
}

}  // namespace
}  // namespace catchment

int main(int argc, char** argv) {
  catchment::KeepFilesPrivate();
  catchment::ExplainMissingResources("catchment");
  return catchment::Run({argv + 1, argv + argc}, catchment::StandardStreams());
}
