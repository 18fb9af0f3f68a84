// `catchment status --door`: the reports of a job for programs, one JSON object a line (docs/doors.md).
#ifndef CATCHMENT_CLI_LIVE_STATUS_DOOR_H_
#define CATCHMENT_CLI_LIVE_STATUS_DOOR_H_

#include "cli/base/terminal.h"
#include "cli/live/job_control.h"

namespace catchment {

// Prints a report, or the error of the call; if `pause` is not 0, another after so many seconds, until the
// job ends. A master that does not answer is asked again. Returns the exit code: 3 if the only call has
// failed, and 128 + N after signal N.
int ServeStatus(const MasterFlags& flags, double pause, const Streams& streams);

}  // namespace catchment

#endif  // CATCHMENT_CLI_LIVE_STATUS_DOOR_H_
