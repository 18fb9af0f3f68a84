#include "worker/client/parameter_client.h"

#include <glog/logging.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/rpc.h"
#include "common/wire/protocol.h"

namespace catchment {
namespace {

constexpr double kFirstPause = 0.1;
constexpr double kLongestPause = 5;

// What trying again cannot mend.
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

}  // namespace

struct ParameterClient::ShardState {
  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<ShardStream> stream;
  std::vector<uint64_t> versions;  // of each block, as last pulled
  std::vector<bool> answered;      // of the operation's blocks; guarded by mu_
  bool closed = true;              // guarded by mu_
  absl::Status close_status;       // guarded by mu_
  // When the stream broke for the first time since an answer came over it; 0: it has not.
  double broken_since = 0;
  double pause = kFirstPause;
};

ParameterClient::ParameterClient(Options options, const ParameterLayout* layout, const Clock* clock)
    : options_(std::move(options)), layout_(*layout), clock_(*clock) {
  CHECK_EQ(static_cast<int>(options_.servers.size()), layout_.num_shards());
  for (int s = 0; s < layout_.num_shards(); ++s) {
    auto shard = std::make_unique<ShardState>();
    shard->channel = Connect(options_.servers[s], options_.credentials);
    shard->versions.resize(layout_.num_blocks(s));
    shard->answered.resize(layout_.num_blocks(s), true);
    shards_.push_back(std::move(shard));
  }
}

ParameterClient::~ParameterClient() { CloseAll(); }

absl::Status ParameterClient::Pull(uint64_t min_version, absl::Span<float> weights) {
  return Run({v1::Block::PULL, 0, min_version, 0, nullptr, weights.data()}).status();
}

absl::StatusOr<Parameters::Outcome> ParameterClient::Push(absl::Span<const float> gradient, uint32_t samples) {
  return Run({v1::Block::PUSH, next_sequence_++, 0, samples, gradient.data(), nullptr});
}

absl::StatusOr<Parameters::Outcome> ParameterClient::PushPull(absl::Span<const float> gradient,
                                                              uint32_t samples, absl::Span<float> weights) {
  return Run({v1::Block::PUSH_PULL, next_sequence_++, 0, samples, gradient.data(), weights.data()});
}

absl::StatusOr<Parameters::Outcome> ParameterClient::Exchange(absl::Span<const float> x, uint32_t samples,
                                                              absl::Span<float> difference) {
  return Run({v1::Block::EXCHANGE, next_sequence_++, 0, samples, x.data(), difference.data()});
}

absl::StatusOr<Parameters::Outcome> ParameterClient::Run(Operation operation) {
  const double start = clock_.Now();
  {
    MutexLock lock(&mu_);
    operation_ = operation;
    outcome_ = Outcome();
    unanswered_ = 0;
    for (const auto& shard : shards_) {
      std::fill(shard->answered.begin(), shard->answered.end(), false);
      unanswered_ += static_cast<int>(shard->answered.size());
    }
  }
  for (int s = 0; s < layout_.num_shards(); ++s) {
    if (shards_[s]->stream == nullptr) Open(s);
    SendUnanswered(s);
  }
  const absl::Status status = WaitForAnswers();
  // Blocks that are still on their way must not outlive the caller's memory.
  if (!status.ok()) CloseAll();
  MutexLock lock(&mu_);
  const double seconds = clock_.Now() - start;
  const uint64_t bytes = layout_.size() * sizeof(float);
  (operation.kind == v1::Block::PULL ? totals_.pull_seconds : totals_.push_seconds) += seconds;
  if (operation.in != nullptr) totals_.bytes_pushed += bytes;
  if (operation.out != nullptr) totals_.bytes_pulled += bytes;
  if (!status.ok()) return status;
  return outcome_;
}

absl::Status ParameterClient::WaitForAnswers() {
  while (true) {
    std::vector<int> closed;
    {
      MutexLock lock(&mu_);
      const auto find_closed = [&] {
        closed.clear();
        for (int s = 0; s < layout_.num_shards(); ++s) {
          const std::vector<bool>& answered = shards_[s]->answered;
          // A stream that closes after its last answer is opened again at the next operation's first error.
          if (shards_[s]->closed && std::find(answered.begin(), answered.end(), false) != answered.end()) {
            closed.push_back(s);
          }
        }
        return !closed.empty();
      };
      changed_.Wait(&mu_, [&] { return cancelled_ || unanswered_ == 0 || find_closed(); });
      if (cancelled_) return absl::CancelledError("the worker was told to stop");
      if (unanswered_ == 0) return absl::OkStatus();
    }
    for (int s : closed) {
      if (absl::Status status = Reopen(s); !status.ok()) return status;
    }
  }
}

absl::Status ParameterClient::Reopen(int s) {
  ShardState& shard = *shards_[s];
  absl::Status status;
  {
    MutexLock lock(&mu_);
    status = shard.close_status;
  }
  shard.stream.reset();
  const std::string who = absl::StrCat("server ", s, " at ", options_.servers[s]);
  if (IsPermanent(status)) return absl::Status(status.code(), absl::StrCat(who, ": ", status.message()));
  const double now = clock_.Now();
  if (shard.broken_since == 0) shard.broken_since = now;
  if (now - shard.broken_since >= options_.connect_timeout_seconds) {
    return absl::UnavailableError(absl::StrCat(who, " was not to be reached for ",
                                               options_.connect_timeout_seconds, " s: ", status.message()));
  }
  LOG(WARNING) << who << ": " << status.message() << "; trying again in " << shard.pause << " s";
  {
    MutexLock lock(&mu_);
    changed_.WaitFor(&mu_, shard.pause, [this] { return cancelled_; });
  }
  shard.pause = std::min(kLongestPause, 2 * shard.pause);
  Open(s);
  SendUnanswered(s);
  return absl::OkStatus();
}

void ParameterClient::Open(int s) {
  v1::Hello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_job(options_.job);
  hello.set_fingerprint(layout_.fingerprint());
  hello.set_shard(s);
  hello.set_num_shards(layout_.num_shards());
  hello.set_worker(options_.worker);
  hello.set_incarnation(options_.incarnation);
  {
    MutexLock lock(&mu_);
    shards_[s]->closed = false;
  }
  shards_[s]->stream = std::make_unique<ShardStream>(
      shards_[s]->channel, hello,
      [this, s](const BlockHeader& header, const PayloadView& payload) { return OnAnswer(s, header, payload); },
      [this, s](const absl::Status& status) { OnClosed(s, status); });
}

void ParameterClient::SendUnanswered(int s) {
  const ShardState& shard = *shards_[s];
  std::vector<bool> answered;
  {
    MutexLock lock(&mu_);
    answered = shard.answered;
  }
  for (int b = 0; b < layout_.num_blocks(s); ++b) {
    if (answered[b]) continue;
    const Range range = layout_.block(s, b);
    const bool pull = operation_.kind == v1::Block::PULL;
    BlockHeader header{operation_.kind, operation_.sequence, operation_.min_version, static_cast<uint32_t>(b),
                       operation_.samples};
    if (!pull) header.version = shard.versions[b];
    absl::string_view payload;
    if (!pull) {
      payload = {reinterpret_cast<const char*>(operation_.in + range.begin), range.size() * sizeof(float)};
    }
    shard.stream->Send(header, payload);
  }
}

absl::Status ParameterClient::OnAnswer(int s, const BlockHeader& header, const PayloadView& payload) {
  ShardState& shard = *shards_[s];
  {
    MutexLock lock(&mu_);
    if (header.block >= shard.answered.size() || header.operation != operation_.kind ||
        header.sequence != operation_.sequence || shard.answered[header.block]) {
      return absl::InternalError(absl::StrCat("server ", s, " answered what it was not asked"));
    }
  }
  const Range range = layout_.block(s, header.block);
  const bool refused = header.fate == v1::Block::NON_FINITE;
  if (operation_.out != nullptr && !(refused && payload.size() == 0)) {
    if (payload.size() != range.size() * sizeof(float)) {
      return absl::InternalError(absl::StrCat("server ", s, " answered with ", payload.size(), " bytes for block ",
                                              header.block, " of ", range.size(), " values"));
    }
    payload.CopyTo(operation_.out + range.begin);
    shard.versions[header.block] = header.version;
  }
  MutexLock lock(&mu_);
  shard.answered[header.block] = true;
  shard.broken_since = 0;
  shard.pause = kFirstPause;
  outcome_.staleness = std::max(outcome_.staleness, header.staleness);
  outcome_.late |= header.fate == v1::Block::LATE;
  outcome_.non_finite |= refused;
  if (--unanswered_ == 0) changed_.Notify();
  return absl::OkStatus();
}

void ParameterClient::OnClosed(int s, const absl::Status& status) {
  MutexLock lock(&mu_);
  shards_[s]->closed = true;
  shards_[s]->close_status = status;
  changed_.Notify();
}

void ParameterClient::Cancel() {
  MutexLock lock(&mu_);
  cancelled_ = true;
  changed_.Notify();
}

void ParameterClient::CloseAll() {
  for (const auto& shard : shards_) shard->stream.reset();
}

ParameterClient::Totals ParameterClient::totals() const {
  MutexLock lock(&mu_);
  return totals_;
}

}  // namespace catchment
