#include "cli/kubernetes/manifests.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/kubernetes/yaml.h"
#include "common/base/status_macros.h"
#include "common/job/job_text.h"
#include "nlohmann/json.hpp"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kPort = 7000;
constexpr int kMaxPort = 65535;
constexpr int kUser = 10001;  // as in deploy/container/Dockerfile
// The number of Pods of each worker that may fail before its Job fails.
constexpr int kFailures = 20;
// Kubernetes' limit of 63 characters for a label, less the longest suffix: a JobSet's Pods are
// NAME-evaluator-0-99-abcde.
constexpr size_t kMaxName = 42;
constexpr size_t kMaxLabel = 63;
constexpr size_t kMaxObjectName = 253;

constexpr char kServer[] = "server";
constexpr char kWorker[] = "worker";
constexpr char kEvaluator[] = "evaluator";

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

// Makes the manifests of a job.
class Maker {
 public:
  explicit Maker(const KubernetesJob& job) : job_(job) {}

  std::vector<Json> All() const {
    std::vector<Json> all = {ConfigMap(), Claim(), NetworkPolicy()};
    if (job_.site.cert_manager) AppendCertificates(&all);
    if (job_.jobset) {
      all.push_back(JobSet());
      return all;
    }
    all.insert(all.end(), {Service(), StatefulSet(), DisruptionBudget(), Job(kWorker)});
    if (job_.evaluators > 0) all.push_back(Job(kEvaluator));
    return all;
  }

 private:
  std::string Name(const std::string& part) const { return absl::StrCat(job_.name, "-", part); }

  // Server I is at HostPrefix()I.Domain().
  std::string HostPrefix() const { return Name(job_.jobset ? "server-0-" : "server-"); }
  std::string Domain() const { return job_.jobset ? job_.name : Name("servers"); }
  std::string Host(int server) const { return absl::StrCat(HostPrefix(), server, ".", Domain()); }
  std::string Master() const { return absl::StrCat(Host(0), ":", kPort); }

  bool Secure() const { return job_.site.cert_manager || !job_.site.tls_secret.empty(); }

  int Count(const std::string& role) const {
    if (role == kServer) return job_.servers;
    return role == kWorker ? static_cast<int>(job_.job.workers()) : job_.evaluators;
  }

  Json Labels(const std::string& role = "") const {
    Json labels = {{"app.kubernetes.io/part-of", "catchment"}, {"app.kubernetes.io/instance", job_.name}};
    if (!role.empty()) labels["app.kubernetes.io/component"] = role;
    return labels;
  }

  Json Selector(const std::string& role = "") const { return {{"matchLabels", Labels(role)}}; }

  Json Object(const std::string& version, const std::string& kind, const std::string& name) const {
    Json metadata = {{"name", name}};
    if (!job_.name_space.empty()) metadata["namespace"] = job_.name_space;
    metadata["labels"] = Labels();
    return {{"apiVersion", version}, {"kind", kind}, {"metadata", metadata}};
  }

  Json ConfigMap() const {
    Json map = Object("v1", "ConfigMap", Name("job"));
    map["data"] = {{"job.textproto", JobText(job_.job)}};
    if (!job_.run.empty()) map["data"]["run"] = job_.run;
    return map;
  }

  Json Claim() const {
    Json claim = Object("v1", "PersistentVolumeClaim", Name("out"));
    claim["spec"] = {{"accessModes", Json::array({job_.site.one_node ? "ReadWriteOnce" : "ReadWriteMany"})},
                     {"resources", {{"requests", {{"storage", "10Gi"}}}}}};
    if (!job_.site.storage_class.empty()) claim["spec"]["storageClassName"] = job_.site.storage_class;
    return claim;
  }

  // Allows connections between the job's Pods and its servers, to DNS, and from everywhere to metrics, but no
  // others.
  Json NetworkPolicy() const {
    const Json grpc = Json::array({{{"protocol", "TCP"}, {"port", kPort}}});
    const Json dns = Json::array({{{"protocol", "UDP"}, {"port", 53}}, {{"protocol", "TCP"}, {"port", 53}}});
    const auto pods = [&](const std::string& role) {
      return Json::array({{{"podSelector", Selector(role)}}});
    };
    Json policy = Object("networking.k8s.io/v1", "NetworkPolicy", job_.name);
    Json ingress = Json::array({{{"from", pods("")}, {"ports", grpc}}});
    if (job_.metrics_port > 0) {
      ingress.push_back({{"ports", Json::array({{{"protocol", "TCP"}, {"port", job_.metrics_port}}})}});
    }
    policy["spec"] = {{"podSelector", Selector()},
                      {"policyTypes", {"Ingress", "Egress"}},
                      {"ingress", ingress},
                      {"egress", Json::array({{{"to", pods(kServer)}, {"ports", grpc}}, {{"ports", dns}}})}};
    return policy;
  }

  // The servers bind to their names before they are ready, and workers look these up before training begins.
  Json Service() const {
    Json service = Object("v1", "Service", Domain());
    service["spec"] = {{"clusterIP", "None"},
                       {"publishNotReadyAddresses", true},
                       {"selector", Labels(kServer)},
                       {"ports", Json::array({{{"name", "grpc"}, {"port", kPort}}})}};
    return service;
  }

  Json StatefulSet() const {
    Json set = Object("apps/v1", "StatefulSet", Name(kServer));
    set["spec"] = {{"serviceName", Domain()},
                   {"replicas", job_.servers},
                   {"podManagementPolicy", "Parallel"},
                   {"selector", Selector(kServer)},
                   {"template", Template(kServer)}};
    return set;
  }

  // A drain evicts one server at a time: the job ends with a checkpoint, and continues from it when the Pod
  // is back.
  Json DisruptionBudget() const {
    Json budget = Object("policy/v1", "PodDisruptionBudget", Name(kServer));
    budget["spec"] = {{"maxUnavailable", 1}, {"selector", Selector(kServer)}};
    return budget;
  }

  Json Job(const std::string& role) const {
    Json job = Object("batch/v1", "Job", Name(role));
    job["spec"] = JobSpec(role);
    return job;
  }

  // A Pod that fails is replaced. Evictions, preemptions and drains do not count as failures.
  Json JobSpec(const std::string& role) const {
    const Json disrupted = Json::array({{{"type", "DisruptionTarget"}, {"status", "True"}}});
    return {{"completionMode", "Indexed"},
            {"completions", Count(role)},
            {"parallelism", Count(role)},
            {"backoffLimitPerIndex", kFailures},
            {"podFailurePolicy",
             {{"rules", Json::array({{{"action", "Ignore"}, {"onPodConditions", disrupted}}})}}},
            {"template", Template(role)}};
  }

  // Pods have the names NAME-ROLE-0-INDEX.NAME.
  Json JobSet() const {
    Json jobs = Json::array();
    for (const char* const role : {kServer, kWorker, kEvaluator}) {
      if (Count(role) == 0) continue;
      jobs.push_back({{"name", role},
                      {"replicas", 1},
                      {"template", {{"metadata", {{"labels", Labels(role)}}}, {"spec", JobSpec(role)}}}});
    }
    Json set = Object("jobset.x-k8s.io/v1alpha2", "JobSet", job_.name);
    set["spec"] = {
        {"network",
         {{"enableDNSHostnames", true}, {"subdomain", Domain()}, {"publishNotReadyAddresses", true}}},
        {"successPolicy", {{"operator", "All"}, {"targetReplicatedJobs", Json::array({kServer})}}},
        {"failurePolicy", {{"maxRestarts", 5}}},
        {"replicatedJobs", jobs}};
    return set;
  }

  Json Template(const std::string& role) const {
    Json pod = Json::object();
    if (role != kServer || job_.jobset) pod["restartPolicy"] = "Never";
    pod["automountServiceAccountToken"] = false;
    pod["enableServiceLinks"] = false;
    // A server that receives SIGTERM stops the whole job with a checkpoint.
    pod["terminationGracePeriodSeconds"] = role == kServer ? 120 : 30;
    pod["securityContext"] = {{"runAsNonRoot", true}, {"runAsUser", kUser}, {"runAsGroup", kUser}};
    if (role == kServer) pod["securityContext"]["fsGroup"] = kUser;
    pod["securityContext"]["seccompProfile"] = {{"type", "RuntimeDefault"}};
    if (role == kServer) pod["affinity"] = OnDifferentNodes();
    if (OnGpu(role)) {
      pod["tolerations"] =
          Json::array({{{"key", "nvidia.com/gpu"}, {"operator", "Exists"}, {"effect", "NoSchedule"}}});
    }
    pod["containers"] = Json::array({Container(role)});
    pod["volumes"] = Volumes(role);
    return {{"metadata", {{"labels", Labels(role)}}}, {"spec", pod}};
  }

  // Servers run on different nodes if possible, so that they do not share network and memory bandwidth.
  Json OnDifferentNodes() const {
    const Json term = {{"topologyKey", "kubernetes.io/hostname"}, {"labelSelector", Selector(kServer)}};
    return {{"podAntiAffinity",
             {{"preferredDuringSchedulingIgnoredDuringExecution",
               Json::array({{{"weight", 100}, {"podAffinityTerm", term}}})}}}};
  }

  bool OnGpu(const std::string& role) const { return role == kWorker && job_.job.device() == v1::CUDA; }

  Json Container(const std::string& role) const {
    const std::string script = role == kServer ? "server.sh" : "worker.sh";
    Json container = {{"name", role}, {"image", job_.site.image}};
    // kind and minikube have images that are in no registry.
    if (job_.site.one_node) container["imagePullPolicy"] = "IfNotPresent";
    container["command"] = Json::array({absl::StrCat("/opt/catchment/deploy/kubernetes/", script)});
    container["args"] = Args(role);
    container["env"] = Environment(role);
    if (role == kServer) AddProbes(&container);
    for (const auto& [name, port] : Ports(role)) {
      container["ports"].push_back({{"name", name}, {"containerPort", port}});
    }
    container["resources"] = Resources(role);
    container["securityContext"] = {{"allowPrivilegeEscalation", false},
                                    {"readOnlyRootFilesystem", true},
                                    {"capabilities", {{"drop", Json::array({"ALL"})}}}};
    container["volumeMounts"] = Mounts(role);
    return container;
  }

  std::vector<std::pair<std::string, int>> Ports(const std::string& role) const {
    std::vector<std::pair<std::string, int>> ports;
    if (role == kServer) ports.emplace_back("grpc", kPort);
    if (job_.metrics_port > 0) ports.emplace_back("metrics", job_.metrics_port);
    return ports;
  }

  Json Args(const std::string& role) const {
    Json args = RoleArgs(role);
    if (job_.metrics_port > 0) args.push_back(absl::StrCat("--metrics_port=0.0.0.0:", job_.metrics_port));
    return args;
  }

  Json RoleArgs(const std::string& role) const {
    // The job does not end before one of the evaluators has scored the final weights. `kubectl port-forward`
    // connects to localhost in the Pod.
    if (role == kServer) {
      return Json::array({absl::StrCat("--evaluators=", job_.evaluators), "--listen_everywhere"});
    }
    Json args = {"--master=" + Master(), absl::StrCat("--threads=", role == kWorker ? job_.threads : 1),
                 "--connect_timeout_seconds=600"};
    if (role == kEvaluator) {
      args.push_back("--role=evaluator");
      args.push_back("--device=cpu");
    }
    return args;
  }

  Json Environment(const std::string& role) const {
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
    if (role == kServer) {
      variables.insert(variables.end(), {{"SERVERS", absl::StrCat(job_.servers)},
                                         {"HOST_PREFIX", HostPrefix()},
                                         {"SERVICE", Domain()},
                                         {"PORT", absl::StrCat(kPort)},
                                         {"JOB", "/job/job.textproto"}});
      if (!job_.jobset) variables.emplace_back("STAY", "/tmp/ended");
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

  Json Resources(const std::string& role) const {
    const bool small = job_.site.one_node;
    const int cores = role == kWorker ? job_.threads : 1;
    Json requests = {{"cpu", small ? "100m" : absl::StrCat(cores)},
                     {"memory", OnGpu(role) ? "8Gi"
                                : small     ? "256Mi"
                                            : "1Gi"}};
    Json limits = {{"memory", OnGpu(role) ? "16Gi" : "4Gi"}};
    if (OnGpu(role)) {
      requests["nvidia.com/gpu"] = "1";
      limits["nvidia.com/gpu"] = "1";
    }
    return {{"requests", requests}, {"limits", limits}};
  }

  Json Mounts(const std::string& role) const {
    const auto mount = [](const std::string& name, bool read_only) {
      Json made = {{"name", name}, {"mountPath", "/" + name}};
      if (read_only) made["readOnly"] = true;
      return made;
    };
    Json mounts = {mount("out", /*read_only=*/role != kServer), mount("tmp", /*read_only=*/false)};
    if (role == kServer) mounts.push_back(mount("job", /*read_only=*/true));
    if (ReadsData(role)) mounts.push_back(mount("data", /*read_only=*/true));
    if (Secure()) mounts.push_back(mount("certs", /*read_only=*/true));
    return mounts;
  }

  Json Volumes(const std::string& role) const {
    Json volumes = {{{"name", "out"}, {"persistentVolumeClaim", {{"claimName", Name("out")}}}},
                    {{"name", "tmp"}, {"emptyDir", Json::object()}}};
    if (role == kServer) volumes.push_back({{"name", "job"}, {"configMap", {{"name", Name("job")}}}});
    if (ReadsData(role)) {
      volumes.push_back(
          {{"name", "data"},
           {"persistentVolumeClaim", {{"claimName", job_.site.data_claim}, {"readOnly", true}}}});
    }
    if (Secure()) volumes.push_back({{"name", "certs"}, {"secret", Secret(role)}});
    return volumes;
  }

  bool ReadsData(const std::string& role) const { return role != kServer && !job_.site.data_claim.empty(); }

  // A secret that deploy/make_certs.sh's files were put into has those of all roles, and a Pod sees its own.
  Json Secret(const std::string& role) const {
    if (job_.site.cert_manager) return {{"secretName", Name(role)}};
    const auto item = [](const std::string& key, const std::string& path) {
      return Json{{"key", key}, {"path", path}};
    };
    return {{"secretName", job_.site.tls_secret},
            {"items", Json::array({item("ca.crt", "ca.crt"), item(role + ".crt", "tls.crt"),
                                   item(role + ".key", "tls.key")})}};
  }

  // An authority for this job, and a certificate for each role (docs/security.md).
  void AppendCertificates(std::vector<Json>* all) const {
    const std::string version = "cert-manager.io/v1";
    Json root = Object(version, "Issuer", Name("self-signed"));
    root["spec"] = {{"selfSigned", Json::object()}};
    Json authority = Object(version, "Certificate", Name("authority"));
    authority["spec"] = {{"isCA", true},
                         {"commonName", job_.name},
                         {"secretName", Name("authority")},
                         {"privateKey", {{"algorithm", "ECDSA"}, {"size", 256}}},
                         {"issuerRef", {{"name", Name("self-signed")}}}};
    Json issuer = Object(version, "Issuer", job_.name);
    issuer["spec"] = {{"ca", {{"secretName", Name("authority")}}}};
    all->insert(all->end(), {root, authority, issuer});
    for (const char* const role : {kServer, kWorker, kEvaluator, "operator"})
      all->push_back(Certificate(role));
  }

  Json Certificate(const std::string& role) const {
    Json certificate = Object("cert-manager.io/v1", "Certificate", Name(role));
    certificate["spec"] = {
        {"secretName", Name(role)},
        {"commonName", "catchment " + role},
        {"uris", Json::array({"catchment:role/" + role})},
        {"usages", {"digital signature", "client auth"}},
        {"privateKey", {{"algorithm", "ECDSA"}, {"size", 256}, {"rotationPolicy", "Always"}}},
        {"issuerRef", {{"name", job_.name}}}};
    if (role != kServer) return certificate;
    certificate["spec"]["usages"].push_back("server auth");
    certificate["spec"]["dnsNames"] = Json::array({"localhost"});
    for (int i = 0; i < job_.servers; ++i) certificate["spec"]["dnsNames"].push_back(Host(i));
    return certificate;
  }

  const KubernetesJob& job_;
};

}  // namespace

void AddSiteFlags(const std::string& head, KubernetesSite* site, FlagSet* flags) {
  flags->AddString("image", "IMAGE", &site->image,
                   head +
                       "Required: the image of all Pods, built with deploy/container/Dockerfile, such as "
                       "registry.example/catchment:0.1.0.");
  flags->AddString("data_claim", "NAME", &site->data_claim,
                   head +
                       "PersistentVolumeClaim with the data, mounted by workers and evaluators at /data "
                       "($CATCHMENT_DATA). Not needed for generated data.");
  flags->AddString("storage_class", "NAME", &site->storage_class,
                   head +
                       "Storage class of the volume for results, which all servers write to; it must support "
                       "ReadWriteMany. Default: the cluster's.");
  flags->AddSwitch("one_node", &site->one_node,
                   head +
                       "For clusters of one node, such as kind and minikube: the volume is ReadWriteOnce, "
                       "Pods request a tenth of a core, and an image that the node has is not pulled.");
  flags->AddString("tls_secret", "NAME", &site->tls_secret,
                   head +
                       "Mutual TLS with the files of deploy/make_certs.sh in this Secret. Without it or "
                       "--cert_manager, connections are in clear text, protected only by the NetworkPolicy.");
  flags->AddSwitch(
      "cert_manager", &site->cert_manager,
      head + "Mutual TLS with certificates made and renewed by cert-manager, which must be installed.");
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
  RETURN_IF_ERROR(CheckName("name", job.name, kMaxName, /*dots=*/false));
  if (absl::ascii_isdigit(job.name.front())) {
    return Refuse(absl::StrCat("--name=", job.name, ": a Service's name begins with a letter"));
  }
  if (job.metrics_port > kMaxPort || job.metrics_port == kPort) {
    return Refuse(absl::StrCat("--metrics_port=", job.metrics_port, ": must be at most ", kMaxPort,
                               ", and not ", kPort, ", at which the servers listen"));
  }
  if (job.name_space.empty()) return absl::OkStatus();
  return CheckName("namespace", job.name_space, kMaxLabel, /*dots=*/false);
}

absl::Status CheckModelForKubernetes(const v1::Job& job) {
  if (!job.model().has_external()) return absl::OkStatus();
  return Refuse(
      "model.external: Pods of these manifests run no program; give a job whose model is `layers`, or train "
      "on this machine or on Slurm");
}

std::string Manifests(const KubernetesJob& job) {
  std::vector<std::string> documents;
  for (const Json& object : Maker(job).All()) documents.push_back(ToYaml(object));
  return absl::StrJoin(documents, "---\n");
}

}  // namespace catchment
