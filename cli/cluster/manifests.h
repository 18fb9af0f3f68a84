// The manifests of a job on Kubernetes: servers as a StatefulSet, workers and evaluators as Indexed Jobs, the
// job file as a ConfigMap, a claim for results, and a NetworkPolicy. All names begin with the job's, and all
// objects have it as app.kubernetes.io/instance, so that a namespace may have several jobs. The Pods run
// deploy/kubernetes/server.sh and worker.sh.
//
// Requires Kubernetes 1.29 (backoffLimitPerIndex).
#ifndef CATCHMENT_CLI_CLUSTER_MANIFESTS_H_
#define CATCHMENT_CLI_CLUSTER_MANIFESTS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cli/base/terminal.h"
#include "common/program/command_line.h"
#include "nlohmann/json.hpp"
#include "proto/job.pb.h"

namespace catchment {

// The settings of a cluster, which do not change from job to job.
struct KubernetesSite {
  std::string image;
  std::string data_claim;     // mounted at /data; empty: none
  std::string storage_class;  // of the claim for results; empty: the cluster's default
  std::string
      tls_secret;  // has the files of deploy/make_certs.sh; empty: no TLS, or certificates of cert-manager
  bool cert_manager = false;
  bool one_node = false;
  std::string memory;                       // of a worker or an evaluator; empty: by the figures of the job
  std::string server_memory;                // likewise
  std::string storage;                      // of the claim for results; empty: likewise
  std::vector<std::string> node_selectors;  // [ROLE:]KEY=VALUE
  std::vector<std::string> tolerations;     // [ROLE:]KEY[=VALUE][:EFFECT]
};

// Declares the flags of a cluster: --image and others.
void AddSiteFlags(KubernetesSite* site, FlagSet* flags);

// Returns the names of the flags that are given, and their values.
std::vector<std::pair<std::string, std::string>> GivenFlags(const KubernetesSite& site);

// Returns an error that names the flag whose value Kubernetes would refuse, or which is missing.
absl::Status CheckSite(const KubernetesSite& site);

struct KubernetesJob {
  std::string name = "catchment";
  std::string name_space = "";  // empty: kubectl's
  KubernetesSite site = {};
  v1::Job job = {};  // complete; its device decides whether workers request a GPU
  int servers = 1;
  int evaluators = 1;
  int threads = 1;                // of each worker
  int metrics_port = 0;           // at which all daemons serve metrics; 0: none
  std::string metrics_from = "";  // the namespace whose Pods may read them; empty: the job's
  bool jobset = false;            // everything in a JobSet instead of a StatefulSet and Jobs
  int ttl_seconds = -1;           // after which Jobs that have ended are deleted; -1: never
  std::string program = "";       // the command of the workers and evaluators; empty: the job has `layers`
  // The bytes that they need by the figures of `catchment validate`.
  int64_t worker_bytes = 0;
  int64_t server_bytes = 0;
  int64_t stored_bytes = 0;  // checkpoints and models
  std::string run = "";      // the value of `run` in the ConfigMap; empty: there is none
};

// Returns an error for a name or a namespace that Kubernetes would refuse, and those of CheckSite.
absl::Status CheckKubernetesJob(const KubernetesJob& job);

// Returns the manifests as YAML documents, for `kubectl apply -f`. `job` is valid.
std::string Manifests(const KubernetesJob& job);

// `catchment manifests JOB`: prints the job's manifests. Exit code 0: printed; 1: the job is not valid.
int RunManifests(const std::vector<std::string>& args, const Streams& streams);

// In the volume for results: the weights that the program begins with, which the first worker writes.
inline constexpr char kInitialWeights[] = "/out/initial.safetensors";

// Returns the template of the Pods of a role, for a StatefulSet or a Job. The job is valid.
nlohmann::ordered_json PodTemplate(const KubernetesJob& job, const std::string& role);

// Returns a document in YAML's block style, with the keys in their order. Strings of several lines are
// literal blocks. Any YAML 1.1 or 1.2 parser reads the same value from it.
std::string ToYaml(const nlohmann::ordered_json& value);

}  // namespace catchment

#endif  // CATCHMENT_CLI_CLUSTER_MANIFESTS_H_
