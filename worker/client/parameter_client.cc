#include "worker/client/parameter_client.h"

#include <glog/logging.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/trace/recorder.h"
#include "common/wire/protocol.h"

namespace catchment {
namespace {

bool Overlap(Range a, Range b) { return a.begin < b.end && b.begin < a.end; }

std::shared_ptr<SharedArena> ReserveArena(const ParameterClient::Options& options, int64_t values) {
  if (!options.shared_memory) return nullptr;
  std::shared_ptr<SharedArena> arena =
      SharedArena::Reserve("contributions", kArenaVectors * values, "servers");
  if (arena != nullptr && options.inputs != nullptr) arena->Include(*options.inputs);
  return arena;
}

}  // namespace

ParameterClient::ParameterClient(Options options, const ParameterLayout* layout, const Clock* clock)
    : options_(std::move(options)),
      layout_(*layout),
      clock_(*clock),
      connections_(std::make_unique<grpc::CompletionQueue>(), "wire"),
      current_(layout_.num_fragments()),
      transfers_(layout_.num_fragments()),
      arena_(ReserveArena(options_, layout_.size())) {
  CHECK_EQ(static_cast<int>(options_.servers.size()), layout_.num_shards());
  for (int s = 0; s < layout_.num_shards(); ++s) {
    servers_.push_back(std::make_unique<ServerChannel>(
        ServerChannel::Options{options_.servers[s], options_.credentials, HelloTo(s), options_.compression,
                               options_.connect_timeout_seconds, arena_.get()},
        &layout_, &current_, ConnectionThreads{connections_.queue(), &pipes_}, &mu_,
        static_cast<ServerChannel::Owner*>(this)));
  }
}

ParameterClient::~ParameterClient() { GiveUp(); }

v1::Hello ParameterClient::HelloTo(int shard) const {
  v1::Hello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_job(options_.job);
  hello.set_fingerprint(layout_.fingerprint());
  hello.set_shard(shard);
  hello.set_num_shards(layout_.num_shards());
  hello.set_worker(options_.worker);
  hello.set_incarnation(options_.incarnation);
  hello.set_run_id(options_.run_id);
  hello.set_token(options_.token);
  if (arena_ != nullptr) *hello.mutable_shared_memory() = arena_->Offer();
  return hello;
}

void ParameterClient::ListState(WorkerState* state) {
  for (const std::unique_ptr<ServerChannel>& server : servers_) {
    if (server->residual().empty()) continue;
    // TOP_K was the first codec with a residual, and checkpoints have this name.
    state->vectors.push_back({"top_k_residual", server->residual(), server->range().begin});
  }
}

std::vector<float> ParameterClient::TakeResidual() {
  GiveUp();
  std::vector<float> residual;
  for (const std::unique_ptr<ServerChannel>& server : servers_) {
    residual.insert(residual.end(), server->residual().begin(), server->residual().end());
  }
  return residual;
}

void ParameterClient::SetResidual(absl::Span<const float> residual) {
  for (const std::unique_ptr<ServerChannel>& server : servers_) {
    const absl::Span<float> own = server->residual();
    const absl::Span<const float> kept = residual.subspan(server->range().begin, own.size());
    std::copy(kept.begin(), kept.end(), own.begin());
  }
}

void ParameterClient::Start(const Operation& operation) {
  const bool has_input = operation.kind != Operation::kPull;
  {
    MutexLock lock(&mu_);
    Transfer& transfer = transfers_[operation.fragment];
    CHECK_EQ(transfer.unanswered, 0) << "an operation started before the last one ended";
    ServerChannel::Current& current = current_[operation.fragment];
    current.operation = operation;
    if (has_input) ++current.sequence;
    transfer = Transfer();
    if (has_input) {
      for (const Range& range : layout_.fragment(operation.fragment)) transfer.missing += range.size();
    }
    started_ = operation.fragment;
    for (const auto& server : servers_)
      transfer.unanswered += server->schedule().Start(has_input, operation.fragment);
  }
  for (const auto& server : servers_) {
    if (!server->IsOpen()) server->Open();
    if (!has_input) server->Send();
  }
}

void ParameterClient::Ready(Range range) {
  bool all_ready;
  {
    MutexLock lock(&mu_);
    Transfer& transfer = transfers_[started_];
    transfer.missing -= range.size();
    all_ready = transfer.missing == 0;
    if (all_ready) transfer.ready_at = clock_.Now();
  }
  for (const auto& server : servers_) {
    if (!Overlap(range, server->range())) continue;
    bool ready;
    {
      MutexLock lock(&mu_);
      ready = server->schedule().Ready(range);
    }
    if (!ready) continue;
    // A caller that has nothing left to compute will only wait.
    all_ready ? server->Send() : server->Wake();
  }
}

absl::Status ParameterClient::Await(Range range) {
  return current_[0].operation.kind == Operation::kPush ? absl::OkStatus() : WaitFor(0, range);
}

absl::StatusOr<Parameters::Outcome> ParameterClient::Finish(int fragment) {
  RETURN_IF_ERROR(WaitFor(fragment, {0, layout_.size()}));
  MutexLock lock(&mu_);
  return transfers_[fragment].outcome;
}

bool ParameterClient::Called(int fragment) {
  MutexLock lock(&mu_);
  return std::any_of(servers_.begin(), servers_.end(),
                     [fragment](const auto& server) { return server->IsCalled(fragment); });
}

bool ParameterClient::IsDone(int fragment) const {
  MutexLock lock(&mu_);
  return transfers_[fragment].unanswered == 0 || cancelled_;
}

int ParameterClient::CountUnanswered(int fragment, Range range) const {
  const bool all = range == Range{0, layout_.size()};
  int unanswered = 0;
  for (const auto& server : servers_)
    unanswered += all ? server->schedule().unanswered(fragment) : server->schedule().unanswered(range);
  return unanswered;
}

absl::Status ParameterClient::WaitFor(int fragment, Range range) {
  double start;
  {
    MutexLock lock(&mu_);
    if (CountUnanswered(fragment, range) == 0 && !cancelled_) return absl::OkStatus();
    waiting_ = true;
    moved_at_ = start = clock_.Now();
  }
  const absl::Status status = WaitForAnswers(fragment, range);
  // Blocks that are still on their way must not outlive the caller's memory.
  if (!status.ok()) GiveUp();
  const double end = clock_.Now();
  RecordSpan("wait", start, end);
  MutexLock lock(&mu_);
  waiting_ = false;
  CountWait(fragment, start, end);
  return status;
}

absl::Status ParameterClient::WaitForAnswers(int fragment, Range range) {
  while (true) {
    ServerChannel* broken = nullptr;
    {
      MutexLock lock(&mu_);
      awaited_ = {fragment, range, CountUnanswered(fragment, range)};
      changed_.Wait(&mu_, [&] {
        broken = FindBroken();
        return cancelled_ || awaited_.blocks == 0 || broken != nullptr;
      });
      awaited_.range = Range();
      if (cancelled_) return absl::CancelledError("the worker was asked to stop");
      if (awaited_.blocks == 0) return absl::OkStatus();
    }
    RETURN_IF_ERROR(Reopen(broken));
  }
}

ServerChannel* ParameterClient::FindBroken() {
  for (const auto& server : servers_) {
    if (server->IsBroken()) return server.get();
  }
  return nullptr;
}

absl::Status ParameterClient::Reopen(ServerChannel* server) {
  ASSIGN_OR_RETURN(const double pause, server->CloseBroken(clock_.Now()));
  {
    MutexLock lock(&mu_);
    changed_.WaitFor(&mu_, pause, [this] { return cancelled_; });
  }
  server->OpenAgain(clock_.Now());
  return absl::OkStatus();
}

void ParameterClient::Cancel() {
  MutexLock lock(&mu_);
  cancelled_ = true;
  changed_.Notify();
}

void ParameterClient::GiveUp() {
  for (const auto& server : servers_) server->Close();
  MutexLock lock(&mu_);
  for (Transfer& transfer : transfers_) transfer.unanswered = 0;
}

ParameterClient::Totals ParameterClient::totals() const {
  MutexLock lock(&mu_);
  return totals_;
}

uint32_t ParameterClient::shared_memory_servers() const {
  MutexLock lock(&mu_);
  return std::count_if(servers_.begin(), servers_.end(),
                       [](const auto& server) { return server->SharesMemory(); });
}

uint64_t ParameterClient::highest_version() const {
  MutexLock lock(&mu_);
  uint64_t highest = 0;
  for (const auto& server : servers_) highest = std::max(highest, server->highest_version());
  return highest;
}

double ParameterClient::stalled_seconds() const {
  MutexLock lock(&mu_);
  return waiting_ ? clock_.Now() - moved_at_ : 0;
}

// --------------------------------------------------------------------------------------------- statistics

bool ParameterClient::AllSent(uint32_t fragment) const {
  return std::all_of(servers_.begin(), servers_.end(),
                     [fragment](const auto& server) { return server->schedule().unsent(fragment) == 0; });
}

void ParameterClient::CountWait(int fragment, double from, double to) {
  const Operation::Kind kind = current_[fragment].operation.kind;
  double left = std::clamp(transfers_[fragment].left_at, from, to);
  if (kind == Operation::kPull) left = from;
  if (kind == Operation::kPush || !AllSent(fragment)) left = to;
  totals_.push_seconds += left - from;
  totals_.pull_seconds += to - left;
}

void ParameterClient::OnTaken(uint32_t fragment) {
  if (AllSent(fragment)) transfers_[fragment].left_at = clock_.Now();
}

void ParameterClient::OnSent(size_t bytes) {
  totals_.bytes_pushed += bytes;
  moved_at_ = clock_.Now();
}

void ParameterClient::OnAnswered(uint32_t fragment, Range block, const Outcome& outcome, size_t bytes) {
  totals_.bytes_pulled += bytes;
  moved_at_ = clock_.Now();
  Transfer& transfer = transfers_[fragment];
  transfer.outcome.staleness = std::max(transfer.outcome.staleness, outcome.staleness);
  transfer.outcome.late |= outcome.late;
  transfer.outcome.non_finite |= outcome.non_finite;
  --transfer.unanswered;
  const Operation::Kind kind = current_[fragment].operation.kind;
  const bool round_trip = kind == Operation::kPushPull || kind == Operation::kExchange;
  if (transfer.unanswered == 0 && round_trip)
    totals_.round_trips.Add(1e6 * (clock_.Now() - transfer.ready_at));
  const bool awaited = static_cast<int>(fragment) == awaited_.fragment && Overlap(block, awaited_.range);
  if (awaited && --awaited_.blocks == 0) changed_.Notify();
}

}  // namespace catchment
