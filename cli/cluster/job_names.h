// The names, labels and addresses by which the Kubernetes objects of a job refer to each other.
#ifndef CATCHMENT_CLI_CLUSTER_JOB_NAMES_H_
#define CATCHMENT_CLI_CLUSTER_JOB_NAMES_H_

#include <string>

#include "absl/strings/str_cat.h"
#include "cli/cluster/manifests.h"
#include "common/base/version.h"
#include "nlohmann/json.hpp"

namespace catchment {

// The port at which servers listen.
inline constexpr int kPort = 7000;

// The roles of Pods.
inline constexpr char kServer[] = "server";
inline constexpr char kWorker[] = "worker";
inline constexpr char kEvaluator[] = "evaluator";

// The objects' names begin with the job's.
class JobNames {
 public:
  // `job` must outlive it.
  explicit JobNames(const KubernetesJob& job) : job_(job) {}

  std::string Name(const std::string& part) const { return absl::StrCat(job_.name, "-", part); }

  // Server I is at HostPrefix()I.Domain().
  std::string HostPrefix() const { return Name(job_.jobset ? "server-0-" : "server-"); }
  std::string Domain() const { return job_.jobset ? job_.name : Name("servers"); }
  std::string Host(int server) const { return absl::StrCat(HostPrefix(), server, ".", Domain()); }
  // Returns the HOST:PORT of server 0.
  std::string Master() const { return absl::StrCat(Host(0), ":", kPort); }

  // Returns true if connections use TLS.
  bool Secure() const { return job_.site.cert_manager || !job_.site.tls_secret.empty(); }

  // Returns the number of Pods of a role.
  int Count(const std::string& role) const {
    if (role == kServer) return job_.servers;
    return role == kWorker ? static_cast<int>(job_.job.workers()) : job_.evaluators;
  }

  // Returns the labels of the Pods of a role; without one, those of all of the job's objects.
  nlohmann::ordered_json Labels(const std::string& role = "") const {
    nlohmann::ordered_json labels = {{"app.kubernetes.io/part-of", "catchment"},
                                     {"app.kubernetes.io/instance", job_.name}};
    if (!role.empty()) labels["app.kubernetes.io/component"] = role;
    return labels;
  }

  // Returns the same, and labels that no selector has.
  nlohmann::ordered_json Marks(const std::string& role = "") const {
    nlohmann::ordered_json labels = Labels(role);
    labels["app.kubernetes.io/name"] = "catchment";
    labels["app.kubernetes.io/version"] = BuildVersion().substr(0, BuildVersion().find(','));
    labels["app.kubernetes.io/managed-by"] = "catchment-manifests";
    return labels;
  }

  nlohmann::ordered_json Selector(const std::string& role = "") const {
    return {{"matchLabels", Labels(role)}};
  }

 private:
  const KubernetesJob& job_;
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_CLUSTER_JOB_NAMES_H_
