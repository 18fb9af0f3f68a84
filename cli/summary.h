// The result of a run, summary.json, for people.
#ifndef CATCHMENT_CLI_SUMMARY_H_
#define CATCHMENT_CLI_SUMMARY_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace catchment {

// InvalidArgument, naming the file, when `text` is not a JSON object.
absl::StatusOr<nlohmann::json> ParseSummary(const std::string& text, const std::string& file);

// A table; what the summary lacks is left out. `more`: rows to add, name and value.
std::string SummaryTable(const nlohmann::json& summary,
                         const std::vector<std::pair<std::string, std::string>>& more = {});

// A table with a row for each worker: what became of its pushes, how stale they were in updates of the center
// and in time, and how far the center had gone meanwhile. Empty where the summary has none of it.
std::string WorkerTable(const nlohmann::json& summary);

}  // namespace catchment

#endif  // CATCHMENT_CLI_SUMMARY_H_
