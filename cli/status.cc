#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <iostream>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "cli/job_control.h"
#include "cli/process.h"
#include "cli/status_text.h"
#include "common/clock.h"
#include "common/text.h"

namespace catchment {
namespace {

constexpr int kFailed = 1;
constexpr int kUsageError = 2;
constexpr int kNoMaster = 3;
constexpr int kSignalBase = 128;

// Between two questions of --watch, whatever is shown: a job that ends waits so long for who watches.
constexpr double kLongestPause = 2;
// More than that, for the time that an answer takes.
constexpr double kPauseMargin = 1;
// Without an answer, before the master is given up.
constexpr double kPatience = 10;

constexpr char kUsage[] = R"(catchment status MASTER [flags]

Shows how a job goes: progress, workers, servers, the last events; and warns of what holds it up, with advice.
MASTER is HOST:PORT of the server with index 0.

Examples:
  catchment status node0:7000
  catchment status node0:7000 --watch
  catchment status node0:7000 --watch=10 --json >> status.jsonl

Flags:
)";

constexpr char kNotes[] = R"(
Exit code: 0: the job has not failed; 1: it has; 2: wrong command line; 3: no master could be asked;
128 + N: signal N ended --watch.
The names in the JSON and the warnings are explained in docs/operating.md.
)";

struct Options {
  std::string master;
  double watch = 0;  // seconds; 0: once
  bool json = false;
  TlsFiles tls;
};

FlagSet MakeFlags(Options* o) {
  FlagSet flags;
  flags.AddOptionalSeconds("watch", kLongestPause, &o->watch,
                           "Shows it again every SECONDS, 2 by default, until the job ends. Rates are then "
                           "of the time between. On a terminal in place, otherwise block after block.");
  flags.AddSwitch("json", &o->json, "One JSON object, with --watch one a line.");
  AddTlsFlags(&o->tls, &flags);
  return flags;
}

bool HasEnded(const v1::JobStatus& status) {
  return status.phase() == v1::JobStatus::DONE || status.phase() == v1::JobStatus::STOPPED ||
         status.phase() == v1::JobStatus::FAILED;
}

int ExitCode(const v1::JobStatus& status) { return status.phase() == v1::JobStatus::FAILED ? kFailed : 0; }

// What a call's error means to who gave the address.
std::string Explain(const std::string& address, const absl::Status& status) {
  if (absl::IsUnimplemented(status)) {
    return absl::StrCat(address, " answers, but is no master: give the address of the server with index 0");
  }
  return absl::StrCat(status.message(), "\nIs the job running, and is ", address,
                      " where the server with index 0 listens? Workers listen nowhere. Servers with TLS take "
                      "--tls_ca, --tls_cert and --tls_key.");
}

class Status {
 public:
  Status(const Options& options, JobControl* master, const StatusStreams& streams)
      : options_(options), master_(*master), streams_(streams), screen_(streams.out, streams.size) {}

  int Once() {
    const absl::StatusOr<v1::JobStatus> status = master_.GetStatus();
    if (!status.ok()) return GiveUp(status.status());
    *streams_.out << Block(*status, nullptr) << std::flush;
    return ExitCode(*status);
  }

  int Watch(SignalWaiter* signals) {
    const double pause = std::min(options_.watch, kLongestPause);
    double next = clock_.Now();
    while (true) {
      const absl::StatusOr<v1::JobStatus> status = master_.GetStatus(pause + kPauseMargin);
      const double now = clock_.Now();
      if (status.ok()) {
        answered_ = now;
        if (HasEnded(*status)) return End(*status);
        if (now >= next) {
          Show(*status);
          next += options_.watch * std::max(1.0, std::ceil((now - next) / options_.watch));
        }
      } else if (!answered_.has_value() || now - *answered_ > kPatience) {
        return GiveUp(status.status());
      }
      const int signal = signals->Wait(std::min(pause, std::max(next - clock_.Now(), 0.0)));
      if (signal != 0 && signal != SIGCHLD) return kSignalBase + signal;
    }
  }

 private:
  std::string Block(const v1::JobStatus& status, const v1::JobStatus* before) const {
    if (!options_.json) return StatusText(status, before);
    return StatusJson(status, before).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
  }

  void Show(const v1::JobStatus& status) {
    const std::string block = Block(status, shown_ ? &*shown_ : nullptr);
    if (options_.json) {
      *streams_.out << block << std::flush;
    } else {
      screen_.Draw(block);
    }
    shown_ = status;
  }

  // The last block stays.
  int End(const v1::JobStatus& status) {
    screen_.Leave();
    if (streams_.size().columns > 0) {
      *streams_.out << Block(status, nullptr) << std::flush;
    } else {
      Show(status);
    }
    return ExitCode(status);
  }

  int GiveUp(const absl::Status& status) {
    screen_.Leave();
    *streams_.err << "catchment status: " << Explain(options_.master, status) << '\n';
    return kNoMaster;
  }

  const Options& options_;
  JobControl& master_;
  const StatusStreams& streams_;
  Screen screen_;
  const SteadyClock clock_;
  std::optional<double> answered_;      // when, last
  std::optional<v1::JobStatus> shown_;  // last
};

absl::Status CheckAddress(const std::vector<std::string>& positional) {
  constexpr char kExample[] = "for example: catchment status node0:7000";
  if (positional.size() != 1)
    return absl::InvalidArgumentError(absl::StrCat("takes one address, ", kExample));
  if (positional[0].find(':') != std::string::npos) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(positional[0], ": takes HOST:PORT, ", kExample));
}

}  // namespace

int RunStatus(const std::vector<std::string>& args, const StatusStreams& streams) {
  Options options;
  FlagSet flags = MakeFlags(&options);
  const absl::StatusOr<std::vector<std::string>> positional = flags.Parse(args);
  if (positional.ok() && flags.help()) {
    *streams.out << kUsage << flags.Describe() << kNotes;
    return 0;
  }
  const absl::Status usage = positional.ok() ? CheckAddress(*positional) : positional.status();
  if (!usage.ok()) {
    *streams.err << "catchment status: " << usage.message() << '\n';
    return kUsageError;
  }
  options.master = positional->front();
  // Before the first thread. A single question ends at the first signal, as any program does.
  std::optional<SignalWaiter> signals;
  if (options.watch > 0) signals.emplace();
  absl::StatusOr<JobControl> master = JobControl::Create(options.master, options.tls);
  if (!master.ok()) {
    *streams.err << "catchment status: " << master.status().message() << '\n';
    return kUsageError;
  }
  Status status(options, &*master, streams);
  return signals ? status.Watch(&*signals) : status.Once();
}

int StatusMain(const std::vector<std::string>& args) {
  return RunStatus(args, {&std::cout, &std::cerr, [] { return TerminalSize(STDOUT_FILENO); }});
}

}  // namespace catchment
