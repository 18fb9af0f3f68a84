#include "common/program/log_format.h"

#include <glog/logging.h>
#include <grpc/support/log.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/text.h"
#include "common/base/token_bucket.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;

// The event of the message that this thread is logging; null: it has none. glog calls a sink on the thread
// that logs.
thread_local const Json* current_event = nullptr;

class JsonSink final : public google::LogSink {
 public:
  explicit JsonSink(absl::string_view program) : program_(program) {}

  void send(google::LogSeverity severity, const char* /*full_filename*/, const char* base_filename, int line,
            const google::LogMessageTime& time, const char* message, size_t size) override {
    Json object;
    const absl::Time at = absl::FromTimeT(time.timestamp()) + absl::Microseconds(time.usec());
    object["time"] = absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", at, absl::UTCTimeZone());
    object["severity"] = google::GetLogSeverityName(severity);
    object["program"] = program_;
    object["pid"] = getpid();
    object["source"] = absl::StrCat(base_filename, ":", line);
    object["message"] = std::string(message, size);
    if (current_event != nullptr) object.update(*current_event);
    // Written by one call, so that lines of several threads stay whole. Invalid UTF-8 is replaced.
    const std::string text = object.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
    std::fwrite(text.data(), 1, text.size(), stderr);
  }

 private:
  const std::string program_;
};

}  // namespace

void LogJson(absl::string_view program) {
  static JsonSink* const sink = new JsonSink(program);
  for (int severity = google::GLOG_INFO; severity < google::NUM_SEVERITIES; ++severity)
    google::SetLogDestination(severity, "");
  FLAGS_logtostderr = false;
  FLAGS_alsologtostderr = false;
  FLAGS_stderrthreshold = google::NUM_SEVERITIES;
  google::AddLogSink(sink);
}

void LogEvent(absl::string_view event, const Json& fields, absl::string_view message) {
  Json all;
  all["event"] = event;
  all.update(fields);
  current_event = &all;
  LOG(INFO) << message;
  current_event = nullptr;
}

namespace {

constexpr double kLinesAtOnce = 10, kLinesPerSecond = 0.2;
constexpr size_t kLineBytes = 400;

class GrpcLog {
 public:
  void Write(const gpr_log_func_args& line) {
    uint64_t left_out = 0;
    {
      MutexLock lock(&mu_);
      if (!rate_.Take(clock_.Now())) {
        ++left_out_;
        return;
      }
      left_out = std::exchange(left_out_, 0);
    }
    const google::LogSeverity severity =
        line.severity == GPR_LOG_SEVERITY_ERROR ? google::GLOG_ERROR : google::GLOG_INFO;
    google::LogMessage message(line.file, line.line, severity);
    message.stream() << ShortLine(line.message, kLineBytes);
    if (left_out > 0) message.stream() << " (" << left_out << " messages from gRPC before it are omitted)";
  }

 private:
  const SteadyClock clock_{};
  Mutex mu_;
  TokenBucket rate_ ABSL_GUARDED_BY(mu_){kLinesPerSecond, kLinesAtOnce, clock_.Now()};
  uint64_t left_out_ ABSL_GUARDED_BY(mu_) = 0;
};

void Write(gpr_log_func_args* line) {
  static auto* const log = new GrpcLog;
  log->Write(*line);
}

}  // namespace

void LimitGrpcLog() { gpr_set_log_function(Write); }

}  // namespace catchment
