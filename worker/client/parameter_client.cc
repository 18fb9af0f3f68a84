#include "worker/client/parameter_client.h"

#include <glog/logging.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/trace/recorder.h"
#include "common/wire/protocol.h"

namespace catchment {
namespace {

bool Overlap(Range a, Range b) { return a.begin < b.end && b.begin < a.end; }

}  // namespace

ParameterClient::ParameterClient(Options options, const ParameterLayout* layout, const Clock* clock)
    : options_(std::move(options)),
      layout_(*layout),
      clock_(*clock),
      connections_(std::make_unique<grpc::CompletionQueue>(), "wire") {
  CHECK_EQ(static_cast<int>(options_.servers.size()), layout_.num_shards());
  for (int s = 0; s < layout_.num_shards(); ++s) {
    servers_.push_back(std::make_unique<ServerChannel>(
        ServerChannel::Options{options_.servers[s], options_.credentials, HelloTo(s), options_.compression},
        &layout_, &current_, connections_.queue(), &mu_, static_cast<ServerChannel::Owner*>(this)));
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
  return hello;
}

void ParameterClient::ListState(WorkerState* state) {
  for (const std::unique_ptr<ServerChannel>& server : servers_) {
    if (server->residual().empty()) continue;
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
    CHECK_EQ(unanswered_, 0) << "an operation started before the last one ended";
    current_.operation = operation;
    if (has_input) ++current_.sequence;
    missing_ = static_cast<int64_t>(operation.input.size());
    outcome_ = Outcome();
    for (const auto& server : servers_) {
      server->schedule().Start(has_input);
      unanswered_ += server->schedule().unanswered();
    }
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
    missing_ -= range.size();
    all_ready = missing_ == 0;
    if (all_ready) ready_at_ = clock_.Now();
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
  return current_.operation.kind == Operation::kPush ? absl::OkStatus() : WaitFor(range);
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
    for (const auto& server : servers_) unanswered += server->schedule().unanswered(range);
    if (unanswered == 0 && !cancelled_) return absl::OkStatus();
    waiting_ = true;
    moved_at_ = start = clock_.Now();
  }
  const absl::Status status = WaitForAnswers(range);
  // Blocks that are still on their way must not outlive the caller's memory.
  if (!status.ok()) GiveUp();
  const double end = clock_.Now();
  RecordSpan("wait", start, end);
  MutexLock lock(&mu_);
  waiting_ = false;
  CountWait(start, end);
  return status;
}

absl::Status ParameterClient::WaitForAnswers(Range range) {
  while (true) {
    ServerChannel* broken = nullptr;
    {
      MutexLock lock(&mu_);
      awaited_ = range;
      awaited_blocks_ = 0;
      for (const auto& server : servers_) awaited_blocks_ += server->schedule().unanswered(range);
      changed_.Wait(&mu_, [&] {
        broken = FindBroken();
        return cancelled_ || awaited_blocks_ == 0 || broken != nullptr;
      });
      awaited_ = Range();
      if (cancelled_) return absl::CancelledError("the worker was asked to stop");
      if (awaited_blocks_ == 0) return absl::OkStatus();
    }
    if (absl::Status status = Reopen(broken); !status.ok()) return status;
  }
}

ServerChannel* ParameterClient::FindBroken() {
  for (const auto& server : servers_) {
    if (server->IsBroken()) return server.get();
  }
  return nullptr;
}

absl::Status ParameterClient::Reopen(ServerChannel* server) {
  const absl::StatusOr<double> pause = server->CloseBroken(clock_.Now(), options_.connect_timeout_seconds);
  if (!pause.ok()) return pause.status();
  {
    MutexLock lock(&mu_);
    changed_.WaitFor(&mu_, *pause, [this] { return cancelled_; });
  }
  server->OpenAgain();
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
  unanswered_ = 0;
}

void ParameterClient::Totals::FillProgress(v1::Progress* progress) const {
  progress->set_push_seconds(push_seconds);
  progress->set_pull_seconds(pull_seconds);
  progress->set_bytes_pushed(bytes_pushed);
  progress->set_bytes_pulled(bytes_pulled);
  progress->clear_round_trip_us();
  progress->clear_round_trip_counts();
  round_trips.ForEach([progress](uint64_t microseconds, uint64_t count) {
    progress->add_round_trip_us(microseconds);
    progress->add_round_trip_counts(count);
  });
}

ParameterClient::Totals ParameterClient::totals() const {
  MutexLock lock(&mu_);
  return totals_;
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

bool ParameterClient::AllSent() const {
  return std::all_of(servers_.begin(), servers_.end(),
                     [](const auto& server) { return server->schedule().unsent() == 0; });
}

void ParameterClient::CountWait(double from, double to) {
  double left = std::clamp(left_at_, from, to);
  if (current_.operation.kind == Operation::kPull) left = from;
  if (current_.operation.kind == Operation::kPush || !AllSent()) left = to;
  totals_.push_seconds += left - from;
  totals_.pull_seconds += to - left;
}

void ParameterClient::OnTaken() {
  if (AllSent()) left_at_ = clock_.Now();
}

void ParameterClient::OnSent(size_t bytes) {
  totals_.bytes_pushed += bytes;
  moved_at_ = clock_.Now();
}

void ParameterClient::OnAnswered(Range block, const Outcome& outcome, size_t bytes) {
  totals_.bytes_pulled += bytes;
  moved_at_ = clock_.Now();
  outcome_.staleness = std::max(outcome_.staleness, outcome.staleness);
  outcome_.late |= outcome.late;
  outcome_.non_finite |= outcome.non_finite;
  --unanswered_;
  const Operation::Kind kind = current_.operation.kind;
  const bool round_trip = kind == Operation::kPushPull || kind == Operation::kExchange;
  if (unanswered_ == 0 && round_trip) totals_.round_trips.Add(1e6 * (clock_.Now() - ready_at_));
  if (Overlap(block, awaited_) && --awaited_blocks_ == 0) changed_.Notify();
}

}  // namespace catchment
