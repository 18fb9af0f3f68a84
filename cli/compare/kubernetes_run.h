// The manifests of a run on Kubernetes (cli/cluster/manifests.h) with the changes of an overlay, and the
// output of commands in its Pods. cli/compare/kubectl_launcher.h applies and executes them.
#ifndef CATCHMENT_CLI_COMPARE_KUBERNETES_RUN_H_
#define CATCHMENT_CLI_COMPARE_KUBERNETES_RUN_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "cli/compare/compare.h"
#include "cli/compare/compare_plan.h"

namespace catchment {

// Returns an error that names the flag of a comparison that runs on Kubernetes do not support, or the
// directory that is not an overlay.
absl::Status CheckForKubernetes(const CompareOptions& options);

// The directory of the manifests within a run's directory, and the files in it.
inline constexpr char kManifests[] = "/manifests";
inline constexpr char kManifestJob[] = "/manifests/job.textproto";

// Writes the manifests of a run to `directory`/manifests. `directory` is absolute; the ConfigMap
// catchment-job has it as `run`.
absl::Status WriteManifests(const CompareOptions& options, const PlannedRun& run,
                            const std::string& directory);

// The progress of a run, which changes while it trains, and the phase in its summary; empty before it has
// one.
struct RunState {
  std::string progress;
  std::string phase;
};

// A command for the shell of a server's container that prints the state of its run, and the lines in which it
// does.
inline constexpr char kStateCommand[] =
    "echo progress=$(tail -n 1 /out/metrics.jsonl | grep -o '\"samples\": *[0-9]*'); "
    "echo phase=$(grep -o '\"phase\": *\"[A-Z]*\"' /out/summary.json | grep -o '[A-Z][A-Z]*')";
std::optional<RunState> ParseState(const std::string& output);

// Returns what follows `key` and = on the last line that begins with them; nothing if there is none. kubectl
// prints warnings on other lines.
std::optional<std::string> ValueOf(const std::string& key, const std::string& output);

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_KUBERNETES_RUN_H_
