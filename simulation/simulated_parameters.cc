#include "simulation/simulated_parameters.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"

namespace catchment {
namespace {

bool Overlap(Range a, Range b) { return a.begin < b.end && b.begin < a.end; }

}  // namespace

SimulatedParameters::SimulatedParameters(const Options& options, const ParameterLayout* layout,
                                         SimulatedServers* servers, SimulatedNetwork* network, Port* port,
                                         SimulatedProcess* caller, EventQueue* events)
    : options_(options),
      layout_(*layout),
      servers_(*servers),
      network_(*network),
      port_(*port),
      caller_(*caller),
      events_(*events),
      pull_(Codec::ForPull(options.compression)),
      transfers_(layout->num_fragments()) {
  for (int s = 0; s < layout_.num_shards(); ++s) {
    auto channel = std::make_shared<Channel>(layout_.num_blocks(s));
    channel->owner = this;
    channel->shard = s;
    channel->schedule = std::make_unique<BlockSchedule>(&layout_, s);
    channel->encoder = std::make_unique<PushEncoder>(options_.compression, layout_.shard(s).size());
    channels_.push_back(channel);
  }
}

SimulatedParameters::~SimulatedParameters() {
  for (const std::shared_ptr<Channel>& channel : channels_) {
    channel->owner = nullptr;
    if (!connected_) continue;
    const auto close = [shard = servers_[channel->shard]->shard(), worker = options_.worker,
                        incarnation = options_.incarnation] {
      shard->Disconnected(worker, incarnation, /*by_peer=*/true);
    };
    open_for_ > 0 ? events_.After(open_for_, close) : close();
  }
}

void SimulatedParameters::Connect() {
  connected_ = true;
  for (const std::shared_ptr<Channel>& channel : channels_) {
    std::vector<Answer> calls =
        servers_[channel->shard]->shard()->Connected(options_.worker, options_.incarnation, channel);
    catchment::Deliver(&calls);
  }
}

void SimulatedParameters::Start(const Operation& operation) {
  if (!connected_) Connect();
  Transfer& transfer = transfers_[operation.fragment];
  CHECK_EQ(transfer.unanswered, 0) << "an operation was begun before the last one was finished";
  transfer = {.operation = operation, .sequence = transfer.sequence};
  transfer.sequence += transfer.has_input();
  started_ = operation.fragment;
  if (transfer.has_input()) {
    for (const Range& range : layout_.fragment(operation.fragment)) transfer.missing += range.size();
  }
  for (const std::shared_ptr<Channel>& channel : channels_)
    transfer.unanswered += channel->schedule->Start(transfer.has_input(), operation.fragment);
  if (transfer.has_input()) return;
  for (const std::shared_ptr<Channel>& channel : channels_) SendNext(channel);
}

void SimulatedParameters::Ready(Range range) {
  Transfer& transfer = transfers_[started_];
  transfer.missing -= range.size();
  if (transfer.missing == 0) transfer.ready_at = events_.Now();
  for (const std::shared_ptr<Channel>& channel : channels_) {
    if (!Overlap(range, layout_.shard(channel->shard))) continue;
    if (channel->schedule->Ready(range)) SendNext(channel);
  }
}

void SimulatedParameters::SendNext(const std::shared_ptr<Channel>& channel) {
  if (channel->sending || cancelled_) return;
  const int block = channel->schedule->Next();
  if (block == BlockSchedule::kNone) return;
  const uint32_t fragment = FragmentOf(channel->shard, block);
  Transfer& transfer = transfers_[fragment];
  if (AllSent(fragment)) transfer.left_at = events_.Now();
  size_t payload = 0;
  absl::StatusOr<Request> request = MakeBlock(channel, block, &payload);
  if (!request.ok()) {
    status_.Update(request.status());
    return;
  }
  channel->sending = true;
  SimulatedServer* const server = servers_[channel->shard].get();
  const double bytes = WireBytes(payload);
  options_.goodput->AddPushed(payload);
  const bool answered = transfer.operation.kind != Operation::kPush;
  const int64_t values = layout_.block(channel->shard, block).size();
  const double handled = bytes + WireBytes(answered ? pull_.PayloadBytes(values) : 0);
  network_.Send(
      bytes, &port_, server->port(),
      [channel] {
        channel->sending = false;
        if (channel->owner != nullptr) channel->owner->SendNext(channel);
      },
      [server, handled, request = *std::move(request)]() mutable {
        server->Receive(std::move(request), handled);
      });
}

absl::StatusOr<Request> SimulatedParameters::MakeBlock(const std::shared_ptr<Channel>& channel, int block,
                                                       size_t* bytes) {
  static constexpr v1::Block::Operation kKinds[] = {v1::Block::PULL, v1::Block::PUSH, v1::Block::PUSH_PULL,
                                                    v1::Block::EXCHANGE};
  const Transfer& transfer = transfers_[FragmentOf(channel->shard, block)];
  const Operation& operation = transfer.operation;
  const bool has_input = transfer.has_input();
  BlockHeader header{.operation = kKinds[operation.kind],
                     .sequence = has_input ? transfer.sequence : 0,
                     .version = has_input ? channel->versions[block] : operation.min_version,
                     .block = static_cast<uint32_t>(block),
                     .samples = operation.samples,
                     .steps = operation.steps};
  Request request = MakeRequest(options_.worker, options_.incarnation, header, channel);
  if (!has_input) return request;
  const Range range = layout_.block(channel->shard, block);
  const absl::Span<const float> values = operation.input.subspan(range.begin, range.size());
  const Codec& codec = channel->encoder->codec();
  absl::string_view payload(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  if (!codec.is_plain()) {
    encoded_.resize(codec.PayloadBytes(range.size()));
    header.scale = channel->encoder->Encode(range.begin - layout_.shard(channel->shard).begin, values,
                                            header.samples, encoded_.data());
    payload = {encoded_.data(), encoded_.size()};
  }
  channel->seconds.Send(block, computed_);
  totals_.bytes_pushed += payload.size();
  *bytes = payload.size();
  RETURN_IF_ERROR(servers_[channel->shard]->shard()->ReadPayload(
      PayloadView({&payload, 1}, 0, payload.size()), header.scale, &request.contribution));
  return request;
}

void SimulatedParameters::Channel::Deliver(Answer answer) {
  if (owner == nullptr) return;
  if (answer.header.operation == v1::Block::CALL) {
    owner->network_.SendSmall([self = std::static_pointer_cast<Channel>(answer.sink), call = answer.header] {
      self->calls[call.block] = call.version;
    });
    return;
  }
  const size_t bytes = answer.payload == nullptr ? 0 : static_cast<size_t>(answer.payload->bytes());
  const auto self = std::static_pointer_cast<Channel>(answer.sink);
  SimulatedServer* const server = owner->servers_[shard].get();
  EventQueue::Action left;
  if (server->shard()->has_quorum())
    left = [server, made_at = answer.made_at] { server->CountAnswer(made_at); };
  owner->network_.Send(owner->WireBytes(bytes), server->port(), &owner->port_, std::move(left),
                       [self, answer, bytes] {
                         if (self->owner != nullptr) self->owner->Take(self.get(), answer, bytes);
                       });
}

void SimulatedParameters::Take(Channel* channel, const Answer& answer, size_t bytes) {
  const int block = static_cast<int>(answer.header.block);
  const Range range = layout_.block(channel->shard, block);
  const uint32_t fragment = FragmentOf(channel->shard, block);
  Transfer& transfer = transfers_[fragment];
  const Operation& operation = transfer.operation;
  const bool has_output = operation.kind != Operation::kPush && answer.payload != nullptr;
  if (has_output && !cancelled_) {
    const absl::string_view text(reinterpret_cast<const char*>(answer.payload->data()), bytes);
    const auto decoded = pull_.Decode(PayloadView({&text, 1}, 0, bytes), answer.header.scale,
                                      operation.output.subspan(range.begin, range.size()));
    status_.Update(decoded.status());
    channel->versions[block] = answer.header.version;
  }
  const v1::Block::Fate fate = answer.header.fate;
  if (transfer.has_input() && fate != v1::Block::LATE && fate != v1::Block::NON_FINITE) {
    options_.goodput->AddMerged(channel->seconds.Sent(block) * static_cast<double>(range.size()) /
                                static_cast<double>(layout_.size()));
  }
  totals_.bytes_pulled += bytes;
  Outcome& outcome = transfer.outcome;
  outcome.staleness = std::max(outcome.staleness, answer.header.staleness);
  outcome.late |= fate == v1::Block::LATE;
  outcome.non_finite |= fate == v1::Block::NON_FINITE;
  channel->schedule->Answered(block);
  --transfer.unanswered;
  const bool round_trip = operation.kind == Operation::kPushPull || operation.kind == Operation::kExchange;
  if (transfer.unanswered == 0 && round_trip)
    totals_.round_trips.Add(1e6 * (events_.Now() - transfer.ready_at));
  caller_.Wake();
}

absl::Status SimulatedParameters::Await(Range range) {
  if (transfers_[0].operation.kind == Operation::kPush) return absl::OkStatus();
  return WaitFor(0, [range](const BlockSchedule& schedule) { return schedule.unanswered(range); });
}

absl::StatusOr<Parameters::Outcome> SimulatedParameters::Finish(int fragment) {
  RETURN_IF_ERROR(
      WaitFor(fragment, [fragment](const BlockSchedule& schedule) { return schedule.unanswered(fragment); }));
  return transfers_[fragment].outcome;
}

bool SimulatedParameters::IsDone(int fragment) const {
  return transfers_[fragment].unanswered == 0 || cancelled_;
}

bool SimulatedParameters::Called(int fragment) {
  return std::any_of(channels_.begin(), channels_.end(), [&](const std::shared_ptr<Channel>& channel) {
    return std::any_of(channel->calls.begin(), channel->calls.end(), [&](const auto& call) {
      const bool same =
          FragmentOf(channel->shard, static_cast<int>(call.first)) == static_cast<uint32_t>(fragment);
      return same && channel->versions[call.first] == call.second;
    });
  });
}

absl::Status SimulatedParameters::WaitFor(int fragment,
                                          absl::FunctionRef<int(const BlockSchedule& schedule)> unanswered) {
  const double start = events_.Now();
  const auto waits = [&] {
    return std::any_of(channels_.begin(), channels_.end(),
                       [&](const auto& channel) { return unanswered(*channel->schedule) > 0; });
  };
  while (!cancelled_ && status_.ok() && waits()) caller_.Wait();
  CountWait(fragment, start, events_.Now());
  if (cancelled_) return absl::CancelledError("the simulated worker has failed");
  return status_;
}

void SimulatedParameters::Cancel() {
  cancelled_ = true;
  caller_.Wake();
}

bool SimulatedParameters::AllSent(uint32_t fragment) const {
  return std::all_of(channels_.begin(), channels_.end(),
                     [fragment](const auto& channel) { return channel->schedule->unsent(fragment) == 0; });
}

void SimulatedParameters::CountWait(int fragment, double from, double to) {
  const Operation::Kind kind = transfers_[fragment].operation.kind;
  double left = std::clamp(transfers_[fragment].left_at, from, to);
  if (kind == Operation::kPull) left = from;
  if (kind == Operation::kPush || !AllSent(fragment)) left = to;
  totals_.push_seconds += left - from;
  totals_.pull_seconds += to - left;
}

}  // namespace catchment
