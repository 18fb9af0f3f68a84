// A job's status as one JSON object. docs/operating.md explains the names; they do not change.
#ifndef CATCHMENT_CLI_STATUS_JSON_H_
#define CATCHMENT_CLI_STATUS_JSON_H_

#include <nlohmann/json.hpp>

#include "proto/master.pb.h"

namespace catchment {

// `before`: as for StatusText. What is not known is null.
nlohmann::ordered_json StatusJson(const v1::JobStatus& status, const v1::JobStatus* before);

}  // namespace catchment

#endif  // CATCHMENT_CLI_STATUS_JSON_H_
