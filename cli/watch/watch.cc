#include "cli/watch/watch.h"

#include <httplib.h>

#include <csignal>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/base/process.h"
#include "cli/base/run_directory.h"
#include "cli/compare/report_runs.h"
#include "cli/live/job_control.h"
#include "cli/report/findings.h"
#include "cli/report/markup.h"
#include "cli/report/report.h"
#include "cli/watch/live_page.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/patience.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/job/text_format.h"
#include "common/program/command_line.h"

namespace catchment {
namespace {

constexpr double kPollSeconds = 1;
constexpr char kHost[] = "127.0.0.1";
constexpr char kHtml[] = "text/html; charset=utf-8";
// The page needs nothing from elsewhere, and no other page may show it.
constexpr char kPolicy[] =
    "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; "
    "connect-src 'self'; frame-ancestors 'none'";

constexpr char kUsage[] = R"(catchment watch HOST:PORT|DIR [flags]

Shows a running job in a web page on this machine: accuracy, loss, rate and staleness over time, each worker
and server, the last events, and advice. With DIR, the --out of a run, the curves include all earlier
measurements, and the page becomes the report when the job has ended. It changes nothing. HOST:PORT is the
server with index 0. Default: $CATCHMENT_MASTER.

Examples:
  catchment watch out
  catchment watch node0:7000 --port=0
  ssh -L 8080:localhost:8080 login-node catchment watch out    # and open the printed address here
)";

constexpr char kNotes[] = R"(
The page requires the token in the printed address. Ctrl-C ends the command; the job continues.
Exit code: 0: the user ended it; 1: it cannot listen; 2: wrong command line; 3: no master could be reached.
)";

struct Options {
  MasterFlags master;
  int port = 8080;
};

CommandLine MakeCommandLine(Options* o) {
  CommandLine line{.name = "catchment watch", .usage = kUsage, .notes = kNotes};
  line.flags.AddInt("port", "PORT", 0, &o->port,
                    "Port of the page, on 127.0.0.1. 0 chooses a free one. Default 8080.");
  AddMasterFlags(&o->master, &line);
  line.check = [o] { return CheckMasterFlags(&o->master); };
  return line;
}

// The pages, which other threads serve.
class Pages {
 public:
  Pages() : token_(FormatId(RandomId()) + FormatId(RandomId())) {}
  ~Pages() {
    server_.stop();
    if (thread_.joinable()) thread_.join();
  }

  // Returns the address of the page.
  absl::StatusOr<std::string> Listen(int port) {
    const auto serve = [this](const char* path, std::string Pages::*page) {
      server_.Get(path, [this, page](const httplib::Request& request, httplib::Response& response) {
        Answer(request, page, &response);
      });
    };
    serve("/", &Pages::page_);
    serve("/content", &Pages::content_);
    serve("/report", &Pages::report_);
    // Without SO_REUSEPORT, with which two programs could share the port.
    server_.set_socket_options([](socket_t file) {
      const int yes = 1;
      setsockopt(file, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    });
    const int bound = port == 0                           ? server_.bind_to_any_port(kHost)
                      : server_.bind_to_port(kHost, port) ? port
                                                          : -1;
    if (bound < 0) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", kHost, ":", port,
                       ": another program may use the port; --port=0 chooses a free one"));
    }
    page_ = LivePage("Catchment", "content?token=" + token_, "report?token=" + token_);
    thread_ = std::thread([this] { server_.listen_after_bind(); });
    return absl::StrCat("http://", kHost, ":", bound, "/?token=", token_);
  }

  void SetContent(std::string content) { Set(&Pages::content_, std::move(content)); }
  void SetReport(std::string report) { Set(&Pages::report_, std::move(report)); }

 private:
  void Set(std::string Pages::*page, std::string text) {
    MutexLock lock(&mu_);
    this->*page = std::move(text);
  }

  void Answer(const httplib::Request& request, const std::string Pages::*page, httplib::Response* response) {
    response->set_header("Cache-Control", "no-store");
    response->set_header("Content-Security-Policy", kPolicy);
    response->set_header("Referrer-Policy", "no-referrer");
    response->set_header("X-Content-Type-Options", "nosniff");
    if (request.get_param_value("token") != token_) {
      response->status = 403;
      response->set_content(
          "Open this page by the whole address that `catchment watch` printed, with its token.\n",
          "text/plain; charset=utf-8");
      return;
    }
    MutexLock lock(&mu_);
    if ((this->*page).empty()) {
      response->status = 404;
      response->set_content("The job has not ended yet.\n", "text/plain; charset=utf-8");
      return;
    }
    response->set_content(this->*page, kHtml);
  }

  const std::string token_;
  Mutex mu_;
  std::string page_ ABSL_GUARDED_BY(mu_), content_ ABSL_GUARDED_BY(mu_), report_ ABSL_GUARDED_BY(mu_);
  httplib::Server server_;
  std::thread thread_;
};

// Returns the report of a run that has ended: of a directory that of `catchment report`.
std::string EndPage(const std::string& directory, const std::string& last_content) {
  if (!directory.empty()) {
    if (const absl::StatusOr<Comparison> comparison = CollectRuns({directory}); comparison.ok())
      return ReportPage(*comparison, Find(*comparison));
  }
  return HtmlPage("Catchment", last_content);
}

class Watch {
 public:
  Watch(const Options& options, Pages* pages) : options_(options), pages_(*pages) {
    if (!IsRunDirectory(options_.master.master)) return;
    directory_ = options_.master.master;
    history_.AddMetrics(ReadTextFile(directory_ + "/metrics.jsonl").value_or(""));
  }

  // Reaches the job for the first time. Returns false if it has ended already.
  absl::StatusOr<bool> Begin() {
    const absl::StatusOr<v1::JobStatus> status = Ask();
    if (status.ok()) {
      Show(*status);
      return !HasEnded(*status);
    }
    if (directory_.empty() || !ReadSummary(directory_ + "/summary.json").ok()) return status.status();
    return false;
  }

  // Follows the job to its end, or until a signal (returned).
  int Follow(SignalWaiter* signals) {
    Patience patience(kMasterPatience);
    while (true) {
      patience.Begin(clock_.Now(), kPollSeconds);
      if (const int signal = signals->Wait(kPollSeconds); signal != 0 && signal != SIGCHLD) return signal;
      patience.Begin(clock_.Now(), kMasterCallSeconds);
      const absl::StatusOr<v1::JobStatus> status = Ask();
      if (status.ok()) {
        patience.Succeed();
        Show(*status);
        if (HasEnded(*status)) return 0;
      } else if (!directory_.empty() && ReadSummary(directory_ + "/summary.json").ok()) {
        return 0;
      } else if (patience.Fail(clock_.Now())) {
        pages_.SetContent(
            HtmlParagraph(absl::StrCat("The master does not answer: ", status.status().message())) +
            content_);
      }
    }
  }

  void End() {
    pages_.SetReport(EndPage(directory_, content_));
    pages_.SetContent(content_ + kEndMark);
  }

 private:
  absl::StatusOr<v1::JobStatus> Ask() {
    // A master that was started again may have another address.
    ASSIGN_OR_RETURN(const MasterPlace place, PlaceOfMaster(options_.master));
    if (!master_ || place.address != master_->address()) {
      ASSIGN_OR_RETURN(JobControl master, JobControl::Create(options_.master));
      master_.emplace(std::move(master));
    }
    return master_->GetStatus(2 * kPollSeconds);
  }

  void Show(const v1::JobStatus& status) {
    history_.Add(status);
    content_ = LiveContent(status, shown_ ? &*shown_ : nullptr, history_);
    pages_.SetContent(content_);
    shown_ = status;
  }

  const Options& options_;
  Pages& pages_;
  const SteadyClock clock_;
  std::string directory_;  // empty: an address was given
  std::optional<JobControl> master_;
  RunHistory history_;
  std::optional<v1::JobStatus> shown_;
  std::string content_;
};

absl::StatusOr<int> Run(const Options& options, const Streams& streams) {
  SignalWaiter signals;
  Pages pages;
  Watch watch(options, &pages);
  const absl::StatusOr<bool> runs = watch.Begin();
  if (!runs.ok()) {
    *streams.err << "catchment watch: " << runs.status().message() << '\n';
    return kNoMaster;
  }
  ASSIGN_OR_RETURN(const std::string address, pages.Listen(options.port));
  *streams.out << address << std::endl;
  if (*runs && watch.Follow(&signals) != 0) return 0;
  watch.End();
  *streams.out << "the job has ended; the page shows its report until Ctrl-C" << std::endl;
  for (int signal = 0; signal == 0 || signal == SIGCHLD;) signal = signals.Wait(60);
  return 0;
}

}  // namespace

int RunWatch(const std::vector<std::string>& args, const Streams& streams) {
  Options options;
  CommandLine line = MakeCommandLine(&options);
  return RunCommandLine(&line, args, streams.out, streams.err, [&] { return Run(options, streams); });
}

}  // namespace catchment
