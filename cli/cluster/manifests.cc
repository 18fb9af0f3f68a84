#include "cli/cluster/manifests.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/cluster/job_names.h"
#include "common/job/job_text.h"
#include "nlohmann/json.hpp"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;

// The number of Pods of each worker that may fail before its Job fails.
constexpr int kFailures = 20;

// Makes the manifests of a job.
class Maker : private JobNames {
 public:
  explicit Maker(const KubernetesJob& job) : JobNames(job), job_(job) {}

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
  Json Object(const std::string& version, const std::string& kind, const std::string& name) const {
    Json metadata = {{"name", name}};
    if (!job_.name_space.empty()) metadata["namespace"] = job_.name_space;
    metadata["labels"] = Marks();
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
                     {"resources", {{"requests", {{"storage", Storage()}}}}}};
    if (!job_.site.storage_class.empty()) claim["spec"]["storageClassName"] = job_.site.storage_class;
    return claim;
  }

  std::string Storage() const {
    constexpr int64_t kGibibyte = int64_t{1} << 30, kLeast = 10;
    if (!job_.site.storage.empty()) return job_.site.storage;
    return absl::StrCat(std::max(kLeast, job_.stored_bytes * 3 / 2 / kGibibyte + 1), "Gi");
  }

  // Allows connections between the job's Pods and its servers, to DNS, and from one namespace to metrics, but
  // no others.
  Json NetworkPolicy() const {
    const Json grpc = Json::array({{{"protocol", "TCP"}, {"port", kPort}}});
    const Json dns = Json::array({{{"protocol", "UDP"}, {"port", 53}}, {{"protocol", "TCP"}, {"port", 53}}});
    const auto pods = [&](const std::string& role) {
      return Json::array({{{"podSelector", Selector(role)}}});
    };
    Json policy = Object("networking.k8s.io/v1", "NetworkPolicy", job_.name);
    Json ingress = Json::array({{{"from", pods("")}, {"ports", grpc}}});
    if (job_.metrics_port > 0) {
      const Json own = {{"podSelector", Json::object()}};
      const Json other = {
          {"namespaceSelector", {{"matchLabels", {{"kubernetes.io/metadata.name", job_.metrics_from}}}}}};
      ingress.push_back({{"from", Json::array({job_.metrics_from.empty() ? own : other})},
                         {"ports", Json::array({{{"protocol", "TCP"}, {"port", job_.metrics_port}}})}});
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
                   {"template", PodTemplate(job_, kServer)}};
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
    if (job_.ttl_seconds >= 0) job["spec"]["ttlSecondsAfterFinished"] = job_.ttl_seconds;
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
            {"template", PodTemplate(job_, role)}};
  }

  // Pods have the names NAME-ROLE-0-INDEX.NAME.
  Json JobSet() const {
    Json jobs = Json::array();
    for (const char* const role : {kServer, kWorker, kEvaluator}) {
      if (Count(role) == 0) continue;
      jobs.push_back({{"name", role},
                      {"replicas", 1},
                      {"template", {{"metadata", {{"labels", Marks(role)}}}, {"spec", JobSpec(role)}}}});
    }
    Json set = Object("jobset.x-k8s.io/v1alpha2", "JobSet", job_.name);
    set["spec"] = {
        {"network",
         {{"enableDNSHostnames", true}, {"subdomain", Domain()}, {"publishNotReadyAddresses", true}}},
        {"successPolicy", {{"operator", "All"}, {"targetReplicatedJobs", Json::array({kServer})}}},
        {"failurePolicy", {{"maxRestarts", 5}}},
        {"replicatedJobs", jobs}};
    if (job_.ttl_seconds >= 0) set["spec"]["ttlSecondsAfterFinished"] = job_.ttl_seconds;
    return set;
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

std::string Manifests(const KubernetesJob& job) {
  std::vector<std::string> documents;
  for (const Json& object : Maker(job).All()) documents.push_back(ToYaml(object));
  return absl::StrJoin(documents, "---\n");
}

}  // namespace catchment
