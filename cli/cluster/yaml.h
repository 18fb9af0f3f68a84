// JSON values as YAML, for manifests that people read and edit.
#ifndef CATCHMENT_CLI_CLUSTER_YAML_H_
#define CATCHMENT_CLI_CLUSTER_YAML_H_

#include <string>

#include "nlohmann/json.hpp"

namespace catchment {

// Returns a document in YAML's block style, with the keys in their order. Strings of several lines are
// literal blocks. Any YAML 1.1 or 1.2 parser reads the same value from it.
std::string ToYaml(const nlohmann::ordered_json& value);

}  // namespace catchment

#endif  // CATCHMENT_CLI_CLUSTER_YAML_H_
