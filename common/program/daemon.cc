#include "common/program/daemon.h"

#include <glog/logging.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/open_files.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/base/thread_limit.h"
#include "common/base/version.h"
#include "common/net/rpc.h"
#include "common/program/log_format.h"
#include "common/trace/recorder.h"
#include "common/trace/trace_file.h"
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/lsan_interface.h>
#endif

namespace catchment {

namespace {

void LogEnd(const DaemonEnd& end, bool json, const std::string& name) {
  const std::string reason = absl::StrCat(EscapeControls(end.reason), " (exit code ", end.exit_code, ")");
  if (json || end.exit_code == 0) {
    LogEvent("end", {{"exit_code", end.exit_code}}, reason);
  } else {
    std::cerr << name << ": " << reason << std::endl;
  }
}

// Starts recording for a trace in `directory`. Training does not depend on it: if the directory cannot be
// written, the log says why.
void StartTrace(const std::string& directory) {
  if (const absl::Status status = PrepareTraceDirectory(directory); !status.ok()) {
    LOG(ERROR) << "no trace is recorded: " << status.message();
    return;
  }
  // Threads of gRPC may record until the process ends.
  SetTrace(new TraceRecorder(new SteadyClock));
}

void EndTrace(const std::string& directory, const std::string& program) {
  if (Trace() == nullptr) return;
  const absl::StatusOr<std::string> path = WriteTrace(directory, program, Trace()->recorded());
  LOG_IF(INFO, path.ok()) << "the trace is in " << *path;
  LOG_IF(ERROR, !path.ok()) << "the trace is not written: " << path.status().message();
}

// Ends the process without the handlers of exit(): gRPC's threads still run (KeepGrpcRunning), and one that
// connects with TLS would use what OpenSSL frees there.
[[noreturn]] void End(int exit_code) {
#ifdef __SANITIZE_ADDRESS__
  __lsan_do_leak_check();
#endif
  std::cout.flush();
  std::fflush(nullptr);
  _exit(exit_code);
}

int Run(int argc, char** argv, CommandLine* line,
        const std::function<absl::StatusOr<DaemonEnd>(MetricsEndpoint* metrics)>& run,
        const std::function<std::string()>& features) {
  TuneProcess();
  RaiseOpenFiles();
  KeepFilesPrivate();
  // A daemon has no terminal: what closes one, or asks programs to read their settings again, does not end
  // the job.
  std::signal(SIGHUP, SIG_IGN);
  BlockSignals();
  // Writing a file beyond the size limit then returns an error instead of ending the process.
  std::signal(SIGXFSZ, SIG_IGN);
  // Writing the log to a pipe whose reader has ended then returns an error instead of ending the process.
  std::signal(SIGPIPE, SIG_IGN);
  line->name = std::filesystem::path(argv[0]).filename();
  ExplainMissingResources(line->name);
  const std::vector<std::string> args(argv + 1, argv + argc);
  if (std::find(args.begin(), args.end(), "--version") != args.end()) {
    std::cout << DescribeVersion(line->name) << (features ? features() : "");
    return 0;
  }
  google::InitGoogleLogging(argv[0]);
  FLAGS_logtostderr = true;
  LimitGrpcLog();
  std::string format = "text";
  line->flags.AddChoice("log_format", {"text", "json"}, &format,
                        "text, or json: an object in each line of standard error, "
                        "whose keys for metrics are those of metrics.jsonl. Default text.");
  std::string metrics_address;
  const auto set_metrics = [&metrics_address](const std::string& text) {
    absl::StatusOr<std::string> address = MetricsEndpoint::ParseAddress(text);
    if (address.ok()) metrics_address = *std::move(address);
    return address.status();
  };
  line->flags.AddParsed(
      "metrics_port", "[HOST:]PORT", set_metrics,
      "Serves metrics for Prometheus at http://HOST:PORT/metrics, in clear text; without HOST only to this "
      "machine; port 0 chooses a free one, which the log names. Default: none.");
  std::string trace;
  line->flags.AddString(
      "trace", "DIR", &trace,
      "Records a timeline, and writes it to a file in DIR when the daemon ends; `catchment trace DIR` "
      "joins those of all daemons. Default: none.");
  const auto run_once = [&]() -> absl::StatusOr<int> {
    const bool json = format == "json";
    if (json) LogJson(line->name);
    RETURN_IF_ERROR(CheckThreads(FindThreadRoom(), "this process", kFewestThreads));
    KeepGrpcRunning();
    if (!trace.empty()) StartTrace(trace);
    MetricsEndpoint metrics(metrics_address, line->name);
    absl::StatusOr<DaemonEnd> end = run(&metrics);
    if (!end.ok()) end = DaemonEnd{std::string(end.status().message()), kExitFailed};
    EndTrace(trace, line->name);
    LogEnd(*end, json, line->name);
    return end->exit_code;
  };
  return RunCommandLine(line, args, &std::cout, &std::cerr, run_once);
}

}  // namespace

void RunDaemon(int argc, char** argv, CommandLine* line,
               const std::function<absl::StatusOr<DaemonEnd>(MetricsEndpoint* metrics)>& run,
               const std::function<std::string()>& features) {
  End(Run(argc, argv, line, run, features));
}

}  // namespace catchment
