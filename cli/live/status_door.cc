#include "cli/live/status_door.h"

#include <csignal>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "cli/base/process.h"
#include "cli/live/status_text.h"
#include "common/base/status_macros.h"
#include "common/job/job_text.h"
#include "common/measures/measures.h"
#include "common/measures/progress_lines.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;

// Added to the time that the master is given as the next request's, for the duration of a call.
constexpr double kPauseMargin = 1;

class StatusDoor {
 public:
  StatusDoor(const MasterFlags& flags, double pause) : flags_(flags), pause_(pause) {}

  // A master that was started again may have another address.
  absl::StatusOr<v1::JobStatus> Ask() {
    ASSIGN_OR_RETURN(const MasterPlace place, PlaceOfMaster(flags_));
    if (!master_ || place.address != master_->address()) {
      ASSIGN_OR_RETURN(JobControl master, JobControl::Create(flags_));
      master_.emplace(std::move(master));
    }
    return master_->GetStatus(pause_ > 0 ? pause_ + kPauseMargin : 0);
  }

  Json Report(const v1::JobStatus& status) {
    Json line;
    AddMeasures(JobMeasures(), kInLines, JobReading(status), &line);
    const v1::JobStatus* const before = shown_ ? &*shown_ : nullptr;
    Json report = {{"version", 1},
                   {"job", status.job()},
                   {"ended", HasEnded(status)},
                   {"progress", ProgressLine(status)},
                   {"text", StatusText(status, before)},
                   {"settings", JobText(status.settings())},
                   {"status", StatusJson(status, before)},
                   {"line", std::move(line)}};
    shown_ = status;
    return report;
  }

  Json Error(const absl::Status& error) const {
    return {{"version", 1},
            {"error", error.message()},
            {"code", absl::StatusCodeToString(error.code())},
            {"address", master_ ? master_->address() : ""}};
  }

 private:
  const MasterFlags& flags_;
  const double pause_;
  std::optional<JobControl> master_;
  std::optional<v1::JobStatus> shown_;  // the last one
};

}  // namespace

int ServeStatus(const MasterFlags& flags, double pause, const Streams& streams) {
  // Created before the first thread. Without a pause the first signal ends the process.
  std::optional<SignalWaiter> signals;
  if (pause > 0) signals.emplace();
  StatusDoor door(flags, pause);
  while (true) {
    const absl::StatusOr<v1::JobStatus> status = door.Ask();
    const Json answer = status.ok() ? door.Report(*status) : door.Error(status.status());
    *streams.out << answer.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
    if (!signals) return status.ok() ? 0 : kNoMaster;
    if (!*streams.out || (status.ok() && HasEnded(*status))) return 0;
    const int signal = signals->Wait(pause);
    if (signal != 0 && signal != SIGCHLD) return kExitSignal + signal;
  }
}

}  // namespace catchment
