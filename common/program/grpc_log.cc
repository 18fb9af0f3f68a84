#include "common/program/grpc_log.h"

#include <glog/logging.h>
#include <grpc/support/log.h>

#include <cstdint>
#include <utility>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/text.h"
#include "common/base/token_bucket.h"

namespace catchment {
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
