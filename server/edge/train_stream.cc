#include "server/edge/train_stream.h"

#include <glog/logging.h>

#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/net/rpc.h"
#include "common/trace/recorder.h"
#include "common/wire/protocol.h"
#include "server/edge/stream_call.h"

namespace catchment {
namespace {

constexpr size_t kWindow = 8;
// The largest number of buffers that wait for the worker to read them. Beyond it payloads are in messages.
constexpr size_t kMaxLent = 2 * kWindow;
// The time that the final status of a stream may take to reach a peer that does not read.
constexpr double kFinalStatusSeconds = 10;

static_assert(FloatBuffer::kDataOffset == kGenerationBefore);

absl::Status TooSlow(const std::string& what, double bytes_per_second) {
  return absl::DeadlineExceededError(absl::StrCat(
      what, " at ", std::lround(bytes_per_second / 1024),
      " KiB/s, slower than the job's faults.slowest_kib_per_second; lower that, or set it to 0"));
}

}  // namespace

TrainStream::TrainStream(TrainCall* call, const Context* context, const v1::Hello& hello)
    : context_(*context),
      shard_(*context->shard),
      worker_(hello.worker()),
      incarnation_(hello.incarnation()),
      call_(call),
      receiving_(context->floor),
      sending_(context->floor) {}

void TrainStream::Start(const v1::Hello& hello) {
  self_ = shared_from_this();
  if (hello.has_shared_memory() && context_.arena != nullptr) OfferMemory(hello.shared_memory());
  std::vector<Answer> calls = shard_.Connected(worker_, incarnation_, self_);
  number_ = context_.streams->Add({worker_, incarnation_}, self_);
  catchment::Deliver(&calls);
  MutexLock lock(&mu_);
  WriteNext();
  ReadNext();
}

void TrainStream::OfferMemory(const v1::SharedMemory& of_worker) {
  if (!IsOfThisMachine(of_worker)) return;
  absl::StatusOr<std::unique_ptr<MappedArena>> memory = MappedArena::Open(of_worker, context_.most_offered);
  if (!memory.ok()) {
    LOG(INFO) << name() << " shares no memory with this server: " << memory.status().message();
    return;
  }
  worker_memory_ = *std::move(memory);
  MutexLock lock(&mu_);
  call_->OfferPipes();
  offer_ = context_.arena->Offer().SerializeAsString();
}

std::string TrainStream::name() const {
  return absl::StrCat("worker ", worker_, ", incarnation ", incarnation_, ",");
}

// ------------------------------------------------------------------------------------------------ requests

void TrainStream::ReadNext() {
  if (reading_ || ending_ || applying_ + answers_.size() + writing_ >= kWindow) return;
  reading_ = true;
  call_->StartRead(&incoming_);
}

void TrainStream::OnReadDone(bool ok) {
  Request request;
  const absl::StatusOr<bool> is_request = ok ? ReadMessage(&request) : false;
  {
    MutexLock lock(&mu_);
    reading_ = false;
    if (!ok && !ending_) closed_by_peer_ = true;
    if (!ok || !is_request.ok()) EndStream(is_request.status());
    if (ending_) return;
    if (!*is_request) return ReadNext();
    ++applying_;
  }
  context_.appliers->Submit(self_, std::move(request));
  MutexLock lock(&mu_);
  ReadNext();
}

absl::StatusOr<bool> TrainStream::ReadMessage(Request* request) {
  RETURN_IF_ERROR(frame_.Decode(incoming_));
  const BlockHeader& header = frame_.header();
  {
    MutexLock lock(&mu_);
    bytes_received_ += incoming_.Length() + header.shared_bytes;
  }
  const bool is_request = header.operation != v1::Block::SHARE;
  absl::Status status;
  if (is_request) {
    *request = MakeRequest(worker_, incarnation_, header, self_, number_);
    status = ReadPayload(header, &request->contribution);
  } else {
    status = StartSharing(header.shared_offset);
  }
  // While a worker computes, its stream holds no memory of blocks.
  frame_.Clear();
  incoming_.Clear();
  RETURN_IF_ERROR(status);
  return is_request;
}

absl::Status TrainStream::StartSharing(uint64_t counters) {
  if (worker_memory_ == nullptr) return absl::InvalidArgumentError("SHARE without an offer of this server");
  if (!worker_memory_->Counter(counters) ||
      !worker_memory_->Counter(counters + offsetof(SharedCounters, answers_read))) {
    return absl::InvalidArgumentError(
        absl::StrCat("the counters at ", counters, " are outside of the worker's shared memory"));
  }
  MutexLock lock(&mu_);
  counters_ = counters;
  return absl::OkStatus();
}

absl::Status TrainStream::ReadPayload(const BlockHeader& header, Contribution* contribution) {
  if (header.shared_bytes == 0) return shard_.ReadPayload(frame_.payload(), header.scale, contribution);
  std::optional<uint64_t> counters;
  {
    MutexLock lock(&mu_);
    counters = counters_;
  }
  if (!counters) return absl::InvalidArgumentError("a payload in shared memory before SHARE");
  const char* const bytes = worker_memory_->At(header.shared_offset, header.shared_bytes);
  if (bytes == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat("block ", header.block, ": a payload of ",
                                                   header.shared_bytes, " bytes at ", header.shared_offset,
                                                   " is outside of the worker's shared memory"));
  }
  const absl::string_view piece(bytes, header.shared_bytes);
  absl::Status status =
      shard_.ReadPayload(PayloadView({&piece, 1}, 0, piece.size()), header.scale, contribution);
  if (worker_memory_->Counter(*counters) != header.shared_generation)
    return absl::UnavailableError("the worker has given up this push");
  return status;
}

void TrainStream::Apply(Request request) {
  // The vector of each thread keeps its memory.
  static thread_local std::vector<Answer> answers;
  const absl::Status status = Handle(std::move(request), &answers);
  if (context_.log != nullptr) context_.log->Flush();
  catchment::Deliver(&answers);
  if (context_.timer != nullptr) context_.timer->Look();
  MutexLock lock(&mu_);
  --applying_;
  if (!status.ok()) EndStream(status);
  ReadNext();
}

absl::Status TrainStream::Handle(Request request, std::vector<Answer>* answers) {
  TraceRecorder* const trace = Trace();
  if (trace == nullptr) return shard_.Handle(std::move(request), context_.clock.Now(), answers);
  const TraceBlock block = {worker_, request.contribution.block, request.envelope.sequence};
  const bool is_pull = request.envelope.operation == v1::Block::PULL;
  const double begin = trace->Now();
  {
    MutexLock lock(&mu_);
    waits_since_[block.block] = begin;
  }
  absl::Status status = shard_.Handle(std::move(request), begin, answers);
  trace->Record(is_pull ? "pull" : "apply", begin, trace->Now(), block);
  for (const Answer& answer : *answers) {
    if (answer.sink.get() != this || answer.header.block != block.block) continue;
    MutexLock lock(&mu_);
    waits_since_.erase(block.block);
  }
  return status;
}

// ------------------------------------------------------------------------------------------------- answers

void TrainStream::Deliver(Answer answer) {
  MutexLock lock(&mu_);
  if (TraceRecorder* const trace = Trace(); trace != nullptr && answer.header.operation != v1::Block::CALL) {
    const auto wait = waits_since_.extract(answer.header.block);
    if (wait) {
      trace->RecordOn(absl::StrCat("gate: worker ", worker_), "gate", wait.mapped(), trace->Now(),
                      TraceBlock{worker_, answer.header.block, answer.header.sequence});
    }
  }
  if (ending_) return;
  if (answer.again) {
    return EndStream(absl::UnavailableError(
        "a worker has left whose contribution was added to this one's, so this one must send its own again"));
  }
  answers_.Push(std::move(answer));
  WriteNext();
  ReadNext();
}

void TrainStream::WriteNext() {
  while (!writing_ && !ending_) {
    if (!offer_.empty()) {
      outgoing_made_at_ = 0;
      Write(Frame({.operation = v1::Block::SHARE}, grpc::Slice(std::exchange(offer_, {}))), 0);
      continue;
    }
    if (answers_.empty() || MustWait()) return;
    Answer answer = answers_.Pop();
    outgoing_made_at_ = answer.made_at;
    ShareMemory(&answer);
    const uint64_t shared_bytes = answer.header.shared_bytes;
    Write(Frame(answer.header, SliceOf(std::move(answer.payload))), shared_bytes);
  }
}

void TrainStream::Write(grpc::ByteBuffer frame, uint64_t shared_bytes) {
  outgoing_.Swap(&frame);
  outgoing_bytes_ = outgoing_.Length() + shared_bytes;
  writing_ = true;
  if (call_->StartWrite(outgoing_)) NoteWritten();
}

void TrainStream::NoteWritten() {
  writing_ = false;
  bytes_sent_ += outgoing_bytes_;
  outgoing_.Clear();
  if (context_.timer != nullptr && outgoing_made_at_ > 0)
    shard_.CountAnswer(context_.clock.Now() - outgoing_made_at_);
  times_drained_ += answers_.empty();
}

void TrainStream::ShareMemory(Answer* answer) {
  if (answer->payload == nullptr || !counters_) return;
  ReclaimLent();
  const std::optional<uint64_t> place = context_.arena->OffsetOf(answer->payload->data());
  if (!place || lent_.size() >= kMaxLent) return;
  answer->header.shared_bytes = answer->payload->bytes();
  answer->header.shared_offset = *place;
  answer->header.shared_generation = *answer->payload->generation();
  lent_.Push(std::move(answer->payload));
}

void TrainStream::ReclaimLent() {
  const std::optional<uint64_t> read =
      worker_memory_->Counter(*counters_ + offsetof(SharedCounters, answers_read));
  while (!lent_.empty() && answers_read_ < read.value_or(0)) {
    lent_.Pop();
    ++answers_read_;
  }
}

bool TrainStream::MustWait() {
  if (context_.log == nullptr) return false;
  if (waits_for_standby_) return true;
  const double begin = Trace() == nullptr ? 0 : Trace()->Now();
  // With a full window nothing is read, so only this function can end the stream when the server ends.
  const auto then = [self = shared_from_this(), begin](bool acknowledged) {
    if (TraceRecorder* const trace = Trace())
      trace->RecordOn(absl::StrCat("standby: worker ", self->worker_), "standby", begin, trace->Now());
    MutexLock lock(&self->mu_);
    self->waits_for_standby_ = false;
    if (!acknowledged) return self->EndStream(LogHasEnded());
    self->WriteNext();
    self->ReadNext();
  };
  const auto wait = context_.log->Await(answers_[0].change, then);
  if (wait == StandbyLog::Wait::kNever) EndStream(LogHasEnded());
  waits_for_standby_ = wait == StandbyLog::Wait::kLater;
  return wait != StandbyLog::Wait::kAcknowledged;
}

void TrainStream::OnWriteDone(bool ok) {
  MutexLock lock(&mu_);
  // The peer has disconnected, which the next read will report.
  if (!ok) answers_.Clear();
  NoteWritten();
  WriteNext();
  ReadNext();
  FinishWhenIdle();
}

// ----------------------------------------------------------------------------------------------------- end

void TrainStream::EndStream(const absl::Status& status) {
  if (ending_) return;
  ending_ = true;
  status_ = status;
  answers_.Clear();
  FinishWhenIdle();
}

void TrainStream::FinishWhenIdle() {
  if (ending_ && !writing_ && !std::exchange(finished_, true)) call_->Finish(ToGrpc(status_));
}

void TrainStream::Replace() {
  MutexLock lock(&mu_);
  EndStream(absl::AbortedError(absl::StrCat(name(), " has opened a newer connection")));
  if (writing_ && call_ != nullptr) call_->Cancel();
}

void TrainStream::Sweep(double now) {
  const bool member = shard_.IsMember(worker_, incarnation_);
  const uint64_t push = shard_.PushUnderWay(worker_, incarnation_);
  MutexLock lock(&mu_);
  if (call_ == nullptr) return;
  if (ending_) {
    if (cancel_at_ == 0) cancel_at_ = now + kFinalStatusSeconds;
    if (now >= cancel_at_) call_->Cancel();
  } else if (!member) {
    EndStream(absl::AbortedError(
        absl::StrCat(name(), " is not, or no longer, a member of the job; register again")));
  } else if (absl::Status status = CheckRates(now, push); !status.ok()) {
    LOG(WARNING) << status.message() << "; its connection is ended";
    EndStream(status);
  }
}

absl::Status TrainStream::CheckRates(double now, uint64_t push) {
  // A peer that is not read from cannot send.
  if (const auto rate = receiving_.Check(now, reading_ ? push : 0, bytes_received_)) {
    return TooSlow(absl::StrCat(name(), " sends push ", push), *rate);
  }
  if (const auto rate = sending_.Check(now, writing_ ? times_drained_ + 1 : 0, bytes_sent_)) {
    return TooSlow(absl::StrCat(name(), " takes its answers"), *rate);
  }
  return absl::OkStatus();
}

void TrainStream::OnDone() {
  bool by_peer = false;
  {
    MutexLock lock(&mu_);
    call_ = nullptr;
    by_peer = closed_by_peer_;
  }
  shard_.Disconnected(worker_, incarnation_, by_peer);
  context_.streams->Remove(this);
  const std::shared_ptr<TrainStream> last = std::move(self_);
}

}  // namespace catchment
