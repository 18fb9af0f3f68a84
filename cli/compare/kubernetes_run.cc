#include "cli/compare/kubernetes_run.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/base/run_directory.h"
#include "common/base/status_macros.h"
#include "common/job/job_text.h"
#include "nlohmann/json.hpp"

namespace catchment {
namespace {

namespace fs = std::filesystem;

constexpr char kKustomization[] =
    R"(# Made by catchment compare: a run.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - run.yaml
)";

absl::Status Refuse(const std::string& reason) { return absl::InvalidArgumentError(reason); }

// Returns a text that YAML reads as the string.
std::string Quoted(const std::string& text) { return nlohmann::json(text).dump(); }

}  // namespace

absl::Status CheckForKubernetes(const CompareOptions& options) {
  RETURN_IF_ERROR(CheckSite(options.kubernetes));
  if (!options.overlay.empty() && !fs::exists(options.overlay + "/kustomization.yaml")) {
    return Refuse(absl::StrCat("--overlay=", options.overlay, ": there is no ", options.overlay,
                               "/kustomization.yaml; it has `kind: Component` and your patches"));
  }
  if (options.program.empty()) return absl::OkStatus();
  return Refuse(
      "--program: is not supported with --launcher=kubectl; give a job whose model is `layers`, "
      "or train on this machine or on Slurm");
}

absl::Status WriteManifests(const CompareOptions& options, const PlannedRun& run,
                            const std::string& directory) {
  std::error_code error;
  fs::create_directories(directory + kManifests, error);
  std::string kustomization = kKustomization;
  if (!options.overlay.empty()) {
    // kubectl does not accept absolute paths of components.
    const fs::path overlay = fs::relative(options.overlay, directory + kManifests, error);
    absl::StrAppend(&kustomization, "components:\n  - ", Quoted(overlay.string()), "\n");
  }
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot write manifests to ", directory, kManifests, ": ", error.message()));
  }
  const KubernetesJob job = {.site = options.kubernetes,
                             .job = run.job,
                             .servers = options.servers,
                             .threads = options.threads,
                             .run = directory};
  const std::vector<std::pair<std::string, std::string>> files = {
      {kManifestJob, JobText(run.job)},
      {absl::StrCat(kManifests, "/run.yaml"), Manifests(job)},
      {absl::StrCat(kManifests, "/kustomization.yaml"), kustomization}};
  for (const auto& [name, text] : files) {
    RETURN_IF_ERROR(WriteFile(directory + name, text));
  }
  return absl::OkStatus();
}

std::optional<RunState> ParseState(const std::string& output) {
  const std::optional<std::string> progress = ValueOf("progress", output);
  if (!progress.has_value()) return std::nullopt;
  return RunState{*progress, ValueOf("phase", output).value_or("")};
}

std::optional<std::string> ValueOf(const std::string& key, const std::string& output) {
  std::optional<std::string> value;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(output, '\n'))) {
    if (absl::StartsWith(line, key + "=")) value = line.substr(key.size() + 1);
  }
  return value;
}

}  // namespace catchment
