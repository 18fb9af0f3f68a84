#include "worker/loop/heartbeat.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/patience.h"
#include "common/energy/meter.h"
#include "common/trace/recorder.h"

namespace catchment {
namespace {

// The interval of heartbeats, which also report progress, unless the master asks for a longer one.
constexpr double kUsualInterval = 0.5;
// The calls in a heartbeat timeout, so that a lost one leaves time for others.
constexpr double kCallsPerTimeout = 3;

}  // namespace

Heartbeat::Heartbeat(v1::HeartbeatRequest request, double heartbeat_timeout_seconds, double give_up_seconds,
                     MasterClient* master, const Clock* clock, Callbacks callbacks)
    : request_(std::move(request)),
      heartbeat_timeout_seconds_(heartbeat_timeout_seconds),
      give_up_seconds_(give_up_seconds),
      master_(*master),
      clock_(*clock),
      callbacks_(std::move(callbacks)),
      thread_([this] { Run(); }) {}

Heartbeat::~Heartbeat() {
  end_.Set();
  thread_.join();
}

void Heartbeat::Run() {
  Patience patience(give_up_seconds_);
  bool stopping = false;
  double wanted = kUsualInterval;
  const double call_seconds = heartbeat_timeout_seconds_ / kCallsPerTimeout;
  while (true) {
    const double pause = std::min(wanted, heartbeat_timeout_seconds_ / 4);
    patience.Begin(clock_.Now(), pause);
    if (end_.Pause(pause)) return;
    *request_.mutable_progress() = callbacks_.progress();
    *request_.mutable_energy() = HostEnergy().Read();
    const double sent = clock_.Now();
    patience.Begin(sent, call_seconds);
    const absl::StatusOr<v1::HeartbeatReply> reply =
        master_.CallOnce(&MasterClient::Stub::Heartbeat, request_, call_seconds);
    if (reply.ok()) {
      RecordMasterTime(sent, reply->master_time());
      patience.Succeed();
      wanted = std::max(kUsualInterval, reply->again_in_seconds());
      if (reply->stop() && !stopping) {
        stopping = true;
        callbacks_.on_stop(reply->reason());
      }
    } else if (absl::IsNotFound(reply.status())) {
      callbacks_.on_lost(reply.status());
      return;
    } else if (patience.Fail(clock_.Now())) {
      callbacks_.on_lost(absl::Status(reply.status().code(), absl::StrCat("gave up after ", give_up_seconds_,
                                                                          " s: ", reply.status().message())));
      return;
    }
  }
}

}  // namespace catchment
