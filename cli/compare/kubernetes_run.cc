#include "cli/compare/kubernetes_run.h"

#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "cli/run_directory.h"
#include "common/job/job_text.h"
#include "nlohmann/json.hpp"

namespace catchment {
namespace {

namespace fs = std::filesystem;

constexpr char kKustomization[] =
    R"(# Made by catchment compare: a run, with the overlay's image, volumes and resources.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources:
  - $OVERLAY
configMapGenerator:
  - name: catchment-job
    behavior: replace
    files:
      - job.textproto
    literals:
      - $RUN
generatorOptions:
  disableNameSuffixHash: true
patches:
  - path: run.yaml
)";

constexpr char kPatch[] = R"(apiVersion: apps/v1
kind: StatefulSet
metadata:
  name: catchment-server
spec:
  replicas: $SERVERS
  template:
    spec:
      containers:
        - name: server
          env:
            - name: SERVERS
              value: "$SERVERS"
---
apiVersion: batch/v1
kind: Job
metadata:
  name: catchment-worker
spec:
  completions: $WORKERS
  parallelism: $WORKERS
  template:
    spec:
      containers:
        - name: worker
          env:
            - name: THREADS
              value: "$THREADS"
          resources:
            requests:
              cpu: "$THREADS"
)";

absl::Status Refuse(const std::string& reason) { return absl::InvalidArgumentError(reason); }

// Returns a text that YAML reads as the string.
std::string Quoted(const std::string& text) { return nlohmann::json(text).dump(); }

}  // namespace

absl::Status CheckForKubernetes(const CompareOptions& options) {
  if (options.overlay.empty()) {
    return Refuse(
        "--launcher=kubectl: --overlay=DIR is required: deploy/kubernetes/overlays/cpu, gpu or tls of a "
        "bundle, "
        "with your image");
  }
  if (!fs::exists(options.overlay + "/kustomization.yaml")) {
    return Refuse(absl::StrCat("--overlay=", options.overlay, ": there is no ", options.overlay,
                               "/kustomization.yaml; deploy/kubernetes/overlays of a bundle has three"));
  }
  if (options.program.empty()) return absl::OkStatus();
  return Refuse(
      "--program: is not supported with --launcher=kubectl; give a job whose model is `layers`, or train on "
      "this machine or on Slurm");
}

absl::Status WriteManifests(const CompareOptions& options, const PlannedRun& run,
                            const std::string& directory) {
  std::error_code error;
  fs::create_directories(directory + kManifests, error);
  // kubectl takes no absolute paths of resources.
  const fs::path overlay = fs::relative(options.overlay, directory + kManifests, error);
  if (error) {
    return absl::UnavailableError(
        absl::StrCat("cannot write manifests to ", directory, kManifests, ": ", error.message()));
  }
  const std::vector<std::pair<std::string, std::string>> files = {
      {kManifestJob, JobText(run.job)},
      {absl::StrCat(kManifests, "/run.yaml"),
       absl::StrReplaceAll(kPatch, {{"$SERVERS", absl::StrCat(options.servers)},
                                    {"$WORKERS", absl::StrCat(run.workers)},
                                    {"$THREADS", absl::StrCat(options.threads)}})},
      {absl::StrCat(kManifests, "/kustomization.yaml"),
       absl::StrReplaceAll(kKustomization,
                           {{"$OVERLAY", Quoted(overlay.string())}, {"$RUN", Quoted("run=" + directory)}})}};
  for (const auto& [name, text] : files) {
    if (absl::Status status = WriteFile(directory + name, text); !status.ok()) return status;
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
