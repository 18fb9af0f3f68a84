#include "common/program/log_format.h"

#include <glog/logging.h>
#include <unistd.h>

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

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

}  // namespace catchment
