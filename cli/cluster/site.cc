// The flags of a cluster, and the checks of a job for it.
#include <algorithm>
#include <regex>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/cluster/job_names.h"
#include "cli/cluster/manifests.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

constexpr int kMaxPort = 65535;
// Kubernetes' limit of 63 characters for a label, less the longest suffix: a JobSet's Pods are
// NAME-evaluator-0-99-abcde.
constexpr size_t kMaxName = 42;
constexpr size_t kMaxLabel = 63;
constexpr size_t kMaxObjectName = 253;

absl::Status Refuse(const std::string& reason) { return absl::InvalidArgumentError(reason); }

// Returns an error unless Kubernetes accepts `name`: a label of at most `max` characters, which may contain
// dots if `dots` is set.
absl::Status CheckName(const std::string& flag, const std::string& name, size_t max, bool dots) {
  const auto alphanumeric = [](char c) { return absl::ascii_isdigit(c) || absl::ascii_islower(c); };
  const bool known = std::all_of(name.begin(), name.end(),
                                 [&](char c) { return alphanumeric(c) || c == '-' || (dots && c == '.'); });
  const bool ends = !name.empty() && alphanumeric(name.front()) && alphanumeric(name.back());
  if (known && ends && name.size() <= max) return absl::OkStatus();
  return Refuse(absl::StrCat("--", flag, "=", name, ": must be 1 to ", max,
                             " lower-case letters, digits and '-'", dots ? ", with '.' between them" : "",
                             ", and begin and end with a letter or a digit"));
}

// Returns an error unless Kubernetes accepts a quantity of bytes; an empty one is a default.
absl::Status CheckQuantity(const std::string& flag, const std::string& quantity) {
  static const std::regex* const kQuantity = new std::regex("([1-9][0-9]*([kMGT]|[KMGT]i)?)?");
  if (std::regex_match(quantity, *kQuantity)) return absl::OkStatus();
  return Refuse(absl::StrCat("--", flag, "=", quantity, ": must be a whole number of bytes, such as 16Gi"));
}

absl::Status CheckPlacement(const KubernetesSite& site) {
  static const std::string role = "((server|worker|evaluator):)?";
  static const std::string key = "[A-Za-z0-9]([A-Za-z0-9._/-]*[A-Za-z0-9])?", value = "[A-Za-z0-9._-]*";
  static const std::regex* const kSelector = new std::regex(absl::StrCat(role, key, "=", value));
  static const std::regex* const kToleration =
      new std::regex(absl::StrCat(role, key, "(=", value, ")?(:(NoSchedule|PreferNoSchedule|NoExecute))?"));
  for (const std::string& one : site.node_selectors) {
    if (std::regex_match(one, *kSelector)) continue;
    return Refuse(absl::StrCat("--node_selector=", one,
                               ": must be a label, such as pool=gpu, or worker:pool=gpu for workers only"));
  }
  for (const std::string& one : site.tolerations) {
    if (std::regex_match(one, *kToleration)) continue;
    return Refuse(absl::StrCat("--toleration=", one,
                               ": must be a taint, such as spot=true:NoSchedule; effects are NoSchedule, "
                               "PreferNoSchedule and NoExecute"));
  }
  return absl::OkStatus();
}

}  // namespace

void AddSiteFlags(KubernetesSite* site, FlagSet* flags) {
  flags->AddString("image", "IMAGE", &site->image,
                   "Image of all Pods, built with deploy/container/Dockerfile, "
                   "such as registry.example/catchment:0.1.0. Required.");
  flags->AddString("data_claim", "NAME", &site->data_claim,
                   "PersistentVolumeClaim with the data, mounted by workers and evaluators at /data "
                   "($CATCHMENT_DATA). Not needed for generated data.");
  flags->AddString("storage_class", "NAME", &site->storage_class,
                   "Storage class of the volume for results, which all servers write to; it must support "
                   "ReadWriteMany. Default: the cluster's.");
  flags->AddSwitch("one_node", &site->one_node,
                   "For clusters of one node, such as kind and minikube: the volume is ReadWriteOnce, "
                   "Pods request a tenth of a core, and an image that the node has is not pulled.");
  flags->AddString("tls_secret", "NAME", &site->tls_secret,
                   "Mutual TLS with the files of deploy/make_certs.sh in this Secret. Without it or "
                   "--cert_manager, connections are in clear text, protected only by the NetworkPolicy.");
  flags->AddSwitch("cert_manager", &site->cert_manager,
                   "Mutual TLS with certificates made and renewed by cert-manager, which must be installed.");
  flags->AddString(
      "memory", "QUANTITY", &site->memory,
      "Memory of a worker or an evaluator, such as 16Gi, as request and limit. Default: 1.5 times "
      "what `catchment validate` says, at least 1Gi, and up to 3Gi more for data; with a GPU at "
      "least 8Gi, and up to 8Gi more.");
  flags->AddString("server_memory", "QUANTITY", &site->server_memory, "Memory of a server, likewise.");
  flags->AddString("storage", "QUANTITY", &site->storage,
                   "Size of the volume for results. Default: 1.5 times what checkpoints and models need, at "
                   "least 10Gi.");
  flags->AddList("node_selector", "[ROLE:]KEY=VALUE", &site->node_selectors,
                 "Label of the nodes for all Pods, or those of a role: server, worker or evaluator. May be "
                 "repeated.");
  flags->AddList(
      "toleration", "[ROLE:]KEY[=VALUE][:EFFECT]", &site->tolerations,
      "Taint of nodes on which Pods may run all the same, such as worker:spot=true:NoSchedule. May "
      "be repeated.");
}

std::vector<std::pair<std::string, std::string>> GivenFlags(const KubernetesSite& site) {
  std::vector<std::pair<std::string, std::string>> given;
  const auto add = [&given](const std::string& name, const std::string& value) {
    if (!value.empty()) given.emplace_back(name, value);
  };
  add("image", site.image);
  add("data_claim", site.data_claim);
  add("storage_class", site.storage_class);
  add("one_node", site.one_node ? "true" : "");
  add("tls_secret", site.tls_secret);
  add("cert_manager", site.cert_manager ? "true" : "");
  return given;
}

absl::Status CheckSite(const KubernetesSite& site) {
  if (site.image.empty()) {
    return Refuse(
        "--image=IMAGE is required: the image of all Pods, such as registry.example/catchment:0.1.0; build "
        "it with deploy/container/Dockerfile of a bundle");
  }
  if (!std::all_of(site.image.begin(), site.image.end(), absl::ascii_isgraph)) {
    return Refuse(absl::StrCat("--image=", site.image, ": an image has no spaces in its name"));
  }
  if (site.cert_manager && !site.tls_secret.empty()) {
    return Refuse("--tls_secret and --cert_manager are mutually exclusive: give one of them");
  }
  for (const auto& [flag, name] : GivenFlags(site)) {
    if (flag == "image") continue;
    RETURN_IF_ERROR(CheckName(flag, name, kMaxObjectName, /*dots=*/true));
  }
  return absl::OkStatus();
}

absl::Status CheckKubernetesJob(const KubernetesJob& job) {
  RETURN_IF_ERROR(CheckSite(job.site));
  RETURN_IF_ERROR(CheckPlacement(job.site));
  RETURN_IF_ERROR(CheckQuantity("memory", job.site.memory));
  RETURN_IF_ERROR(CheckQuantity("server_memory", job.site.server_memory));
  RETURN_IF_ERROR(CheckQuantity("storage", job.site.storage));
  RETURN_IF_ERROR(CheckName("name", job.name, kMaxName, /*dots=*/false));
  if (absl::ascii_isdigit(job.name.front())) {
    return Refuse(absl::StrCat("--name=", job.name, ": a Service's name begins with a letter"));
  }
  if (job.metrics_port > kMaxPort || job.metrics_port == kPort) {
    return Refuse(absl::StrCat("--metrics_port=", job.metrics_port, ": must be at most ", kMaxPort,
                               ", and not ", kPort, ", at which the servers listen"));
  }
  if (!job.metrics_from.empty()) {
    if (job.metrics_port == 0) {
      return Refuse(absl::StrCat("--metrics_from=", job.metrics_from,
                                 ": requires --metrics_port, without which there are no metrics"));
    }
    RETURN_IF_ERROR(CheckName("metrics_from", job.metrics_from, kMaxLabel, /*dots=*/false));
  }
  if (job.name_space.empty()) return absl::OkStatus();
  return CheckName("namespace", job.name_space, kMaxLabel, /*dots=*/false);
}

}  // namespace catchment
