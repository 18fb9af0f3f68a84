#include "common/grpc_log.h"

#include <glog/logging.h>
#include <grpc/support/log.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/clock.h"
#include "common/mutex.h"
#include "common/text.h"

namespace catchment {
namespace {

constexpr double kLinesAtOnce = 10, kLinesPerSecond = 0.2;
constexpr size_t kLineBytes = 400;

struct GrpcLog {
  const SteadyClock clock;
  Mutex mu;
  LineRate rate ABSL_GUARDED_BY(mu){kLinesAtOnce, kLinesPerSecond};
};

void Write(gpr_log_func_args* args) {
  static auto* const log = new GrpcLog;
  uint64_t left_out = 0;
  {
    MutexLock lock(&log->mu);
    if (!log->rate.Admit(log->clock.Now(), &left_out)) return;
  }
  std::string text = std::string(args->message).substr(0, kLineBytes);
  text = absl::StrReplaceAll(EscapeControls(text), {{"\n", "\\n"}});
  if (left_out > 0) absl::StrAppend(&text, " (", left_out, " messages of gRPC before it were left out)");
  const google::LogSeverity severity =
      args->severity == GPR_LOG_SEVERITY_ERROR ? google::GLOG_ERROR : google::GLOG_INFO;
  google::LogMessage(args->file, args->line, severity).stream() << text;
}

}  // namespace

bool LineRate::Admit(double now, uint64_t* left_out) {
  lines_ = std::min(burst_, lines_ + (now - at_) * per_second_);
  at_ = now;
  if (lines_ < 1) {
    ++left_out_;
    return false;
  }
  lines_ -= 1;
  *left_out = std::exchange(left_out_, 0);
  return true;
}

void LimitGrpcLog() { gpr_set_log_function(Write); }

}  // namespace catchment
