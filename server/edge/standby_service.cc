#include "server/edge/standby_service.h"

#include <glog/logging.h>
#include <google/protobuf/io/coded_stream.h>

#include <algorithm>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/shared_arena.h"
#include "common/base/status_macros.h"
#include "common/net/message_limits.h"
#include "common/net/rpc.h"
#include "common/wire/protocol.h"

namespace catchment {
namespace {

// The field's number, and the wire type of bytes.
constexpr uint32_t kVectorTag = (v1::StandbyPart::kVectorFieldNumber << 3) | 2;

// The size in bytes up to which parts of a message are copied.
constexpr size_t kLongestCopied = 256;

grpc::ByteBuffer Encode(const v1::StandbyAcknowledgement& acknowledgement) {
  const grpc::Slice slice(acknowledgement.SerializeAsString());
  return grpc::ByteBuffer(&slice, 1);
}

// Returns the vector of a StandbyPart that has nothing else; nothing for any other message.
std::optional<absl::Cord> DecodeVector(const absl::Cord& message) {
  constexpr int kMaxHeaderBytes = 11;
  const std::string header(message.Subcord(0, kMaxHeaderBytes));
  google::protobuf::io::CodedInputStream in(reinterpret_cast<const uint8_t*>(header.data()),
                                            static_cast<int>(header.size()));
  uint64_t size = 0;
  if (in.ReadTag() != kVectorTag || !in.ReadVarint64(&size)) return std::nullopt;
  if (message.size() - in.CurrentPosition() != size) return std::nullopt;
  return message.Subcord(in.CurrentPosition(), size);
}

// Returns the memory that the server offers; null: there is none that this process can read.
std::unique_ptr<MappedArena> MemoryOf(const v1::StandbyHello& hello, int64_t shard_values) {
  if (!hello.has_shared_memory() || !IsOfThisMachine(hello.shared_memory())) return nullptr;
  absl::StatusOr<std::unique_ptr<MappedArena>> memory =
      MappedArena::Open(hello.shared_memory(), kArenaShards * shard_values);
  if (memory.ok()) return *std::move(memory);
  LOG(INFO) << "the server of shard " << hello.shard()
            << " shares no memory with its standby: " << memory.status().message();
  return nullptr;
}

// The vectors of a copy that are in the memory of another server. They remain readable when its process has
// ended, as long as this one has the memory mapped.
//
// Threads: safe.
class LentVectors : public std::enable_shared_from_this<LentVectors> {
 public:
  explicit LentVectors(std::unique_ptr<MappedArena> memory) : memory_(std::move(memory)) {}

  // Returns the vector, which is not copied. Errors: InvalidArgument if it is not in the memory; Aborted if
  // the server has replaced it.
  absl::StatusOr<absl::Cord> Borrow(const v1::SharedVector& shared) {
    const uint64_t offset = shared.offset();
    const bool has_counter = offset >= kGenerationBefore;
    const char* const bytes = has_counter ? memory_->At(offset, shared.bytes()) : nullptr;
    if (bytes == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("a vector of ", shared.bytes(), " bytes at ", offset,
                                                     " is not in the server's shared memory"));
    }
    if (memory_->Counter(offset - kGenerationBefore) != shared.generation())
      return absl::AbortedError("the server has replaced values before they were read");
    return absl::MakeCordFromExternal({bytes, shared.bytes()}, [self = shared_from_this(), offset] {
      MutexLock lock(&self->mu_);
      self->returned_.push_back(offset);
    });
  }
  // Returns the offsets of the vectors that the copy has dropped since the last call.
  std::vector<uint64_t> TakeReturned() {
    MutexLock lock(&mu_);
    return std::exchange(returned_, {});
  }

 private:
  const std::unique_ptr<MappedArena> memory_;
  Mutex mu_;
  std::vector<uint64_t> returned_ ABSL_GUARDED_BY(mu_);
};

// Receives a shard's image and changes.
class Receiver final : public StreamOwner {
 public:
  // `memory`: of the sender; null: it shares none.
  Receiver(ReplicateCall* call, StandbyStore* store, uint64_t stream, std::unique_ptr<MappedArena> memory)
      : call_(*call),
        store_(*store),
        stream_(stream),
        lent_(memory == nullptr ? nullptr : std::make_shared<LentVectors>(std::move(memory))) {}

  // The first acknowledgement says that the stream is admitted.
  void Start() {
    if (lent_ != nullptr) call_.OfferPipes();
    v1::StandbyAcknowledgement first;
    first.set_reads_shared_memory(lent_ != nullptr);
    call_.StartWrite(Encode(first));
    call_.StartRead(&incoming_);
  }

 private:
  void OnReadDone(bool ok) override {
    if (!ok) return End(absl::OkStatus());
    const absl::StatusOr<uint64_t> number = Take();
    if (!number.ok()) return End(number.status());
    call_.StartRead(&incoming_);
    MutexLock lock(&mu_);
    if (*number > 0) number_ = *number;
    WriteNext();
  }

  // Passes the message on; the memory of a vector is not copied. Returns the number of the last change in the
  // copy, 0 if the message has completed none.
  absl::StatusOr<uint64_t> Take() {
    std::vector<grpc::Slice> slices;
    if (!incoming_.Dump(&slices).ok()) return absl::InvalidArgumentError("unreadable message");
    incoming_.Clear();
    absl::Cord message;
    for (grpc::Slice& slice : slices) {
      const absl::string_view bytes(reinterpret_cast<const char*>(slice.begin()), slice.size());
      // The bytes of a short slice are in the object itself, and would move with it.
      if (bytes.size() <= kLongestCopied) {
        message.Append(bytes);
      } else {
        message.Append(absl::MakeCordFromExternal(bytes, [slice = std::move(slice)] {}));
      }
    }
    if (std::optional<absl::Cord> vector = DecodeVector(message)) {
      RETURN_IF_ERROR(store_.AddVector(stream_, *std::move(vector)));
      return 0;
    }
    v1::StandbyPart part;
    if (!part.ParseFromString(std::string(message)))
      return absl::InvalidArgumentError("a message is not a part of a shard's copy");
    for (const v1::SharedVector& shared : part.shared_vectors()) {
      if (lent_ == nullptr)
        return absl::InvalidArgumentError("a vector in shared memory, which this standby does not read");
      ASSIGN_OR_RETURN(absl::Cord vector, lent_->Borrow(shared));
      RETURN_IF_ERROR(store_.AddVector(stream_, std::move(vector)));
    }
    part.clear_shared_vectors();
    return store_.Add(stream_, std::move(part));
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mu_);
    writing_ = false;
    if (ok) WriteNext();
    FinishWhenIdle();
  }

  void OnDone() override { delete this; }

  void WriteNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (writing_ || status_ || number_ == acknowledged_) return;
    acknowledged_ = number_;
    v1::StandbyAcknowledgement acknowledgement;
    acknowledgement.set_number(number_);
    if (lent_ != nullptr) {
      const std::vector<uint64_t> returned = lent_->TakeReturned();
      acknowledgement.mutable_returned()->Assign(returned.begin(), returned.end());
    }
    writing_ = !call_.StartWrite(Encode(acknowledgement));
  }

  void End(const absl::Status& status) {
    LOG_IF(WARNING, !status.ok()) << "the copy of another server's shard: " << status.message();
    MutexLock lock(&mu_);
    status_ = status;
    FinishWhenIdle();
  }

  void FinishWhenIdle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    if (status_ && !writing_) call_.Finish(ToGrpc(*status_));
  }

  ReplicateCall& call_;
  StandbyStore& store_;
  const uint64_t stream_;
  const std::shared_ptr<LentVectors> lent_;  // null: no memory is shared
  grpc::ByteBuffer incoming_;                // used by the queue's thread

  Mutex mu_;
  uint64_t number_ ABSL_GUARDED_BY(mu_) = 0;  // of the last change that the store has
  uint64_t acknowledged_ ABSL_GUARDED_BY(mu_) = 0;
  bool writing_ ABSL_GUARDED_BY(mu_) = true;  // the first acknowledgement
  std::optional<absl::Status> status_ ABSL_GUARDED_BY(mu_);
};

// Sends the copy to a process that restores the shard, on a thread of its own.
class Restoration final : public StreamOwner {
 public:
  Restoration(RestoreCall* call, StandbyStore* store) : call_(*call), store_(*store) {}

  void Start() {
    thread_ = std::thread([this] {
      store_.Export([this](const v1::StandbyPart& part) { return Send(part); });
      call_.Finish(grpc::Status::OK);
    });
  }

 private:
  // Returns false if the connection has broken.
  bool Send(const v1::StandbyPart& part) {
    {
      MutexLock lock(&mu_);
      sent_ = false;
    }
    call_.StartWrite(part);
    MutexLock lock(&mu_);
    changed_.Wait(&mu_, [this] { return sent_; });
    return ok_;
  }

  void OnWriteDone(bool ok) override {
    MutexLock lock(&mu_);
    sent_ = true;
    ok_ = ok;
    changed_.Notify();
  }

  void OnDone() override {
    thread_.join();
    delete this;
  }

  RestoreCall& call_;
  StandbyStore& store_;
  std::thread thread_;
  Mutex mu_;
  CondVar changed_;
  bool sent_ ABSL_GUARDED_BY(mu_) = false;
  bool ok_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace

// --------------------------------------------------------------------------------------------------- store

StandbyStore::StandbyStore(const v1::Job& job, const ParameterLayout& layout, int shard)
    : layout_(layout), shard_(shard), replica_(job, layout, shard) {}

void StandbyStore::Join(uint64_t run_id, uint64_t lowest_epoch) {
  MutexLock lock(&mu_);
  run_id_ = run_id;
  epoch_ = std::max(epoch_, lowest_epoch);
}

absl::Status StandbyStore::Check(const v1::StandbyHello& hello) const {
  RETURN_IF_ERROR(CheckProtocolVersion("the server", hello.protocol_version(), /*build=*/"", "its standby"));
  const bool fits = hello.fingerprint() == layout_.fingerprint() &&
                    hello.shard() == static_cast<uint32_t>(shard_) &&
                    hello.num_shards() == static_cast<uint32_t>(layout_.num_shards());
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat("this server is the standby of shard ", shard_, " of ",
                                                   layout_.num_shards(), ", not of shard ", hello.shard(),
                                                   " of ", hello.num_shards(), ", or the model is another"));
  }
  if (epoch_ == 0 || run_id_ != hello.run_id()) {
    return absl::UnavailableError(
        absl::StrCat("the standby of shard ", shard_, " has not joined this run of the job yet"));
  }
  if (hello.epoch() >= epoch_) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("another process has taken over shard ", shard_, ": this one ends"));
}

absl::StatusOr<uint64_t> StandbyStore::Admit(const v1::StandbyHello& hello) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(Check(hello));
  epoch_ = hello.epoch();
  replica_.BeginStream();
  return ++stream_;
}

absl::StatusOr<uint64_t> StandbyStore::Add(uint64_t stream, v1::StandbyPart part) {
  MutexLock lock(&mu_);
  if (stream != stream_) return absl::AbortedError("another connection has replaced this one");
  RETURN_IF_ERROR(replica_.Add(std::move(part)));
  return replica_.receives_image() ? 0 : replica_.number();
}

absl::Status StandbyStore::AddVector(uint64_t stream, absl::Cord vector) {
  MutexLock lock(&mu_);
  if (stream != stream_) return absl::AbortedError("another connection has replaced this one");
  replica_.AddVector(std::move(vector));
  return absl::OkStatus();
}

absl::Status StandbyStore::AdmitRestore(const v1::StandbyHello& hello) {
  MutexLock lock(&mu_);
  v1::StandbyHello as = hello;
  // The master, which assigns the epochs, is lost with shard 0.
  if (hello.epoch() == 0 && shard_ == 0) as.set_epoch(epoch_ + 1);
  RETURN_IF_ERROR(Check(as));
  if (!replica_.complete())
    return absl::NotFoundError(absl::StrCat("the standby of shard ", shard_, " has no complete copy of it"));
  epoch_ = as.epoch();
  ++stream_;
  return absl::OkStatus();
}

// The lock is not held while parts are sent, because the thread that completes them may wait for it. The
// copies share the memory of their values.
void StandbyStore::Export(absl::FunctionRef<bool(const v1::StandbyPart&)> send) {
  std::optional<Replica> copy;
  uint64_t epoch = 0;
  {
    MutexLock lock(&mu_);
    copy.emplace(replica_);
    epoch = epoch_;
  }
  copy->Export([&](const v1::StandbyPart& part) {
    if (!part.has_image()) return send(part);
    v1::StandbyPart with_epoch = part;
    with_epoch.mutable_image()->set_epoch(epoch);
    return send(with_epoch);
  });
}

// ------------------------------------------------------------------------------------------------- service

void StandbyService::Front::Accept(CallQueue* queue) {
  const std::string service = std::string(v1::StandbyService::service_full_name()) + ".";
  ReplicateCall::Accept(
      queue, Permission(service + "Replicate"),
      [this](ReplicateCall* call, void* tag) {
        service_.RequestReplicate(&call->context, &call->stream, call->queue.get(), call->queue.get(), tag);
      },
      [this](ReplicateCall* call) { target_->Replicate(call); });
  RestoreCall::Accept(
      queue, Permission(service + "Restore"),
      [this](RestoreCall* call, void* tag) {
        service_.RequestRestore(&call->context, &call->request, &call->stream, call->queue.get(),
                                call->queue.get(), tag);
      },
      [this](RestoreCall* call) { target_->Restore(call); });
}

void StandbyService::Replicate(ReplicateCall* call) {
  v1::StandbyHello hello;
  const auto found = call->context.client_metadata().find(kStandbyHelloKey);
  const bool parsed = found != call->context.client_metadata().end() &&
                      hello.ParseFromArray(found->second.data(), static_cast<int>(found->second.size()));
  if (parsed) {
    if (absl::Status status = CheckLimits(hello); !status.ok()) return call->Finish(ToGrpc(status));
  }
  const absl::StatusOr<uint64_t> stream =
      parsed ? store_.Admit(hello)
             : absl::StatusOr<uint64_t>(absl::InvalidArgumentError(
                   absl::StrCat("no StandbyHello in the metadata '", kStandbyHelloKey, "'")));
  if (!stream.ok()) return call->Finish(ToGrpc(stream.status()));
  auto* const receiver = new Receiver(call, &store_, *stream, MemoryOf(hello, store_.shard_values()));
  call->Start(receiver);
  receiver->Start();
}

void StandbyService::Restore(RestoreCall* call) {
  if (absl::Status status = store_.AdmitRestore(call->request); !status.ok())
    return call->Finish(ToGrpc(status));
  auto* const restoration = new Restoration(call, &store_);
  call->Start(restoration);
  restoration->Start();
}

}  // namespace catchment
