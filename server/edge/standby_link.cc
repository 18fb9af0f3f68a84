#include "server/edge/standby_link.h"

#include <glog/logging.h>
#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/impl/codegen/proto_utils.h>
#include <pthread.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/growing_pause.h"
#include "common/net/rpc.h"
#include "common/wire/protocol.h"
#include "server/edge/restore_shard.h"
#include "server/edge/stream_call.h"
#include "server/shard/replica.h"

namespace catchment {
namespace {

constexpr char kMethod[] = "/catchment.v1.StandbyService/Replicate";
// The key of StandbyPart.vector: its number and the wire type of bytes.
constexpr uint8_t kVectorKey = (v1::StandbyPart::kVectorFieldNumber << 3) | 2;

}  // namespace

StandbyLink::StandbyLink(Shard* shard, const ParameterLayout* layout, StandbyLog* log,
                         const SharedArena* arena, Threads threads,
                         std::shared_ptr<grpc::ChannelCredentials> credentials, OnReplaced on_replaced)
    : shard_(*shard),
      layout_(*layout),
      log_(*log),
      arena_(arena),
      threads_(std::move(threads)),
      credentials_(std::move(credentials)),
      on_replaced_(std::move(on_replaced)),
      thread_([this] { Run(); }) {
  pthread_setname_np(thread_.native_handle(), "standby link");
}

StandbyLink::~StandbyLink() {
  {
    MutexLock lock(&mu_);
    ending_ = true;
    changed_.Notify();
  }
  thread_.join();
  // They are part of the copy from which another process restores the shard.
  for (const LentVectors* const lent : {&lent_, &lent_before_}) {
    for (const auto& [offset, vector] : *lent) vector->LeaveToReaders();
  }
}

void StandbyLink::SetStandby(const v1::ShardCommand::Standby& standby, uint64_t run_id) {
  MutexLock lock(&mu_);
  standby_ = standby;
  run_id_ = run_id;
  if (epoch_ == 0) epoch_ = standby.epoch();
  changed_.Notify();
}

void StandbyLink::SetEpoch(uint64_t epoch) {
  MutexLock lock(&mu_);
  epoch_ = epoch;
}

uint64_t StandbyLink::epoch() const {
  MutexLock lock(&mu_);
  return epoch_;
}

void StandbyLink::Run() {
  GrowingPause pauses;
  while (true) {
    std::string address;
    v1::StandbyHello hello;
    {
      MutexLock lock(&mu_);
      changed_.Wait(&mu_, [this] { return ending_ || !standby_.address().empty(); });
      if (ending_) return;
      address = standby_.address();
      hello = MakeStandbyHello(layout_, shard_.index(), run_id_, epoch_);
    }
    if (arena_ != nullptr) *hello.mutable_shared_memory() = arena_->Offer();
    const absl::Status status = Stream(address, hello);
    MutexLock lock(&mu_);
    if (ending_) return;
    if (absl::IsFailedPrecondition(status)) {
      on_replaced_(status);
      return;
    }
    if (acknowledged_) pauses.Reset();
    const double pause = pauses.Next();
    LOG(WARNING) << "the standby at " << address << ": " << status.message() << "; trying again in " << pause
                 << " s. Until then no answer leaves this server.";
    changed_.WaitFor(&mu_, pause, [this] { return ending_; });
  }
}

absl::Status StandbyLink::Stream(const std::string& address, const v1::StandbyHello& hello) {
  {
    MutexLock lock(&mu_);
    admitted_ = false;
    acknowledged_ = false;
    prepared_ = false;
    shares_ = false;
    closed_.reset();
  }
  messages_.clear();
  stream_ = std::make_unique<MessageStream>(
      Connect(address, credentials_), threads_(),
      MessageStream::Call{kMethod, kStandbyHelloKey, hello.SerializeAsString()},
      static_cast<MessageStream::Owner*>(this));
  if (AwaitAdmission()) {
    image_ = shard_.BeginImage();
    next_block_ = 0;
    image_->values->Finish();
    AddPart(image_->begin);
    for (const v1::StandbyPart& ledger : image_->ledgers) AddPart(ledger);
    {
      MutexLock lock(&mu_);
      prepared_ = true;
    }
    log_.SetSender([this] { stream_->Send(); });
    stream_->Wake();
  }
  absl::Status status;
  {
    MutexLock lock(&mu_);
    changed_.Wait(&mu_, [this] { return ending_ || closed_; });
    if (!closed_) stream_->Cancel();
    changed_.Wait(&mu_, [this] { return closed_.has_value(); });
    status = *closed_;
  }
  log_.SetSender(nullptr);
  log_.Close();
  stream_.reset();
  image_.reset();
  MutexLock lock(&mu_);
  lent_before_.merge(lent_);
  return status;
}

bool StandbyLink::AwaitAdmission() {
  MutexLock lock(&mu_);
  changed_.Wait(&mu_, [this] { return ending_ || admitted_ || closed_; });
  return admitted_ && !closed_ && !ending_;
}

// ---------------------------------------------------------------------------------------------- the stream

bool StandbyLink::Next(grpc::ByteBuffer* message) {
  {
    // The stream asks for a message as soon as the call is open, which may be after the standby has admitted
    // it.
    MutexLock lock(&mu_);
    if (!prepared_) return false;
  }
  if (messages_.empty() && image_) AddOfImage();
  while (messages_.empty()) {
    std::optional<StandbyLog::Change> change = log_.Next();
    if (!change) return false;
    AddChange(*std::move(change));
  }
  message->Swap(&messages_.front());
  messages_.pop_front();
  return true;
}

absl::Status StandbyLink::OnMessage(const grpc::ByteBuffer& message) {
  grpc::ByteBuffer bytes = message;
  v1::StandbyAcknowledgement acknowledgement;
  const grpc::Status status =
      grpc::SerializationTraits<v1::StandbyAcknowledgement>::Deserialize(&bytes, &acknowledgement);
  if (!status.ok()) return FromGrpc(status);
  {
    MutexLock lock(&mu_);
    if (!admitted_) {
      shares_ = arena_ != nullptr && acknowledgement.reads_shared_memory();
      admitted_ = true;
      changed_.Notify();
    }
    // The copy consists of this stream's image and changes.
    if (acknowledgement.number() > 0) {
      acknowledged_ = true;
      lent_before_.clear();
    }
    for (const uint64_t offset : acknowledgement.returned()) {
      const auto vector = lent_.find(offset);
      if (vector == lent_.end())
        return absl::InvalidArgumentError("the standby returns a vector that it does not have");
      lent_.erase(vector);
    }
  }
  log_.Acknowledge(acknowledgement.number());
  return absl::OkStatus();
}

void StandbyLink::OnClosed(const absl::Status& status) {
  MutexLock lock(&mu_);
  closed_ = status;
  changed_.Notify();
}

void StandbyLink::AddVector(const grpc::Slice& values) {
  uint8_t header[1 + 10];
  header[0] = kVectorKey;
  const uint8_t* const end =
      google::protobuf::io::CodedOutputStream::WriteVarint64ToArray(values.size(), header + 1);
  const grpc::Slice slices[] = {grpc::Slice(header, end - header), values};
  messages_.emplace_back(slices, 2);
}

void StandbyLink::AddPart(const v1::StandbyPart& part) {
  const grpc::Slice slice(part.SerializeAsString());
  messages_.emplace_back(&slice, 1);
}

void StandbyLink::AddOfImage() {
  if (next_block_ == image_->blocks.size()) {
    AddState(/*whole=*/true, /*number=*/0);
    v1::StandbyPart end;
    end.set_complete(true);
    end.set_number(image_->number);
    AddPart(end);
    image_.reset();
    return;
  }
  const ShardSnapshot& values = image_->values->Finish();
  const Range block = shard_.block_range(static_cast<int>(next_block_));
  const int64_t begin = block.begin - layout_.shard(shard_.index()).begin;
  AddVector(grpc::Slice(values.weights.data() + begin, block.size() * sizeof(float)));
  for (const std::vector<float>& state : values.states)
    AddVector(grpc::Slice(state.data() + begin, block.size() * sizeof(float)));
  AddChange(std::move(image_->blocks[next_block_++]));
}

void StandbyLink::AddState(bool whole, uint64_t number) {
  std::vector<v1::StandbyPart> parts = log_.DescribeState(whole);
  if (!parts.empty()) parts.back().set_number(number);
  for (const v1::StandbyPart& state : parts) {
    SendInParts(state, [this](const v1::StandbyPart& part) {
      AddPart(part);
      return true;
    });
  }
}

void StandbyLink::AddChange(StandbyLog::Change change) {
  if (change.state) return AddState(/*whole=*/false, change.part.number());
  // The changes of an image have no numbers.
  if (!image_ && ShareVectors(&change)) return;
  for (BufferPtr& vector : change.vectors) AddVector(SliceOf(std::move(vector)));
  AddPart(change.part);
}

bool StandbyLink::ShareVectors(StandbyLog::Change* change) {
  if (change->vectors.empty()) return false;
  MutexLock lock(&mu_);
  if (!shares_) return false;
  v1::StandbyPart& part = change->part;
  for (const BufferPtr& vector : change->vectors) {
    const std::optional<uint64_t> offset = arena_->OffsetOf(vector->data());
    if (!offset) {
      part.clear_shared_vectors();
      return false;
    }
    v1::SharedVector* const shared = part.add_shared_vectors();
    shared->set_offset(*offset);
    shared->set_bytes(vector->bytes());
    shared->set_generation(*vector->generation());
  }
  AddPart(part);
  for (int i = 0; i < part.shared_vectors_size(); ++i)
    lent_.emplace(part.shared_vectors(i).offset(), std::move(change->vectors[i]));
  return true;
}

}  // namespace catchment
