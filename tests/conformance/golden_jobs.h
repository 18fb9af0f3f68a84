// Numbers that were worked out elsewhere, in JSON, and the jobs that they belong to.
#ifndef CATCHMENT_TESTS_CONFORMANCE_GOLDEN_JOBS_H_
#define CATCHMENT_TESTS_CONFORMANCE_GOLDEN_JOBS_H_

#include <glog/logging.h>
#include <google/protobuf/util/json_util.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/conformance/jobs.h"

namespace catchment {

// `path`: from the workspace's root. Lives as long as the program.
inline const nlohmann::json& ReadGolden(const std::string& path) {
  std::ifstream file(path);
  CHECK(file) << path;
  return *new nlohmann::json(nlohmann::json::parse(file));
}

// Returns the file's trajectories by name. They live as long as the program.
inline const std::map<std::string, nlohmann::json>& ReadTrajectories(const std::string& path) {
  auto* const trajectories = new std::map<std::string, nlohmann::json>;
  for (const nlohmann::json& trajectory : ReadGolden(path).at("trajectories"))
    trajectories->emplace(trajectory.at("name"), trajectory);
  return *trajectories;
}

inline std::vector<std::string> NamesOf(const std::map<std::string, nlohmann::json>& trajectories) {
  std::vector<std::string> names;
  for (const auto& [name, trajectory] : trajectories) names.push_back(name);
  return names;
}

// `job`: its fields, in the names of proto/job.proto. The learning rate is constant unless they say
// otherwise.
inline v1::Job JobOf(const nlohmann::json& job) {
  v1::Job fields;
  CHECK(google::protobuf::util::JsonStringToMessage(job.dump(), &fields).ok()) << job;
  return Complete(fields);
}

}  // namespace catchment

#endif  // CATCHMENT_TESTS_CONFORMANCE_GOLDEN_JOBS_H_
