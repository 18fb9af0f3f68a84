// The status of a job as text and as JSON.
#ifndef CATCHMENT_CLI_LIVE_STATUS_TEXT_H_
#define CATCHMENT_CLI_LIVE_STATUS_TEXT_H_

#include <string>
#include <utility>
#include <vector>

#include "cli/live/advice.h"
#include "nlohmann/json.hpp"
#include "proto/master.pb.h"

namespace catchment {

// The largest number of columns of the table.
constexpr int kStatusColumns = 100;

// Returns the status as human-readable text: job, progress, members, shards, events, and warnings with
// advice. Rates are those between `before`, an earlier status, and `status`; without `before` see
// common/measures/work_rates.h. Unknown values are left out, or "-" in a table. Ends with a newline.
std::string StatusText(const v1::JobStatus& status, const v1::JobStatus* before);

// The outcomes of pushes that were not applied, or in part, as a phrase.
inline constexpr char kNotApplied[] =
    "{pushes_waiting} waiting|{pushes_late} late|{pushes_non_finite} not finite|{pushes_duplicate} duplicate|"
    "{pushes_split} late in part";

// Returns "no warnings", or each warning with its code, the finding, its effect and the advice.
std::string WarningsText(const std::vector<Warning>& warnings);

// Returns the status as one JSON object, with null for unknown values. `before` as above. docs/outputs.md
// explains the names, which do not change.
nlohmann::ordered_json WarningsJson(const std::vector<Warning>& warnings);
nlohmann::ordered_json StatusJson(const v1::JobStatus& status, const v1::JobStatus* before);

// Returns the content of a summary.json as a table. Leaves out missing keys. `more` are rows to add, each a
// name and a value.
std::string SummaryTable(const nlohmann::json& summary,
                         const std::vector<std::pair<std::string, std::string>>& more = {});

// Returns a table with a row for each worker: the number of its pushes that were applied and that were not,
// their staleness in updates of the center and in time, and the distance that the center had moved. Empty if
// the summary has no workers.
std::string WorkerTable(const nlohmann::json& summary);

}  // namespace catchment

#endif  // CATCHMENT_CLI_LIVE_STATUS_TEXT_H_
