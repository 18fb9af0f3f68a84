// `catchment compare JOB --algorithms=... --out=DIR`: trains a job with several algorithms and writes a
// report.
//
// See also compare_plan.h (which runs), launcher.h (where they train), compare_directory.h (their results)
// and cli/report/findings.h (what the results show).
#ifndef CATCHMENT_CLI_COMPARE_COMPARE_H_
#define CATCHMENT_CLI_COMPARE_COMPARE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/base/process.h"
#include "cli/base/terminal.h"
#include "cli/cluster/manifests.h"
#include "cli/job/read_job.h"
#include "common/program/command_line.h"
#include "proto/job.pb.h"

namespace catchment {

// The end of each run: after samples, after seconds of training or, if both are 0, by the job's budget.
struct CompareBudget {
  int64_t samples = 0;
  double seconds = 0;
};

// The search for the learning rate and the momentum of an algorithm: successive halving (PlanSearches in
// compare_plan.h), or none.
enum class SearchKind { kHalving, kNone };

// The system on which the runs train.
enum class LauncherKind { kLocal, kSlurm, kKubernetes };

// The resources that a run requests from Slurm.
struct SlurmOptions {
  int nodes = 0;          // 0: 1
  int gpus_per_node = 0;  // 0: the workers compute on processors
  std::string partition;  // empty: the cluster's default
};

struct CompareOptions {
  std::string job;               // file; may be empty with a program
  std::vector<std::string> set;  // "path=value"
  std::vector<std::string> algorithms;
  std::vector<int> workers = {1, 2, 4};  // ascending
  int seeds = 3;
  CompareBudget budget;
  std::vector<v1::Straggler> stragglers;
  SearchKind search = SearchKind::kHalving;
  double target = 0;  // test accuracy as a share; 0: chosen from the results
  int servers = 1;
  int threads = 1;  // of each worker
  std::string device;
  std::string program;  // as in TrainOptions
  std::string out;
  bool overwrite = false;
  bool dry_run = false;  // prints the plan and starts nothing
  double stall_seconds = 600;
  LauncherKind launcher = LauncherKind::kLocal;
  SlurmOptions slurm;
  KubernetesSite kubernetes;
  // On Kubernetes: the directory of a component of kustomize that changes the manifests; may be empty.
  std::string overlay;
  // Changes the complete job of each run, if it is set.
  std::function<void(v1::Job*)> finish_job;

  std::vector<std::string> args;  // the whole command line
};

// Adds the flags that say which runs there are and where they are written: --algorithms, --workers, --seeds,
// --search, --budget, --target, --out, --overwrite, --set and --servers. `algorithms_default` is the last
// sentence of the help of the first.
void AddPlanFlags(const std::string& algorithms_default, CompareOptions* options, FlagSet* flags);

// Adds those of these that say how each run is carried out: --budget, --out (the default is options->out),
// --overwrite, --set and --servers.
void AddRunFlags(CompareOptions* options, FlagSet* flags);

// Adds the flags that say where and with what the runs train: --threads, --device, --program,
// --stall_seconds, --launcher and those of launchers.
void AddLaunchFlags(CompareOptions* options, FlagSet* flags);

// Refuses values of AddLaunchFlags that do not suit each other.
absl::Status CheckLaunchFlags(const CompareOptions& options);

// Refuses what --set changes if other flags of these, or the comparison itself, decide it.
absl::Status CheckPlanFlags(const CompareOptions& options);

// Returns a command line that fills *options except `args`.
CommandLine CompareCommandLine(CompareOptions* options);

// Return the values as the flags take them: "samples:120000", "1:4x".
std::string ToString(const CompareBudget& budget);
std::string ToString(const v1::Straggler& straggler);
std::string ToString(SearchKind search);

// Returns the job of the file and the program, with the overrides. The program's description is kept in
// *description.
absl::StatusOr<v1::Job> GivenJob(const CompareOptions& options, SignalWaiter* signals,
                                 std::optional<ProgramDescription>* description);

// Runs a command line. Returns the exit code, which --help explains. Call it on the main thread, before any
// other thread is started.
int RunCompareCommand(const std::vector<std::string>& args, const Streams& streams);

class Launcher;

// Compares with runs of `launcher`, and returns the exit code, or why there is no comparison.
absl::StatusOr<int> RunCompare(const CompareOptions& options, Launcher* launcher, SignalWaiter* signals,
                               const Streams& streams);

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_COMPARE_H_
