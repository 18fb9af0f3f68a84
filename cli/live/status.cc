#include <algorithm>
#include <cmath>
#include <csignal>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "cli/base/process.h"
#include "cli/base/run_directory.h"
#include "cli/live/commands.h"
#include "cli/live/job_control.h"
#include "cli/live/status_door.h"
#include "cli/live/status_text.h"
#include "common/base/clock.h"
#include "common/base/not_ready.h"
#include "common/base/patience.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/program/command_line.h"

namespace catchment {
namespace {

// The longest time between two requests of --watch, also if it shows reports less often: a job that ends
// waits this long for a watcher.
constexpr double kLongestPause = 2;
// Added to the time that the master is given as the next request's, for the duration of a call.
constexpr double kPauseMargin = 1;

constexpr char kUsage[] = R"(catchment status HOST:PORT|DIR [flags]

Shows the status of a job: progress, workers, servers, the last events, and warnings about delays, with
advice. HOST:PORT is the server with index 0, and DIR the --out of a run, whose result is shown if it has
ended. Default: $CATCHMENT_MASTER.

Examples:
  catchment status node0:7000
  catchment status out --watch
  catchment status node0:7000 --watch=10 --json >> status.jsonl
)";

constexpr char kNotes[] = R"(
Exit code: 0: the job has not failed; 1: it has; 2: wrong command line; 3: no master could be reached;
128 + N: signal N ended --watch.
docs/watching.md explains the names in the JSON and the warnings.
)";

struct Options {
  MasterFlags master;
  double watch = 0;  // seconds; 0: once
  bool json = false;
  bool door = false;
};

CommandLine MakeCommandLine(Options* o) {
  CommandLine line{.name = "catchment status", .usage = kUsage, .notes = kNotes};
  line.flags.AddOptionalSeconds("watch", kLongestPause, &o->watch,
                                "Repeats the report every SECONDS, 2 by default, until the job ends. Rates "
                                "then cover the time between two reports. "
                                "On a terminal each report replaces the previous one.");
  line.flags.AddSwitch("json", &o->json, "Prints one JSON object; with --watch, one on each line.");
  // For programs: docs/doors.md.
  line.flags.AddSwitch("door", &o->door, "");
  AddMasterFlags(&o->master, &line);
  line.check = [o] { return CheckMasterFlags(&o->master); };
  return line;
}

int ExitCode(const v1::JobStatus& status) {
  return status.phase() == v1::JobStatus::FAILED ? kExitFailed : 0;
}

// Returns the error of a call, and what may be wrong with the address.
std::string Explain(const std::string& address, const absl::Status& status) {
  if (absl::IsUnimplemented(status)) {
    return absl::StrCat(address,
                        " answers, but is not the master: give the address of the server with index 0");
  }
  if (IsNotReady(status) || absl::IsFailedPrecondition(status)) return std::string(status.message());
  return absl::StrCat(
      status.message(), "\nIs the job running, and is ", address,
      " the address of the server with index 0, not of a worker? Servers with TLS require --certs=DIR.");
}

class Status {
 public:
  Status(const Options& options, JobControl* master, const Streams& streams)
      : options_(options), master_(*master), streams_(streams), screen_(streams.out, streams.out_size) {}

  int Once() {
    const absl::StatusOr<v1::JobStatus> status = master_.GetStatus();
    if (!status.ok()) return GiveUp(status.status());
    Print(Block(*status, nullptr));
    return ExitCode(*status);
  }

  int Watch(SignalWaiter* signals) {
    const double pause = std::min(options_.watch, kLongestPause);
    double next = clock_.Now();
    bool answered = false;
    Patience patience(kMasterPatience);
    while (true) {
      patience.Begin(clock_.Now(), kMasterCallSeconds);
      const absl::StatusOr<v1::JobStatus> status = master_.GetStatus(pause + kPauseMargin);
      const double now = clock_.Now();
      if (status.ok()) {
        answered = true;
        patience.Succeed();
        if (HasEnded(*status)) return End(*status);
        if (now >= next || streams_.out_size().columns != columns_) {
          Show(*status);
          if (now >= next) next += options_.watch * std::max(1.0, std::ceil((now - next) / options_.watch));
        }
      } else if (!answered || patience.Fail(now)) {
        return GiveUp(status.status());
      }
      const double rest = std::min(pause, std::max(next - clock_.Now(), 0.0));
      patience.Begin(clock_.Now(), rest);
      const int signal = signals->Wait(rest);
      if (signal != 0 && signal != SIGCHLD) return kExitSignal + signal;
    }
  }

 private:
  std::string Block(const v1::JobStatus& status, const v1::JobStatus* before) const {
    if (!options_.json) return StatusText(status, before, streams_.out_size().columns, trends_);
    return StatusJson(status, before).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }

  // Prints a block that stays, with its headings in bold and that of warnings in yellow.
  void Print(const std::string& block) {
    for (const absl::string_view line : absl::StrSplit(absl::StripSuffix(block, "\n"), '\n')) {
      const Colour colour = line == "warnings" ? Colour::kYellow : Colour::kBold;
      if (options_.json || line.empty() || absl::StartsWith(line, " ")) {
        *streams_.out << line << '\n';
      } else {
        *streams_.out << Coloured{colour, std::string(line)} << '\n';
      }
    }
    *streams_.out << std::flush;
  }

  void Show(const v1::JobStatus& status) {
    trends_.Add(StatusJson(status, shown_ ? &*shown_ : nullptr));
    columns_ = streams_.out_size().columns;
    const std::string block = Block(status, shown_ ? &*shown_ : nullptr);
    if (options_.json) {
      *streams_.out << block << std::flush;
    } else {
      screen_.Draw(block);
    }
    shown_ = status;
  }

  // Draws the last report so that it stays on the terminal.
  int End(const v1::JobStatus& status) {
    screen_.Leave();
    if (streams_.out_size().columns > 0) {
      Print(Block(status, nullptr));
    } else {
      Show(status);
    }
    return ExitCode(status);
  }

  int GiveUp(const absl::Status& status) {
    screen_.Leave();
    *streams_.err << "catchment status: " << Explain(master_.address(), status) << '\n';
    return kNoMaster;
  }

  const Options& options_;
  JobControl& master_;
  const Streams& streams_;
  Screen screen_;
  const SteadyClock clock_;
  std::optional<v1::JobStatus> shown_;  // the last one
  int columns_ = 0;                     // of the terminal on which it was shown
  Trends trends_;
};

// Shows the result of a run that has ended.
int ShowSummary(const nlohmann::json& summary, bool json, std::ostream* out) {
  const std::string phase = summary.value("phase", ""), reason = summary.value("reason", "");
  if (json) {
    *out << summary.dump() << std::endl;
  } else {
    *out << "the job has ended: " << phase << (reason.empty() ? "" : ", " + OneLine(reason)) << "\n\n"
         << SummaryTable(summary) << std::flush;
  }
  return phase == "FAILED" ? kExitFailed : 0;
}

absl::StatusOr<int> Show(const Options& options, const Streams& streams) {
  if (options.door) return ServeStatus(options.master, options.watch, streams);
  const absl::Status place = PlaceOfMaster(options.master).status();
  if (absl::IsNotFound(place)) {
    const absl::StatusOr<nlohmann::json> summary = ReadSummary(options.master.master + "/summary.json");
    if (summary.ok()) return ShowSummary(*summary, options.json, streams.out);
  }
  if (!place.ok()) {
    *streams.err << "catchment status: " << place.message() << '\n';
    return kNoMaster;
  }
  // Created before the first thread. Without --watch the first signal ends the process.
  std::optional<SignalWaiter> signals;
  if (options.watch > 0) signals.emplace();
  ASSIGN_OR_RETURN(JobControl master, JobControl::Create(options.master));
  Status status(options, &master, streams);
  return signals ? status.Watch(&*signals) : status.Once();
}

}  // namespace

int RunStatus(const std::vector<std::string>& args, const Streams& streams) {
  Options options;
  CommandLine line = MakeCommandLine(&options);
  return RunCommandLine(&line, args, streams.out, streams.err, [&] { return Show(options, streams); });
}

}  // namespace catchment
