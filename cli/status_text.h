// The status of a job as text and as JSON.
#ifndef CATCHMENT_CLI_STATUS_TEXT_H_
#define CATCHMENT_CLI_STATUS_TEXT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/advice.h"
#include "nlohmann/json.hpp"
#include "proto/master.pb.h"

namespace catchment {

// The largest number of columns of the table.
constexpr int kStatusColumns = 100;

// Returns the status as text for people: job, progress, members, shards, events, and warnings with advice.
// Rates are those between `before`, an earlier status, and `status`; without `before` see
// common/work_rates.h. Unknown values are left out, or "-" in a table. Ends with a newline.
std::string StatusText(const v1::JobStatus& status, const v1::JobStatus* before);

// Returns "no warnings", or each warning with its code, the finding, its effect and the advice.
std::string WarningsText(const std::vector<Warning>& warnings);

// Returns the status as one JSON object, with null for unknown values. `before` as above. docs/operating.md
// explains the names, which do not change.
nlohmann::ordered_json StatusJson(const v1::JobStatus& status, const v1::JobStatus* before);

// The result of a run, summary.json, for people.
// InvalidArgument, naming the file, when `text` is not a JSON object.
absl::StatusOr<nlohmann::json> ParseSummary(const std::string& text, const std::string& file);

// A table; what the summary lacks is left out. `more`: rows to add, name and value.
std::string SummaryTable(const nlohmann::json& summary,
                         const std::vector<std::pair<std::string, std::string>>& more = {});

// A table with a row for each worker: what became of its pushes, how stale they were in updates of the center
// and in time, and how far the center had gone meanwhile. Empty where the summary has none of it.
std::string WorkerTable(const nlohmann::json& summary);

}  // namespace catchment

#endif  // CATCHMENT_CLI_STATUS_TEXT_H_
