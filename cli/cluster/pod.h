// The Pods of a job on Kubernetes: their containers, volumes and limits, for each role.
#ifndef CATCHMENT_CLI_CLUSTER_POD_H_
#define CATCHMENT_CLI_CLUSTER_POD_H_

#include <string>

#include "cli/cluster/manifests.h"
#include "nlohmann/json.hpp"

namespace catchment {

// Returns the template of the Pods of a role, for a StatefulSet or a Job. The job is valid.
nlohmann::ordered_json PodTemplate(const KubernetesJob& job, const std::string& role);

}  // namespace catchment

#endif  // CATCHMENT_CLI_CLUSTER_POD_H_
