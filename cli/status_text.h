// The status of a job as text and as JSON.
#ifndef CATCHMENT_CLI_STATUS_TEXT_H_
#define CATCHMENT_CLI_STATUS_TEXT_H_

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/advice.h"
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

}  // namespace catchment

#endif  // CATCHMENT_CLI_STATUS_TEXT_H_
