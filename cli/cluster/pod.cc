#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/cluster/job_names.h"
#include "cli/cluster/manifests.h"
#include "common/base/random.h"
#include "common/job/job_text.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kUser = 10001;  // as in deploy/container/Dockerfile

std::string HashOf(const std::string& text) {
  uint64_t hash = text.size();
  for (const char c : text) hash = Derive(hash, static_cast<uint8_t>(c));
  return FormatId(hash);
}

std::string Quantity(int64_t mebibytes) {
  return mebibytes % 1024 == 0 ? absl::StrCat(mebibytes / 1024, "Gi") : absl::StrCat(mebibytes, "Mi");
}

// Returns the values of a flag that are for a role, without its name: "worker:a=b" is for workers.
std::vector<std::string> ForRole(const std::vector<std::string>& given, const std::string& role) {
  std::vector<std::string> found;
  for (absl::string_view value : given) {
    if (absl::ConsumePrefix(&value, role + ":") ||
        (!absl::StartsWith(value, "server:") && !absl::StartsWith(value, "worker:") &&
         !absl::StartsWith(value, "evaluator:")))
      found.emplace_back(value);
  }
  return found;
}

// Makes the template of one role's Pods.
class PodMaker : private JobNames {
 public:
  PodMaker(const KubernetesJob& job, const std::string& role) : JobNames(job), job_(job), role_(role) {}

  Json Template() const {
    Json pod = Json::object();
    if (role_ != kServer || job_.jobset) pod["restartPolicy"] = "Never";
    pod["automountServiceAccountToken"] = false;
    pod["enableServiceLinks"] = false;
    // A server that receives SIGTERM stops the whole job with a checkpoint.
    pod["terminationGracePeriodSeconds"] = role_ == kServer ? 120 : 30;
    pod["securityContext"] = {{"runAsNonRoot", true}, {"runAsUser", kUser}, {"runAsGroup", kUser}};
    if (WritesResults()) pod["securityContext"]["fsGroup"] = kUser;
    pod["securityContext"]["seccompProfile"] = {{"type", "RuntimeDefault"}};
    if (role_ == kServer) pod["affinity"] = OnDifferentNodes();
    if (const Json selector = NodeSelector(); !selector.empty()) pod["nodeSelector"] = selector;
    if (const Json tolerations = Tolerations(); !tolerations.empty()) pod["tolerations"] = tolerations;
    pod["containers"] = Json::array({Container()});
    pod["volumes"] = Volumes();
    Json metadata = {{"labels", Marks(role_)}};
    // Kubernetes restarts the servers when their template changes, and they read the job when they start. The
    // templates of Jobs and of a JobSet cannot be changed.
    if (role_ == kServer && !job_.jobset)
      metadata["annotations"] = {{"catchment/job", HashOf(JobText(job_.job))}};
    return {{"metadata", metadata}, {"spec", pod}};
  }

 private:
  // Servers run on different nodes if possible, so that they do not share network and memory bandwidth.
  Json OnDifferentNodes() const {
    const Json term = {{"topologyKey", "kubernetes.io/hostname"}, {"labelSelector", Selector(kServer)}};
    return {{"podAntiAffinity",
             {{"preferredDuringSchedulingIgnoredDuringExecution",
               Json::array({{{"weight", 100}, {"podAffinityTerm", term}}})}}}};
  }

  Json NodeSelector() const {
    Json selector = Json::object();
    for (const std::string& given : ForRole(job_.site.node_selectors, role_)) {
      const std::pair<std::string, std::string> label = absl::StrSplit(given, absl::MaxSplits('=', 1));
      selector[label.first] = label.second;
    }
    return selector;
  }

  Json Tolerations() const {
    std::vector<std::string> all = ForRole(job_.site.tolerations, role_);
    if (OnGpu()) all.insert(all.begin(), "nvidia.com/gpu:NoSchedule");
    Json tolerations = Json::array();
    for (const std::string& given : all) {
      const std::pair<std::string, std::string> parts = absl::StrSplit(given, absl::MaxSplits(':', 1));
      const std::pair<std::string, std::string> taint = absl::StrSplit(parts.first, absl::MaxSplits('=', 1));
      Json one = {{"key", taint.first}, {"operator", taint.second.empty() ? "Exists" : "Equal"}};
      if (!taint.second.empty()) one["value"] = taint.second;
      if (!parts.second.empty()) one["effect"] = parts.second;
      tolerations.push_back(one);
    }
    return tolerations;
  }

  bool RunsProgram() const { return role_ != kServer && !job_.program.empty(); }

  bool WritesResults() const { return role_ == kServer || (role_ == kWorker && RunsProgram()); }

  bool OnGpu() const { return role_ == kWorker && job_.job.device() == v1::CUDA; }

  Json Container() const {
    const std::string script = role_ == kServer ? "server.sh" : "worker.sh";
    Json container = {{"name", role_}, {"image", job_.site.image}};
    // kind and minikube have images that are in no registry.
    if (job_.site.one_node) container["imagePullPolicy"] = "IfNotPresent";
    container["command"] = Json::array({absl::StrCat("/opt/catchment/deploy/kubernetes/", script)});
    container["args"] = Args();
    container["env"] = Environment();
    if (role_ == kServer) AddProbes(&container);
    for (const auto& [name, port] : Ports()) {
      container["ports"].push_back({{"name", name}, {"containerPort", port}});
    }
    container["resources"] = Resources();
    container["securityContext"] = {{"allowPrivilegeEscalation", false},
                                    {"readOnlyRootFilesystem", true},
                                    {"capabilities", {{"drop", Json::array({"ALL"})}}}};
    container["volumeMounts"] = Mounts();
    return container;
  }

  std::vector<std::pair<std::string, int>> Ports() const {
    std::vector<std::pair<std::string, int>> ports;
    if (role_ == kServer) ports.emplace_back("grpc", kPort);
    if (job_.metrics_port > 0) ports.emplace_back("metrics", job_.metrics_port);
    return ports;
  }

  Json Args() const {
    Json args = RoleArgs();
    if (job_.metrics_port > 0) args.push_back(absl::StrCat("--metrics_port=0.0.0.0:", job_.metrics_port));
    return args;
  }

  Json RoleArgs() const {
    // The job does not end before one of the evaluators has scored the final weights. `kubectl port-forward`
    // connects to localhost in the Pod.
    if (role_ == kServer) {
      return Json::array({absl::StrCat("--evaluators=", job_.evaluators), "--listen_everywhere"});
    }
    Json args = {"--master=" + Master(), absl::StrCat("--threads=", role_ == kWorker ? job_.threads : 1),
                 "--connect_timeout_seconds=600"};
    if (role_ == kEvaluator) {
      args.push_back("--role=evaluator");
      args.push_back("--device=cpu");
    }
    return args;
  }

  Json Environment() const {
    std::vector<std::pair<std::string, std::string>> variables = {{"OUT", "/out"}};
    // For `kubectl exec POD -- catchment status`.
    variables.emplace_back("CATCHMENT_MASTER", Master());
    if (Secure()) {
      variables.insert(variables.end(), {{"CATCHMENT_TLS_CA", "/certs/ca.crt"},
                                         {"CATCHMENT_TLS_CERT", "/certs/tls.crt"},
                                         {"CATCHMENT_TLS_KEY", "/certs/tls.key"}});
    } else {
      // Only the NetworkPolicy keeps others out.
      variables.emplace_back("CATCHMENT_INSECURE", "1");
    }
    if (role_ == kServer) {
      variables.insert(variables.end(), {{"SERVERS", absl::StrCat(job_.servers)},
                                         {"HOST_PREFIX", HostPrefix()},
                                         {"SERVICE", Domain()},
                                         {"PORT", absl::StrCat(kPort)},
                                         {"JOB", "/job/job.textproto"}});
      if (!job_.jobset) variables.emplace_back("STAY", "/tmp/ended");
    }
    if (!job_.program.empty() && role_ == kServer) variables.emplace_back("AWAIT", kInitialWeights);
    if (RunsProgram()) {
      // $(NAME) is Kubernetes' notation for a variable.
      variables.emplace_back("PROGRAM", absl::StrReplaceAll(job_.program, {{"$(", "$$("}}));
      variables.emplace_back("HOME", "/tmp");
    }
    Json env = Json::array();
    for (const auto& [name, value] : variables) env.push_back({{"name", name}, {"value", value}});
    return env;
  }

  // A server is alive if its process answers, and ready while the job trains. It has ten minutes to read a
  // checkpoint, before it listens. The kubelet's gRPC probe supports no TLS.
  void AddProbes(Json* container) const {
    const auto shell = [](const std::string& command) {
      return Json{{"command", Json::array({"/bin/sh", "-c", command})}};
    };
    const std::string health = R"(exec /opt/catchment/bin/catchment health "$HOSTNAME.$SERVICE:$PORT")";
    const Json alive = shell(R"(test -e "$STAY" || )" + health);
    const std::string service = "catchment.v1.ShardService";
    Json ready = Json::object();
    if (Secure()) {
      ready["exec"] = shell(absl::StrCat(health, " --service=", service));
    } else {
      ready["grpc"] = {{"port", kPort}, {"service", service}};
    }
    ready.update({{"periodSeconds", 5}, {"timeoutSeconds", 5}});
    (*container)["startupProbe"] = {
        {"exec", alive}, {"periodSeconds", 5}, {"timeoutSeconds", 5}, {"failureThreshold", 120}};
    (*container)["livenessProbe"] = {
        {"exec", alive}, {"periodSeconds", 10}, {"timeoutSeconds", 5}, {"failureThreshold", 3}};
    (*container)["readinessProbe"] = ready;
  }

  Json Resources() const {
    const bool small = job_.site.one_node;
    const int cores = role_ == kWorker ? job_.threads : 1;
    const int64_t least = OnGpu() ? 8192 : small ? 256 : 1024, more = OnGpu() ? 8192 : 3072;
    const int64_t needed = std::max(least, NeededMebibytes());
    const std::string& given = role_ == kServer ? job_.site.server_memory : job_.site.memory;
    Json requests = {{"cpu", small ? "100m" : absl::StrCat(cores)},
                     {"memory", given.empty() ? Quantity(needed) : given}};
    Json limits = {{"memory", given.empty() ? Quantity(needed + more) : given}};
    if (OnGpu()) {
      requests["nvidia.com/gpu"] = "1";
      limits["nvidia.com/gpu"] = "1";
    }
    return {{"requests", requests}, {"limits", limits}};
  }

  // The figures of `catchment validate` are without the program and its libraries, and without the data and
  // buffers, for which limits are higher than requests.
  int64_t NeededMebibytes() const {
    const int64_t own = RunsProgram() ? 2048 : 256,
                  bytes = role_ == kServer ? job_.server_bytes : job_.worker_bytes;
    return own + (bytes * 3 / 2 >> 20) / 64 * 64;
  }

  Json Mounts() const {
    const auto mount = [](const std::string& name, bool read_only) {
      Json made = {{"name", name}, {"mountPath", "/" + name}};
      if (read_only) made["readOnly"] = true;
      return made;
    };
    Json mounts = {mount("out", /*read_only=*/!WritesResults()), mount("tmp", /*read_only=*/false)};
    if (role_ == kServer) mounts.push_back(mount("job", /*read_only=*/true));
    // A container has 64 MiB otherwise, too few for the processes of a DataLoader.
    if (RunsProgram()) mounts.push_back({{"name", "shm"}, {"mountPath", "/dev/shm"}});
    if (ReadsData()) mounts.push_back(mount("data", /*read_only=*/true));
    if (Secure()) mounts.push_back(mount("certs", /*read_only=*/true));
    return mounts;
  }

  Json Volumes() const {
    Json volumes = {{{"name", "out"}, {"persistentVolumeClaim", {{"claimName", Name("out")}}}},
                    {{"name", "tmp"}, {"emptyDir", Json::object()}}};
    if (role_ == kServer) volumes.push_back({{"name", "job"}, {"configMap", {{"name", Name("job")}}}});
    if (RunsProgram()) volumes.push_back({{"name", "shm"}, {"emptyDir", {{"medium", "Memory"}}}});
    if (ReadsData()) {
      volumes.push_back(
          {{"name", "data"},
           {"persistentVolumeClaim", {{"claimName", job_.site.data_claim}, {"readOnly", true}}}});
    }
    if (Secure()) volumes.push_back({{"name", "certs"}, {"secret", Secret()}});
    return volumes;
  }

  bool ReadsData() const { return role_ != kServer && !job_.site.data_claim.empty(); }

  // A secret that deploy/make_certs.sh's files were put into has those of all roles, and a Pod sees its own.
  Json Secret() const {
    if (job_.site.cert_manager) return {{"secretName", Name(role_)}};
    const auto item = [](const std::string& key, const std::string& path) {
      return Json{{"key", key}, {"path", path}};
    };
    return {{"secretName", job_.site.tls_secret},
            {"items", Json::array({item("ca.crt", "ca.crt"), item(role_ + ".crt", "tls.crt"),
                                   item(role_ + ".key", "tls.key")})}};
  }

  const KubernetesJob& job_;
  const std::string role_;
};

}  // namespace

Json PodTemplate(const KubernetesJob& job, const std::string& role) { return PodMaker(job, role).Template(); }

}  // namespace catchment
