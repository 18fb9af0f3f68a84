#include "worker/loop/master_client.h"

#include <glog/logging.h>

#include <limits>

#include "absl/strings/str_cat.h"
#include "common/base/growing_pause.h"
#include "common/base/not_ready.h"
#include "common/base/patience.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/net/rpc.h"
#include "common/net/stall_guard.h"
#include "common/trace/recorder.h"
#include "common/wire/token.h"

namespace catchment {
namespace {

constexpr size_t kValuesPerMessage = 1 << 18;  // 1 MiB
constexpr double kSlice = 0.05;                // seconds
constexpr char kStopped[] = "the worker was asked to stop";
constexpr char kNeverReached[] =
    "; check the master's address, and that either both sides have --certs (or --tls_ca, --tls_cert and "
    "--tls_key) of the same authority or neither has";

// Replaces the middle of a reason that is too long.
constexpr char kLeftOut[] = " ... ";

}  // namespace

std::string ShortReason(absl::string_view text) {
  std::string line = OneLine(text);
  if (line.size() <= kMaxReasonBytes) return line;
  const std::string begin = ShortLine(line, kMaxReasonBytes / 4) + kLeftOut;
  size_t rest = line.size() - (kMaxReasonBytes - begin.size());
  while (rest < line.size() && (line[rest] & 0xc0) == 0x80) ++rest;
  return begin + line.substr(rest);
}

MasterClient::MasterClient(std::string address, const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                           double give_up_seconds, const Clock* clock, const StopFlag* stop)
    : address_(std::move(address)),
      channel_(ConnectForControl(address_, credentials)),
      stub_(v1::MasterService::NewStub(channel_)),
      give_up_seconds_(give_up_seconds),
      clock_(*clock),
      stop_(*stop) {}

std::unique_ptr<grpc::ClientContext> MasterClient::MakeContext(std::optional<double> seconds) const {
  auto context = seconds ? DeadlineContext(*seconds) : std::make_unique<grpc::ClientContext>();
  MutexLock lock(&mu_);
  if (!token_.empty()) context->AddMetadata(kTokenMetadata, token_);
  return context;
}

absl::StatusOr<v1::RegisterReply> MasterClient::Register(const v1::RegisterRequest& request) {
  const double sent = clock_.Now();
  ASSIGN_OR_RETURN(v1::RegisterReply reply, Call(&Stub::Register, request));
  RecordMasterTime(sent, reply.master_time());
  MutexLock lock(&mu_);
  token_ = reply.token();
  return reply;
}

absl::Status MasterClient::Retry(const std::function<grpc::Status(grpc::ClientContext*)>& call,
                                 const StopFlag& stop, std::optional<double> seconds) {
  Patience patience(give_up_seconds_);
  GrowingPause pauses;
  bool ended = false;
  while (true) {
    const std::unique_ptr<grpc::ClientContext> context = MakeContext(seconds);
    patience.Begin(clock_.Now(), seconds.value_or(std::numeric_limits<double>::infinity()));
    const absl::Status status = FromGrpc(call(context.get()), Who());
    if (absl::IsCancelled(status) && stop.IsSet()) return absl::CancelledError(kStopped);
    // A master cancels the calls in progress when it begins another run, and when its process ends in order.
    ended |= absl::IsCancelled(status);
    if (!absl::IsUnavailable(status) && !absl::IsDeadlineExceeded(status) && !absl::IsCancelled(status)) {
      reached_ = true;
      return status;
    }
    if (IsNotReady(status)) {
      patience.Succeed();
    } else if (patience.Fail(clock_.Now())) {
      if (ended) {
        return absl::CancelledError(
            absl::StrCat(Who(), " ended during a call, and has not returned in ", give_up_seconds_, " s"));
      }
      return absl::UnavailableError(absl::StrCat("gave up after ", give_up_seconds_, " s: ", status.message(),
                                                 reached_ ? "" : kNeverReached));
    }
    const double pause = pauses.Next(std::string(status.message()));
    if (IsNotReady(status)) {
      LOG(INFO) << status.message() << "; waiting for it";
    } else {
      LOG(WARNING) << status.message() << "; trying again in " << pause << " s, giving up after "
                   << give_up_seconds_ << " s";
    }
    patience.Begin(clock_.Now(), pause);
    if (Pause(pause, stop)) return absl::CancelledError(kStopped);
  }
}

absl::StatusOr<v1::Lease> MasterClient::GetLease(const v1::GetLeaseRequest& request, const StopFlag& stop) {
  v1::Lease lease;
  RETURN_IF_ERROR(
      Retry([&](grpc::ClientContext* context) { return TryGetLease(context, request, stop, &lease); }, stop,
            kCallSeconds + request.wait_seconds()));
  return lease;
}

grpc::Status MasterClient::TryGetLease(grpc::ClientContext* context, const v1::GetLeaseRequest& request,
                                       const StopFlag& stop, v1::Lease* lease) {
  grpc::CompletionQueue queue;
  grpc::Status status;
  const auto call = stub_->AsyncGetLease(context, request, &queue);
  call->Finish(lease, &status, this);
  void* tag;
  bool ok;
  while (queue.AsyncNext(&tag, &ok, TimeIn(kSlice)) == grpc::CompletionQueue::TIMEOUT) {
    if (stop.IsSet()) context->TryCancel();
  }
  queue.Shutdown();
  while (queue.Next(&tag, &ok)) {
  }
  return status;
}

absl::Status MasterClient::KeepBest(uint64_t incarnation, uint64_t evaluation,
                                    absl::Span<const float> weights) {
  v1::BestWeights message;
  message.set_incarnation(incarnation);
  message.set_evaluation(evaluation);
  return Retry([&](grpc::ClientContext* context) { return StreamBest(context, message, weights); }, stop_,
               std::nullopt);
}

grpc::Status MasterClient::StreamBest(grpc::ClientContext* context, v1::BestWeights message,
                                      absl::Span<const float> weights) {
  v1::KeepBestReply reply;
  StallGuard guard(context, kStallSeconds, &clock_);
  const std::unique_ptr<grpc::ClientWriter<v1::BestWeights>> writer = stub_->KeepBest(context, &reply);
  for (size_t begin = 0; begin < weights.size(); begin += kValuesPerMessage) {
    const absl::Span<const float> part = weights.subspan(begin, kValuesPerMessage);
    message.set_begin(begin);
    message.set_values(part.data(), part.size() * sizeof(float));
    if (stop_.IsSet()) context->TryCancel();
    if (!writer->Write(message)) break;
    guard.Progress();
  }
  writer->WritesDone();
  return ToGrpc(guard.Explain(FromGrpc(writer->Finish())));
}

bool MasterClient::Pause(double seconds, const StopFlag& stop) {
  if (channel_->GetState(false) == GRPC_CHANNEL_READY) return stop.Pause(seconds);
  // gRPC continues connecting only while a thread waits in it; a plain pause would make no progress.
  const double end = clock_.Now() + seconds;
  while (!stop.IsSet() && clock_.Now() < end) {
    if (channel_->WaitForConnected(TimeIn(kSlice))) break;
  }
  return stop.IsSet();
}

}  // namespace catchment
