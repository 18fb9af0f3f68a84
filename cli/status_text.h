// A job's status for people: job, progress, members, shards, events, warnings with advice.
#ifndef CATCHMENT_CLI_STATUS_TEXT_H_
#define CATCHMENT_CLI_STATUS_TEXT_H_

#include <string>
#include <vector>

#include "cli/advice.h"
#include "proto/master.pb.h"

namespace catchment {

// The largest number of columns of the table.
constexpr int kStatusColumns = 100;

// Rates are between `before`, an earlier status, and `status`; null: see common/work_rates.h. What is not
// known is left out, or a "-" in a table. Ends with a newline.
std::string StatusText(const v1::JobStatus& status, const v1::JobStatus* before);

// "no warnings", or each with its code, what was found, why it matters and what to do.
std::string WarningsText(const std::vector<Warning>& warnings);

}  // namespace catchment

#endif  // CATCHMENT_CLI_STATUS_TEXT_H_
