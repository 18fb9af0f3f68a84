#include "server/edge/keep_best_stream.h"

#include "common/base/status_macros.h"
#include "common/net/rpc.h"

namespace catchment {

KeepBestStream::KeepBestStream(KeepBestCall* call, BestKeeper* keeper) : call_(*call), keeper_(*keeper) {
  call_.Start(this);
  call_.StartRead(&message_);
}

void KeepBestStream::OnReadDone(bool ok) {
  if (ok) {
    const absl::Status status = Take();
    if (!status.ok()) return Answer(status);
    return call_.StartRead(&message_);
  }
  // The previous message was the last, or the sender has gone; the keeper distinguishes them by the values.
  if (stream_ == 0) return Answer(absl::InvalidArgumentError("received no weights"));
  keeper_.End(stream_, [this](const absl::Status& status) { Answer(status); });
}

absl::Status KeepBestStream::Take() {
  RETURN_IF_ERROR(CheckLimits(message_));
  if (stream_ != 0) return keeper_.Add(stream_, message_);
  RETURN_IF_ERROR(call_.permission.Check(call_.context, message_));
  const absl::StatusOr<uint64_t> begun = keeper_.Begin(message_);
  if (begun.ok()) stream_ = *begun;
  return begun.status();
}

void KeepBestStream::Answer(const absl::Status& status) { call_.Finish(v1::KeepBestReply(), ToGrpc(status)); }

}  // namespace catchment
