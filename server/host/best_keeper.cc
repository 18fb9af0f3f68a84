#include "server/host/best_keeper.h"

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

absl::Status TakenOver() {
  return absl::AbortedError("another stream of best weights has replaced this one");
}

}  // namespace

BestKeeper::BestKeeper(int64_t num_values, Owner owner) : num_values_(num_values), owner_(std::move(owner)) {
  thread_ = std::thread([this] { Run(); });
}

BestKeeper::~BestKeeper() {
  {
    MutexLock lock(&mu_);
    ending_ = true;
    changed_.Notify();
  }
  thread_.join();
}

absl::StatusOr<uint64_t> BestKeeper::Begin(const v1::BestWeights& first) {
  Incoming incoming;
  {
    MutexLock lock(&mu_);
    incoming.stream = ++streams_;
  }
  ASSIGN_OR_RETURN(v1::BestState score, owner_.admit(first.incarnation(), first.evaluation()));
  incoming.incarnation = first.incarnation();
  incoming.score = std::move(score);
  incoming.weights.resize(num_values_);
  if (absl::Status status = Take(first, &incoming); !status.ok()) {
    owner_.ended(incoming.score, status);
    return status;
  }
  MutexLock lock(&mu_);
  if (incoming.stream < newest_) return TakenOver();
  newest_ = incoming.stream;
  incoming_ = std::move(incoming);
  return newest_;
}

absl::Status BestKeeper::Add(uint64_t stream, const v1::BestWeights& message) {
  Incoming broken;
  absl::Status status;
  {
    MutexLock lock(&mu_);
    RETURN_IF_ERROR(CheckCurrent(stream));
    status = Take(message, &incoming_);
    if (status.ok()) return status;
    broken = std::exchange(incoming_, {});
  }
  owner_.ended(broken.score, status);
  return status;
}

absl::Status BestKeeper::CheckCurrent(uint64_t stream) const {
  return incoming_.stream == stream ? absl::OkStatus() : TakenOver();
}

absl::Status BestKeeper::Take(const v1::BestWeights& message, Incoming* incoming) const {
  if (message.incarnation() != incoming->incarnation ||
      message.evaluation() != incoming->score.evaluation()) {
    return absl::InvalidArgumentError(absl::StrCat("received weights of evaluation ", message.evaluation(),
                                                   " in the stream of evaluation ",
                                                   incoming->score.evaluation()));
  }
  if (message.begin() != incoming->next) {
    return absl::InvalidArgumentError(absl::StrCat("received the best weights from value ", message.begin(),
                                                   ", expected value ", incoming->next, " next"));
  }
  const size_t bytes = message.values().size();
  const uint64_t left = num_values_ - incoming->next;
  if (bytes == 0 || bytes % sizeof(float) != 0 || bytes / sizeof(float) > left) {
    return absl::InvalidArgumentError(absl::StrCat("received a message of ", bytes,
                                                   " bytes of the best weights, expected at most ", left,
                                                   " values of ", sizeof(float), " bytes"));
  }
  std::memcpy(incoming->weights.data() + incoming->next, message.values().data(), bytes);
  incoming->next += bytes / sizeof(float);
  return absl::OkStatus();
}

void BestKeeper::End(uint64_t stream, Done done) {
  Incoming incoming;
  absl::Status status;
  {
    MutexLock lock(&mu_);
    status = CheckCurrent(stream);
    if (status.ok()) incoming = std::exchange(incoming_, {});
  }
  if (!status.ok()) return done(status);
  if (incoming.next == num_values_) return Enqueue(std::move(incoming), std::move(done));
  status = absl::DataLossError(
      absl::StrCat("the best weights ended after ", incoming.next, " of ", num_values_, " values"));
  owner_.ended(incoming.score, status);
  done(status);
}

// If the disk is slower than evaluations, only the newest weights are written.
void BestKeeper::Enqueue(Incoming incoming, Done done) {
  std::optional<Received> replaced =
      Received{std::move(incoming.score), std::move(incoming.weights), std::move(done)};
  {
    MutexLock lock(&mu_);
    waiting_.swap(replaced);
    changed_.Notify();
  }
  if (replaced) replaced->done(TakenOver());
}

void BestKeeper::Run() {
  while (true) {
    std::optional<Received> next;
    {
      MutexLock lock(&mu_);
      changed_.Wait(&mu_, [this] { return ending_ || waiting_.has_value(); });
      waiting_.swap(next);
    }
    if (!next) return;
    const absl::Status status = owner_.write(next->score, next->weights);
    owner_.ended(next->score, status);
    next->done(status);
  }
}

}  // namespace catchment
