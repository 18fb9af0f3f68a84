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

// The measures of a job that is watched, as they change.
class Trends {
 public:
  // Adds those of a status (StatusJson) while it trains.
  void Add(const nlohmann::ordered_json& facts);
  // Returns a row with a sparkline for each measure that has two values or more.
  std::string Print(int columns) const;

 private:
  std::vector<double> rates_, losses_, scores_;
  bool has_accuracy_ = false;
};

// Returns the status as human-readable text: job, `trends`, progress, members, shards, events, and warnings
// with advice. Rates are those between `before`, an earlier status, and `status`; without `before` see
// common/measures/work_rates.h. Unknown values are left out, or "-" in a table. On a terminal of so many
// `columns` the last columns of tables are left out if they do not fit; elsewhere (0) tables have all.
std::string StatusText(const v1::JobStatus& status, const v1::JobStatus* before, int columns = 0,
                       const Trends& trends = {});

// The outcomes of pushes that were not applied, or in part, as a phrase.
inline constexpr char kNotApplied[] =
    "{pushes_waiting} waiting|{pushes_late} late|{pushes_non_finite} not finite|{pushes_duplicate} duplicate|"
    "{pushes_split} late in part";

// Returns "no warnings", or each warning with its code, the finding, its effect and the advice. `columns` as
// above.
std::string WarningsText(const std::vector<Warning>& warnings, int columns = 0);

// Returns the status as one JSON object, with null for unknown values. `before` as above. docs/outputs.md
// explains the names, which do not change.
nlohmann::ordered_json WarningsJson(const std::vector<Warning>& warnings);
nlohmann::ordered_json StatusJson(const v1::JobStatus& status, const v1::JobStatus* before);

// Returns the content of a summary.json as a table. Leaves out missing keys. `more` are rows to add, each a
// name and a value.
using Rows = std::vector<std::pair<std::string, std::string>>;
std::string SummaryTable(const nlohmann::json& summary, const Rows& more = {});
// Returns the most important rows of it, the score and the outcome first.
std::string ResultTable(const nlohmann::json& summary, const Rows& more);

// Returns a table with a row for each worker: the number of its pushes that were applied and that were not,
// their staleness in updates of the center and in time, and the distance that the center had moved. Empty if
// the summary has no workers.
std::string WorkerTable(const nlohmann::json& summary);

}  // namespace catchment

#endif  // CATCHMENT_CLI_LIVE_STATUS_TEXT_H_
