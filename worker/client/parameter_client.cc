#include "worker/client/parameter_client.h"

#include <glog/logging.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/codec/codec.h"
#include "common/codec/push_encoder.h"
#include "common/growing_pause.h"
#include "common/rpc.h"
#include "common/wire/protocol.h"
#include "worker/client/block_schedule.h"
#include "worker/client/shard_stream.h"

namespace catchment {
namespace {

// Returns true for errors that a retry cannot resolve.
bool IsPermanent(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kInvalidArgument:
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

bool Overlap(Range a, Range b) { return a.begin < b.end && b.begin < a.end; }

}  // namespace

// One server, as the client sees it.
class ParameterClient::Shard final : public ShardStream::Owner {
 public:
  Shard(ParameterClient* client, int index)
      : client_(*client),
        index_(index),
        channel_(Connect(client->options_.servers[index], client->options_.credentials)),
        versions_(client->layout_.num_blocks(index)),
        pull_(Codec::ForPull(client->options_.compression)),
        encoder_(client->options_.compression, client->layout_.shard(index).size()),
        schedule(&client->layout_, index) {
    if (encoder_.codec().is_plain()) return;
    size_t bytes = 0;
    for (int b = 0; b < client->layout_.num_blocks(index); ++b) {
      encoded_.push_back({.payload = bytes});
      bytes += encoder_.codec().PayloadBytes(client->layout_.block(index, b).size());
    }
    payloads_.reset(new char[bytes]);
  }

  void Open();
  void Close() { stream_.reset(); }
  bool IsOpen() const { return stream_ != nullptr; }
  void Wake() { stream_->Wake(); }
  void Send() { stream_->Send(); }
  std::string name() const {
    return absl::StrCat("server ", index_, " at ", client_.options_.servers[index_]);
  }
  Range range() const { return client_.layout_.shard(index_); }
  absl::Span<float> residual() { return encoder_.residual(); }

 private:
  bool Next(BlockHeader* header, absl::string_view* payload) override;
  absl::Status OnAnswer(const BlockHeader& header, const PayloadView& payload) override;
  void OnClosed(const absl::Status& status) override;

  BlockHeader HeaderOf(int block) const;
  absl::string_view Encode(BlockHeader* header);
  absl::Status Decode(const BlockHeader& header, const PayloadView& payload);
  absl::Status CheckAsked(const BlockHeader& header) const;

  ParameterClient& client_;
  const int index_;
  const std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<ShardStream> stream_;
  std::vector<uint64_t> versions_;  // of each block, as last pulled
  const Codec pull_;

  // A server's own: two streams may send at the same time. Used by one thread at a time, whichever writes to
  // the stream. Without a codec there are no payloads.
  struct Encoded {
    size_t payload;  // where its bytes begin in payloads_
    uint64_t sequence = 0;
    float scale = 1;
  };
  PushEncoder encoder_;
  std::vector<Encoded> encoded_;  // of each block, the last
  std::unique_ptr<char[]> payloads_;

 public:
  // Guarded by the client's mu_.
  BlockSchedule schedule;
  bool closed = true;
  absl::Status close_status;
  // Of attempts to open the stream since an answer came over it.
  double broken_since = 0;  // 0: it has not broken
  GrowingPause pause;
};

// ---------------------------------------------------------------------------------------------- the caller's

ParameterClient::ParameterClient(Options options, const ParameterLayout* layout, const Clock* clock)
    : options_(std::move(options)),
      layout_(*layout),
      clock_(*clock),
      connections_(std::make_unique<grpc::CompletionQueue>(), "wire") {
  CHECK_EQ(static_cast<int>(options_.servers.size()), layout_.num_shards());
  for (int s = 0; s < layout_.num_shards(); ++s) shards_.push_back(std::make_unique<Shard>(this, s));
}

ParameterClient::~ParameterClient() { GiveUp(); }

void ParameterClient::ListState(WorkerState* state) {
  for (const std::unique_ptr<Shard>& shard : shards_) {
    if (shard->residual().empty()) continue;
    state->vectors.push_back({"top_k_residual", shard->residual(), shard->range().begin});
  }
}

std::vector<float> ParameterClient::TakeResidual() {
  GiveUp();
  std::vector<float> residual;
  for (const std::unique_ptr<Shard>& shard : shards_) {
    residual.insert(residual.end(), shard->residual().begin(), shard->residual().end());
  }
  return residual;
}

void ParameterClient::SetResidual(absl::Span<const float> residual) {
  for (const std::unique_ptr<Shard>& shard : shards_) {
    const absl::Span<float> own = shard->residual();
    const absl::Span<const float> kept = residual.subspan(shard->range().begin, own.size());
    std::copy(kept.begin(), kept.end(), own.begin());
  }
}

void ParameterClient::Start(const Operation& operation) {
  const bool has_input = operation.kind != Operation::kPull;
  {
    MutexLock lock(&mu_);
    CHECK_EQ(unanswered_, 0) << "an operation was begun before the last one was finished";
    operation_ = operation;
    if (has_input) ++sequence_;
    missing_ = static_cast<int64_t>(operation.input.size());
    outcome_ = Outcome();
    for (const auto& shard : shards_) {
      shard->schedule.Start(has_input);
      unanswered_ += shard->schedule.unanswered();
    }
  }
  for (const auto& shard : shards_) {
    if (!shard->IsOpen()) shard->Open();
    if (!has_input) shard->Send();
  }
}

void ParameterClient::Ready(Range range) {
  bool all_ready;
  {
    MutexLock lock(&mu_);
    missing_ -= range.size();
    all_ready = missing_ == 0;
    if (all_ready) ready_at_ = clock_.Now();
  }
  for (const auto& shard : shards_) {
    if (!Overlap(range, shard->range())) continue;
    bool ready;
    {
      MutexLock lock(&mu_);
      ready = shard->schedule.Ready(range);
    }
    if (!ready) continue;
    // A caller that has nothing left to compute will only wait.
    all_ready ? shard->Send() : shard->Wake();
  }
}

absl::Status ParameterClient::Await(Range range) {
  return operation_.kind == Operation::kPush ? absl::OkStatus() : WaitFor(range);
}

absl::StatusOr<Parameters::Outcome> ParameterClient::Finish() {
  if (absl::Status status = WaitFor({0, layout_.size()}); !status.ok()) return status;
  MutexLock lock(&mu_);
  return outcome_;
}

absl::Status ParameterClient::WaitFor(Range range) {
  double start;
  {
    MutexLock lock(&mu_);
    int unanswered = 0;
    for (const auto& shard : shards_) unanswered += shard->schedule.unanswered(range);
    if (unanswered == 0 && !cancelled_) return absl::OkStatus();
    waiting_ = true;
    moved_at_ = start = clock_.Now();
  }
  const absl::Status status = WaitForAnswers(range);
  // Blocks that are still on their way must not outlive the caller's memory.
  if (!status.ok()) GiveUp();
  MutexLock lock(&mu_);
  waiting_ = false;
  CountWait(start, clock_.Now());
  return status;
}

absl::Status ParameterClient::WaitForAnswers(Range range) {
  while (true) {
    Shard* broken = nullptr;
    {
      MutexLock lock(&mu_);
      awaited_ = range;
      awaited_blocks_ = 0;
      for (const auto& shard : shards_) awaited_blocks_ += shard->schedule.unanswered(range);
      changed_.Wait(&mu_, [&] {
        broken = FindBroken();
        return cancelled_ || awaited_blocks_ == 0 || broken != nullptr;
      });
      awaited_ = Range();
      if (cancelled_) return absl::CancelledError("the worker was told to stop");
      if (awaited_blocks_ == 0) return absl::OkStatus();
    }
    if (absl::Status status = Reopen(broken); !status.ok()) return status;
  }
}

ParameterClient::Shard* ParameterClient::FindBroken() {
  for (const auto& shard : shards_) {
    // A stream that closes after its last answer is opened again in the next operation.
    if (shard->closed && shard->schedule.unanswered() > 0) return shard.get();
  }
  return nullptr;
}

absl::Status ParameterClient::Reopen(Shard* shard) {
  shard->Close();
  const absl::Status& status = shard->close_status;  // no stream is left that could change it
  if (IsPermanent(status)) {
    return absl::Status(status.code(), absl::StrCat(shard->name(), ": ", status.message()));
  }
  const double now = clock_.Now();
  if (shard->broken_since == 0) shard->broken_since = now;
  if (now - shard->broken_since >= options_.connect_timeout_seconds) {
    return absl::UnavailableError(absl::StrCat(shard->name(), " was not to be reached for ",
                                               options_.connect_timeout_seconds, " s: ", status.message()));
  }
  const double pause = shard->pause.Next();
  LOG(WARNING) << shard->name() << ": " << status.message() << "; trying again in " << pause << " s";
  {
    MutexLock lock(&mu_);
    changed_.WaitFor(&mu_, pause, [this] { return cancelled_; });
    shard->schedule.SendAgain();
  }
  shard->Open();
  shard->Send();
  return absl::OkStatus();
}

void ParameterClient::Cancel() {
  MutexLock lock(&mu_);
  cancelled_ = true;
  changed_.Notify();
}

void ParameterClient::GiveUp() {
  for (const auto& shard : shards_) shard->Close();
  MutexLock lock(&mu_);
  unanswered_ = 0;
}

ParameterClient::Totals ParameterClient::totals() const {
  MutexLock lock(&mu_);
  return totals_;
}

double ParameterClient::stalled_seconds() const {
  MutexLock lock(&mu_);
  return waiting_ ? clock_.Now() - moved_at_ : 0;
}

// ---------------------------------------------------------------------------------------------- the streams'

void ParameterClient::Shard::Open() {
  v1::Hello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_job(client_.options_.job);
  hello.set_fingerprint(client_.layout_.fingerprint());
  hello.set_shard(index_);
  hello.set_num_shards(client_.layout_.num_shards());
  hello.set_worker(client_.options_.worker);
  hello.set_incarnation(client_.options_.incarnation);
  hello.set_run_id(client_.options_.run_id);
  {
    MutexLock lock(&client_.mu_);
    closed = false;
  }
  stream_ = std::make_unique<ShardStream>(channel_, client_.connections_.queue(), hello, this);
}

bool ParameterClient::Shard::Next(BlockHeader* header, absl::string_view* payload) {
  {
    MutexLock lock(&client_.mu_);
    const int block = schedule.Next();
    if (block == BlockSchedule::kNone) return false;
    *header = HeaderOf(block);
    if (client_.AllSent()) client_.left_at_ = client_.clock_.Now();
  }
  *payload = Encode(header);
  MutexLock lock(&client_.mu_);
  client_.totals_.bytes_pushed += payload->size();
  client_.moved_at_ = client_.clock_.Now();
  return true;
}

BlockHeader ParameterClient::Shard::HeaderOf(int block) const {
  const Operation& operation = client_.operation_;
  const bool pull = operation.kind == Operation::kPull;
  return {.operation = OnTheWire(operation.kind),
          .sequence = pull ? 0 : client_.sequence_,
          .version = pull ? operation.min_version : versions_[block],
          .block = static_cast<uint32_t>(block),
          .samples = operation.samples,
          .steps = operation.steps};
}

// A block's values as bytes, and their scale: the same whenever it is sent again.
absl::string_view ParameterClient::Shard::Encode(BlockHeader* header) {
  if (client_.operation_.kind == Operation::kPull) return {};
  const Range range = client_.layout_.block(index_, static_cast<int>(header->block));
  const absl::Span<const float> values = client_.operation_.input.subspan(range.begin, range.size());
  const Codec& codec = encoder_.codec();
  if (codec.is_plain()) return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
  Encoded& last = encoded_[header->block];
  char* const out = payloads_.get() + last.payload;
  if (last.sequence != header->sequence) {
    last.scale = encoder_.Encode(range.begin - this->range().begin, values, header->samples, out);
    last.sequence = header->sequence;
  }
  header->scale = last.scale;
  return {out, codec.PayloadBytes(range.size())};
}

// An answer's bytes as values, where the caller wants them.
absl::Status ParameterClient::Shard::Decode(const BlockHeader& header, const PayloadView& payload) {
  if (client_.operation_.kind == Operation::kPush) return absl::OkStatus();
  if (header.fate == v1::Block::NON_FINITE && payload.size() == 0) return absl::OkStatus();
  const Range range = client_.layout_.block(index_, static_cast<int>(header.block));
  const absl::Span<float> out = client_.operation_.output.subspan(range.begin, range.size());
  if (const auto decoded = pull_.Decode(payload, header.scale, out); !decoded.ok()) {
    return absl::InternalError(
        absl::StrCat("server ", index_, ", block ", header.block, ": ", decoded.status().message()));
  }
  versions_[header.block] = header.version;
  return absl::OkStatus();
}

absl::Status ParameterClient::Shard::CheckAsked(const BlockHeader& header) const {
  const Operation& operation = client_.operation_;
  const uint64_t sequence = operation.kind == Operation::kPull ? 0 : client_.sequence_;
  if (schedule.OnItsWay(header.block) && header.operation == OnTheWire(operation.kind) &&
      header.sequence == sequence) {
    return absl::OkStatus();
  }
  return absl::InternalError(absl::StrCat("server ", index_, " answered what it was not asked"));
}

absl::Status ParameterClient::Shard::OnAnswer(const BlockHeader& header, const PayloadView& payload) {
  {
    MutexLock lock(&client_.mu_);
    if (absl::Status status = CheckAsked(header); !status.ok()) return status;
  }
  if (absl::Status status = Decode(header, payload); !status.ok()) return status;
  MutexLock lock(&client_.mu_);
  const int block = static_cast<int>(header.block);
  schedule.Answered(block);
  broken_since = 0;
  pause.Reset();
  client_.totals_.bytes_pulled += payload.size();
  client_.moved_at_ = client_.clock_.Now();
  client_.CountAnswer(client_.layout_.block(index_, block), {header.staleness, header.fate == v1::Block::LATE,
                                                             header.fate == v1::Block::NON_FINITE});
  return absl::OkStatus();
}

void ParameterClient::Shard::OnClosed(const absl::Status& status) {
  MutexLock lock(&client_.mu_);
  closed = true;
  close_status = status;
  client_.changed_.Notify();
}

// ------------------------------------------------------------------------------------------- what is counted

bool ParameterClient::AllSent() const {
  return std::all_of(shards_.begin(), shards_.end(),
                     [](const auto& shard) { return shard->schedule.unsent() == 0; });
}

void ParameterClient::CountWait(double from, double to) {
  double left = std::clamp(left_at_, from, to);
  if (operation_.kind == Operation::kPull) left = from;
  if (operation_.kind == Operation::kPush || !AllSent()) left = to;
  totals_.push_seconds += left - from;
  totals_.pull_seconds += to - left;
}

void ParameterClient::CountAnswer(Range block, const Outcome& outcome) {
  outcome_.staleness = std::max(outcome_.staleness, outcome.staleness);
  outcome_.late |= outcome.late;
  outcome_.non_finite |= outcome.non_finite;
  --unanswered_;
  const bool round_trip = operation_.kind == Operation::kPushPull || operation_.kind == Operation::kExchange;
  if (unanswered_ == 0 && round_trip) totals_.round_trips.Add(1e6 * (clock_.Now() - ready_at_));
  if (Overlap(block, awaited_) && --awaited_blocks_ == 0) changed_.Notify();
}

}  // namespace catchment
