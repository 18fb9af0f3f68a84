#include "cli/compare/slurm_job.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace catchment {
namespace {

absl::Status Refuse(const std::string& reason) { return absl::InvalidArgumentError(reason); }

bool IsNumber(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), absl::ascii_isdigit);
}

}  // namespace

absl::Status CheckForSlurm(const CompareOptions& options) {
  if (options.stall_seconds != CompareOptions().stall_seconds) {
    return Refuse(
        "--stall_seconds: Slurm's time limit ends a run; leave the flag out, "
        "and set SBATCH_TIMELIMIT in the environment");
  }
  for (const int workers : options.workers) {
    RETURN_IF_ERROR(LayOut(options.slurm, workers).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<SlurmLayout> LayOut(const SlurmOptions& options, int workers) {
  const int most = std::max(options.nodes, 1);
  if (options.gpus_per_node == 0) return SlurmLayout{std::min(most, workers), 0};
  for (int nodes = 1; nodes <= most; ++nodes) {
    if (workers % nodes == 0 && workers / nodes <= options.gpus_per_node)
      return SlurmLayout{nodes, workers / nodes};
  }
  return Refuse(absl::StrCat("--gpus_per_node=", options.gpus_per_node, ": ", Plural(workers, "worker"),
                             " cannot be divided equally between at most ", Plural(most, "node"), " with ",
                             Plural(options.gpus_per_node, "GPU"),
                             " each; give more --nodes, or other --workers"));
}

std::vector<std::string> SbatchCommand(const SlurmPrograms& programs, const CompareOptions& options,
                                       const SlurmLayout& layout, const PlannedRun& run,
                                       const std::string& directory) {
  std::vector<std::string> argv = {programs.sbatch,
                                   "--parsable",
                                   "--no-requeue",
                                   "--job-name=" + std::filesystem::path(run.directory).filename().string(),
                                   "--output=" + directory + kBatchLog,
                                   absl::StrCat("--nodes=", layout.nodes),
                                   absl::StrCat("--ntasks=", run.workers),
                                   absl::StrCat("--cpus-per-task=", options.threads)};
  if (layout.gpus_per_node > 0) {
    argv.push_back(absl::StrCat("--ntasks-per-node=", layout.gpus_per_node));
    argv.push_back(absl::StrCat("--gpus-per-node=", layout.gpus_per_node));
  }
  if (!options.slurm.partition.empty()) argv.push_back("--partition=" + options.slurm.partition);
  argv.push_back(programs.script);
  argv.push_back("--out=" + directory);
  argv.push_back(absl::StrCat("--servers=", options.servers));
  if (!options.program.empty()) argv.push_back("--program=" + options.program);
  argv.push_back(directory + "/job.textproto");
  return argv;
}

std::vector<std::string> SqueueCommand(const SlurmPrograms& programs) {
  return {programs.squeue, "--me", "--noheader", "--states=all", "--format=%i %T"};
}

std::string ParseJobId(const std::string& output) {
  std::string id;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(output, '\n'))) {
    // NUMBER or NUMBER;CLUSTER, and warnings.
    const std::string number = line.substr(0, line.find(';'));
    if (IsNumber(number)) id = number;
  }
  return id;
}

SlurmQueue ParseQueue(const std::string& output) {
  SlurmQueue queue;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(output, '\n'))) {
    const std::vector<std::string> words = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (words.size() == 2 && IsNumber(words[0])) queue[words[0]] = words[1];
  }
  return queue;
}

SlurmPhase PhaseOf(const std::string& state) {
  static const auto* const ended =
      new std::set<std::string>{"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "DEADLINE", "OUT_OF_MEMORY"};
  static const auto* const lost =
      new std::set<std::string>{"", "NODE_FAIL", "BOOT_FAIL", "PREEMPTED", "LAUNCH_FAILED", "REVOKED"};
  if (ended->count(state) > 0) return SlurmPhase::kEnded;
  return lost->count(state) > 0 ? SlurmPhase::kLost : SlurmPhase::kActive;
}

}  // namespace catchment
