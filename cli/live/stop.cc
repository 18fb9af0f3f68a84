#include <csignal>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cli/base/process.h"
#include "cli/base/run_directory.h"
#include "cli/live/commands.h"
#include "cli/live/job_control.h"
#include "common/base/clock.h"
#include "common/base/patience.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/program/command_line.h"

namespace catchment {
namespace {

constexpr double kPollSeconds = 0.5;

constexpr char kUsage[] = R"(catchment stop HOST:PORT|DIR [flags]

Stops a running job gracefully and waits for it to end: workers leave, a last checkpoint is written, and all
daemons exit. `--resume` can continue the job later. HOST:PORT is the server with index 0, and DIR the --out
of a run.
Default: $CATCHMENT_MASTER.

Examples:
  catchment stop node0:7000
  catchment stop out --reason="maintenance of the cluster"
  catchment stop out --now
)";

constexpr char kNotes[] = R"(
Exit code: 0: the job has ended; 1: it has failed, or does not accept the request; 2: wrong command line; 3:
no master could be reached; 128 + N: signal N ended the command, but the job still stops.
)";

struct Options {
  MasterFlags master;
  std::string reason;
  bool now = false;
};

CommandLine MakeCommandLine(Options* o) {
  CommandLine line{.name = "catchment stop", .usage = kUsage, .notes = kNotes};
  line.flags.AddString("reason", "TEXT", &o->reason,
                       "The reason in status, logs and summary.json. Default: the command and its user.");
  line.flags.AddSwitch("now", &o->now,
                       "Ends the job without waiting for its workers and without a last checkpoint: training "
                       "since the last checkpoint is lost.");
  AddMasterFlags(&o->master, &line);
  line.check = [o] { return CheckMasterFlags(&o->master); };
  return line;
}

std::string DefaultReason() {
  const char* const user = getenv("USER");
  return absl::StrCat("`catchment stop`", user == nullptr ? "" : absl::StrCat(" by ", user));
}

// Returns "STOPPED at 120,000 samples, checkpoint 37".
std::string DescribeEnd(const v1::JobStatus& status) {
  const bool failed = status.phase() == v1::JobStatus::FAILED;
  return absl::StrCat(v1::JobStatus::Phase_Name(status.phase()),
                      failed ? absl::StrCat(", ", status.reason()) : "", " at ",
                      Plural(status.samples(), "sample"),
                      status.last_checkpoint() > 0 ? absl::StrCat(", checkpoint ", status.last_checkpoint())
                                                   : ", without a checkpoint");
}

// Waits until the job has ended, and prints its phases.
int AwaitEnd(JobControl* master, SignalWaiter* signals, const Streams& streams) {
  const SteadyClock clock;
  Patience patience(kMasterPatience);
  std::string shown;
  while (true) {
    patience.Begin(clock.Now(), kMasterCallSeconds);
    const absl::StatusOr<v1::JobStatus> status = master->GetStatus(2 * kPollSeconds);
    if (status.ok()) {
      patience.Succeed();
      if (HasEnded(*status)) {
        *streams.out << "the job has ended: " << DescribeEnd(*status) << std::endl;
        return status->phase() == v1::JobStatus::FAILED ? kExitFailed : 0;
      }
      if (const std::string reason = status->reason(); !reason.empty() && reason != shown) {
        *streams.out << reason << std::endl;
        shown = reason;
      }
    } else if (absl::IsFailedPrecondition(status.status())) {
      *streams.out << "the master has ended, and another one is at its address" << std::endl;
      return 0;
    } else if (patience.Fail(clock.Now())) {
      // A master whose job has ended exits soon afterwards.
      *streams.out << "the master has ended" << std::endl;
      return 0;
    }
    patience.Begin(clock.Now(), kPollSeconds);
    const int signal = signals->Wait(kPollSeconds);
    if (signal != 0 && signal != SIGCHLD) return kExitSignal + signal;
  }
}

absl::StatusOr<int> Stop(const Options& options, const Streams& streams) {
  SignalWaiter signals;
  absl::Status status = PlaceOfMaster(options.master).status();
  if (absl::IsNotFound(status)) {
    const absl::StatusOr<nlohmann::json> summary = ReadSummary(options.master.master + "/summary.json");
    if (summary.ok()) {
      *streams.out << "the job has already ended: " << summary->value("phase", "") << std::endl;
      return 0;
    }
  }
  std::optional<JobControl> master;
  if (status.ok()) {
    ASSIGN_OR_RETURN(JobControl created, JobControl::Create(options.master));
    master.emplace(std::move(created));
    status = master->Stop(options.reason.empty() ? DefaultReason() : options.reason, options.now);
  }
  if (status.ok()) return AwaitEnd(&*master, &signals, streams);
  *streams.err << "catchment stop: " << status.message() << '\n';
  const bool unreachable =
      absl::IsNotFound(status) || absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status);
  return unreachable ? kNoMaster : kExitFailed;
}

}  // namespace

int RunStop(const std::vector<std::string>& args, const Streams& streams) {
  Options options;
  CommandLine line = MakeCommandLine(&options);
  return RunCommandLine(&line, args, streams.out, streams.err, [&] { return Stop(options, streams); });
}

}  // namespace catchment
