#include "worker/client/server_channel.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/not_ready.h"
#include "common/base/shared_arena.h"
#include "common/base/status_macros.h"
#include "common/net/peer_status.h"
#include "common/net/rpc.h"

namespace catchment {
namespace {

// Returns true for errors that a retry cannot resolve.
bool IsPermanent(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kResourceExhausted:
    case absl::StatusCode::kUnimplemented:
      return true;
    default:
      return false;
  }
}

v1::Block::Operation OnTheWire(Parameters::Operation::Kind kind) {
  switch (kind) {
    case Parameters::Operation::kPull:
      return v1::Block::PULL;
    case Parameters::Operation::kPush:
      return v1::Block::PUSH;
    case Parameters::Operation::kPushPull:
      return v1::Block::PUSH_PULL;
    case Parameters::Operation::kExchange:
      return v1::Block::EXCHANGE;
  }
  LOG(FATAL) << "operation " << kind;
}

}  // namespace

ServerChannel::ServerChannel(Options options, const ParameterLayout* layout,
                             const std::vector<Current>* current, const ConnectionThreads& threads, Mutex* mu,
                             Owner* owner)
    : options_(std::move(options)),
      index_(static_cast<int>(options_.hello.shard())),
      layout_(*layout),
      current_(*current),
      threads_(threads),
      mu_(*mu),
      owner_(*owner),
      channel_(Connect(options_.address, options_.credentials)),
      versions_(layout->num_blocks(index_)),
      pull_(Codec::ForPull(options_.compression)),
      lane_(absl::StrCat("network to server ", index_)),
      encoder_(options_.compression, layout->shard(index_).size()),
      payloads_(options_.arena == nullptr ? std::pmr::get_default_resource() : options_.arena),
      schedule_(layout, index_),
      sent_at_(versions_.size()),
      patience_(options_.give_up_seconds) {
  if (options_.arena != nullptr)
    counters_ =
        new (options_.arena->allocate(sizeof(SharedCounters), alignof(SharedCounters))) SharedCounters;
  if (encoder_.codec().is_plain()) return;
  size_t bytes = 0;
  for (int b = 0; b < layout->num_blocks(index_); ++b) {
    encoded_.push_back({.payload = bytes});
    bytes += encoder_.codec().PayloadBytes(layout->block(index_, b).size());
  }
  payloads_.resize(bytes);
}

std::string ServerChannel::name() const { return absl::StrCat("server ", index_, " at ", options_.address); }

// --------------------------------------------------------------------------------------------- the stream

void ServerChannel::Open() {
  server_memory_.reset();
  answers_read_ = 0;
  if (counters_ != nullptr) SharedCounter(&counters_->answers_read).Set(0);
  {
    MutexLock lock(&mu_);
    closed_ = false;
    sharing_ = kNotShared;
  }
  stream_ = std::make_unique<ShardStream>(channel_, threads_, options_.hello, this);
}

void ServerChannel::Close() {
  if (stream_ == nullptr) return;
  stream_.reset();
  // Everything that the stream has sent names an older generation.
  if (counters_ == nullptr) return;
  SharedCounter generation(&counters_->generation);
  generation.AdvanceTo(generation.value() + 1);
}

absl::StatusOr<double> ServerChannel::CloseBroken(double now) {
  Close();
  // No stream is left that could change these members.
  if (IsPermanent(close_status_)) {
    return WithMessage(close_status_, absl::StrCat(name(), ": ", close_status_.message()));
  }
  if (IsNotReady(close_status_)) patience_.Succeed();
  if (!IsNotReady(close_status_) && patience_.Fail(now)) {
    return OfPeer(absl::UnavailableError(
        absl::StrCat(name(), " was unreachable for ", patience_.seconds(), " s: ", close_status_.message())));
  }
  const double pause = pause_.Next(std::string(close_status_.message()));
  LOG(WARNING) << name() << ": " << close_status_.message() << "; trying again in " << pause << " s";
  patience_.Begin(now, pause);
  return pause;
}

void ServerChannel::OpenAgain(double now) {
  patience_.Begin(now);
  {
    MutexLock lock(&mu_);
    schedule_.SendAgain();
  }
  Open();
  Send();
}

void ServerChannel::OnClosed(const absl::Status& status) {
  MutexLock lock(&mu_);
  closed_ = true;
  close_status_ = status;
  owner_.OnStreamClosed();
}

// ------------------------------------------------------------------------------------------------- blocks

bool ServerChannel::Next(BlockHeader* header, absl::string_view* payload) {
  {
    MutexLock lock(&mu_);
    if (sharing_ == kOffered) {
      sharing_ = kShared;
      *header = {.operation = v1::Block::SHARE, .shared_offset = *options_.arena->OffsetOf(counters_)};
      *payload = {};
      return true;
    }
    const int block = schedule_.Next();
    if (block == BlockSchedule::kNone) return false;
    *header = HeaderOf(block);
    owner_.OnTaken(FragmentOf(block));
  }
  *payload = Encode(header);
  MutexLock lock(&mu_);
  if (TraceRecorder* const trace = Trace()) sent_at_[header->block] = trace->Now();
  owner_.OnSent(payload->size());
  if (sharing_ == kShared) ShareMemory(payload, header);
  return true;
}

BlockHeader ServerChannel::HeaderOf(int block) const {
  const Current& current = CurrentOf(block);
  const Parameters::Operation& operation = current.operation;
  const bool pull = operation.kind == Parameters::Operation::kPull;
  return {.operation = OnTheWire(operation.kind),
          .sequence = pull ? 0 : current.sequence,
          .version = pull ? operation.min_version : versions_[block],
          .block = static_cast<uint32_t>(block),
          .samples = operation.samples,
          .steps = operation.steps};
}

absl::string_view ServerChannel::Encode(BlockHeader* header) {
  const Parameters::Operation& operation = CurrentOf(header->block).operation;
  if (operation.kind == Parameters::Operation::kPull) return {};
  const Range range = layout_.block(index_, static_cast<int>(header->block));
  const absl::Span<const float> values = operation.input.subspan(range.begin, range.size());
  const Codec& codec = encoder_.codec();
  if (codec.is_plain()) return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
  Encoded& last = encoded_[header->block];
  char* const out = payloads_.data() + last.payload;
  if (last.sequence != header->sequence) {
    const TraceScope scope("encode", TracedBlock(*header));
    last.scale = encoder_.Encode(range.begin - this->range().begin, values, header->samples, out);
    last.sequence = header->sequence;
  }
  header->scale = last.scale;
  return {out, codec.PayloadBytes(range.size())};
}

absl::Status ServerChannel::Decode(const BlockHeader& header, const PayloadView& payload) {
  const Parameters::Operation& operation = CurrentOf(header.block).operation;
  if (operation.kind == Parameters::Operation::kPush) return absl::OkStatus();
  if (header.fate == v1::Block::NON_FINITE && payload.size() == 0) return absl::OkStatus();
  const Range range = layout_.block(index_, static_cast<int>(header.block));
  const absl::Span<float> out = operation.output.subspan(range.begin, range.size());
  if (const auto decoded = pull_.Decode(payload, header.scale, out); !decoded.ok()) {
    return absl::InternalError(
        absl::StrCat("server ", index_, ", block ", header.block, ": ", decoded.status().message()));
  }
  versions_[header.block] = header.version;
  return absl::OkStatus();
}

absl::Status ServerChannel::DecodeShared(const BlockHeader& header) {
  const char* const bytes =
      server_memory_ == nullptr ? nullptr : server_memory_->At(header.shared_offset, header.shared_bytes);
  if (bytes == nullptr) {
    return absl::InternalError(absl::StrCat("server ", index_, ", block ", header.block,
                                            ": its payload is outside of the server's shared memory"));
  }
  const absl::string_view piece(bytes, header.shared_bytes);
  const uint64_t version = versions_[header.block];
  RETURN_IF_ERROR(Decode(header, PayloadView({&piece, 1}, 0, piece.size())));
  if (server_memory_->Counter(header.shared_offset - kGenerationBefore) != header.shared_generation) {
    versions_[header.block] = version;
    return absl::UnavailableError("the server has given up an answer");
  }
  SharedCounter(&counters_->answers_read).Set(++answers_read_);
  return absl::OkStatus();
}

void ServerChannel::ShareMemory(absl::string_view* payload, BlockHeader* header) {
  const std::optional<uint64_t> place = options_.arena->OffsetOf(payload->data());
  if (payload->empty() || !place) return;
  header->shared_bytes = payload->size();
  header->shared_offset = *place;
  header->shared_generation = SharedCounter(&counters_->generation).value();
  *payload = {};
}

absl::Status ServerChannel::TakeOffer(const PayloadView& payload) {
  std::string bytes(payload.size(), 0);
  payload.CopyTo(bytes.data());
  v1::SharedMemory offer;
  if (counters_ == nullptr || !offer.ParseFromString(bytes))
    return absl::InternalError(absl::StrCat("server ", index_, " sent a malformed offer of shared memory"));
  absl::StatusOr<std::unique_ptr<MappedArena>> memory =
      MappedArena::Open(offer, kArenaShards * range().size());
  if (!memory.ok()) {
    LOG(INFO) << name() << " shares no memory with this worker: " << memory.status().message();
    return absl::OkStatus();
  }
  server_memory_ = *std::move(memory);
  MutexLock lock(&mu_);
  sharing_ = kOffered;
  return absl::OkStatus();
}

absl::Status ServerChannel::CheckAsked(const BlockHeader& header) const {
  if (schedule_.OnItsWay(header.block)) {
    const Current& current = CurrentOf(header.block);
    const Parameters::Operation::Kind kind = current.operation.kind;
    const uint64_t sequence = kind == Parameters::Operation::kPull ? 0 : current.sequence;
    if (header.operation == OnTheWire(kind) && header.sequence == sequence) return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("server ", index_, " sent an answer without a request"));
}

void ServerChannel::TakeCall(const BlockHeader& call) {
  MutexLock lock(&mu_);
  if (call.block < versions_.size()) calls_[call.block] = call.version;
}

bool ServerChannel::IsCalled(uint32_t fragment) const {
  return std::any_of(calls_.begin(), calls_.end(), [&](const auto& call) {
    return FragmentOf(call.first) == fragment && versions_[call.first] == call.second;
  });
}

absl::Status ServerChannel::OnAnswer(const BlockHeader& header, const PayloadView& payload) {
  if (header.operation == v1::Block::CALL) {
    TakeCall(header);
    return absl::OkStatus();
  }
  if (header.operation == v1::Block::SHARE) return TakeOffer(payload);
  {
    MutexLock lock(&mu_);
    RETURN_IF_ERROR(CheckAsked(header));
    highest_version_ = std::max(highest_version_, header.version);
  }
  RETURN_IF_ERROR(header.shared_bytes == 0 ? Decode(header, payload) : DecodeShared(header));
  MutexLock lock(&mu_);
  const int block = static_cast<int>(header.block);
  if (TraceRecorder* const trace = Trace(); trace != nullptr && sent_at_[block] > 0)
    trace->RecordOn(lane_, "network", sent_at_[block], trace->Now(), TracedBlock(header));
  schedule_.Answered(block);
  patience_.Succeed();
  pause_.Reset();
  owner_.OnAnswered(FragmentOf(header.block), layout_.block(index_, block),
                    {header.staleness, header.fate == v1::Block::LATE, header.fate == v1::Block::NON_FINITE},
                    payload.size() + header.shared_bytes);
  return absl::OkStatus();
}

}  // namespace catchment
