#include "simulation/simulated_parameters.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

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
      pull_(Codec::ForPull(options.compression)) {
  for (int s = 0; s < layout_.num_shards(); ++s) {
    auto channel = std::make_shared<Channel>();
    channel->owner = this;
    channel->shard = s;
    channel->versions.resize(layout_.num_blocks(s));
    channel->schedule = std::make_unique<BlockSchedule>(&layout_, s);
    channel->encoder = std::make_unique<PushEncoder>(options_.compression, layout_.shard(s).size());
    channels_.push_back(std::move(channel));
    servers_[s]->shard()->Connected(options_.worker, options_.incarnation);
  }
}

SimulatedParameters::~SimulatedParameters() {
  for (const std::shared_ptr<Channel>& channel : channels_) {
    channel->owner = nullptr;
    servers_[channel->shard]->shard()->Disconnected(options_.worker, options_.incarnation, /*by_peer=*/true);
  }
}

void SimulatedParameters::Start(const Operation& operation) {
  CHECK_EQ(unanswered_, 0) << "an operation was begun before the last one was finished";
  operation_ = operation;
  sequence_ += has_input();
  missing_ = static_cast<int64_t>(operation.input.size());
  outcome_ = Outcome();
  for (const std::shared_ptr<Channel>& channel : channels_) {
    channel->schedule->Start(has_input());
    unanswered_ += channel->schedule->unanswered();
  }
  if (has_input()) return;
  for (const std::shared_ptr<Channel>& channel : channels_) SendNext(channel);
}

void SimulatedParameters::Ready(Range range) {
  missing_ -= range.size();
  if (missing_ == 0) ready_at_ = events_.Now();
  for (const std::shared_ptr<Channel>& channel : channels_) {
    if (!Overlap(range, layout_.shard(channel->shard))) continue;
    if (channel->schedule->Ready(range)) SendNext(channel);
  }
}

void SimulatedParameters::SendNext(const std::shared_ptr<Channel>& channel) {
  if (channel->sending || cancelled_) return;
  const int block = channel->schedule->Next();
  if (block == BlockSchedule::kNone) return;
  if (AllSent()) left_at_ = events_.Now();
  size_t payload = 0;
  absl::StatusOr<Request> request = MakeBlock(channel, block, &payload);
  if (!request.ok()) {
    status_.Update(request.status());
    return;
  }
  channel->sending = true;
  SimulatedServer* const server = servers_[channel->shard].get();
  const double bytes = WireBytes(payload);
  const bool answered = operation_.kind != Operation::kPush;
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
  BlockHeader header{.operation = kKinds[operation_.kind],
                     .sequence = has_input() ? sequence_ : 0,
                     .version = has_input() ? channel->versions[block] : operation_.min_version,
                     .block = static_cast<uint32_t>(block),
                     .samples = operation_.samples,
                     .steps = operation_.steps};
  Request request = MakeRequest(options_.worker, options_.incarnation, header, channel);
  if (!has_input()) return request;
  const Range range = layout_.block(channel->shard, block);
  const absl::Span<const float> values = operation_.input.subspan(range.begin, range.size());
  const Codec& codec = channel->encoder->codec();
  absl::string_view payload(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
  if (!codec.is_plain()) {
    encoded_.resize(codec.PayloadBytes(range.size()));
    header.scale = channel->encoder->Encode(range.begin - layout_.shard(channel->shard).begin, values,
                                            header.samples, encoded_.data());
    payload = {encoded_.data(), encoded_.size()};
  }
  totals_.bytes_pushed += payload.size();
  *bytes = payload.size();
  const absl::Status read = servers_[channel->shard]->shard()->ReadPayload(
      PayloadView({&payload, 1}, 0, payload.size()), header.scale, &request.contribution);
  if (!read.ok()) return read;
  return request;
}

void SimulatedParameters::Channel::Deliver(Answer answer) {
  if (owner == nullptr) return;
  const size_t bytes = answer.payload == nullptr ? 0 : static_cast<size_t>(answer.payload->bytes());
  const auto self = std::static_pointer_cast<Channel>(answer.sink);
  owner->network_.Send(owner->WireBytes(bytes), owner->servers_[shard]->port(), &owner->port_, nullptr,
                       [self, answer, bytes] {
                         if (self->owner != nullptr) self->owner->Take(self.get(), answer, bytes);
                       });
}

void SimulatedParameters::Take(Channel* channel, const Answer& answer, size_t bytes) {
  const int block = static_cast<int>(answer.header.block);
  const Range range = layout_.block(channel->shard, block);
  const bool has_output = operation_.kind != Operation::kPush && answer.payload != nullptr;
  if (has_output && !cancelled_) {
    const absl::string_view text(reinterpret_cast<const char*>(answer.payload->data()), bytes);
    const auto decoded = pull_.Decode(PayloadView({&text, 1}, 0, bytes), answer.header.scale,
                                      operation_.output.subspan(range.begin, range.size()));
    status_.Update(decoded.status());
    channel->versions[block] = answer.header.version;
  }
  totals_.bytes_pulled += bytes;
  outcome_.staleness = std::max(outcome_.staleness, answer.header.staleness);
  outcome_.late |= answer.header.fate == v1::Block::LATE;
  outcome_.non_finite |= answer.header.fate == v1::Block::NON_FINITE;
  channel->schedule->Answered(block);
  --unanswered_;
  const bool round_trip = operation_.kind == Operation::kPushPull || operation_.kind == Operation::kExchange;
  if (unanswered_ == 0 && round_trip) totals_.round_trips.Add(1e6 * (events_.Now() - ready_at_));
  caller_.Wake();
}

absl::Status SimulatedParameters::Await(Range range) {
  return operation_.kind == Operation::kPush ? absl::OkStatus() : WaitFor(range);
}

absl::StatusOr<Parameters::Outcome> SimulatedParameters::Finish() {
  if (absl::Status status = WaitFor({0, layout_.size()}); !status.ok()) return status;
  return outcome_;
}

int SimulatedParameters::unanswered(Range range) const {
  int blocks = 0;
  for (const std::shared_ptr<Channel>& channel : channels_) blocks += channel->schedule->unanswered(range);
  return blocks;
}

absl::Status SimulatedParameters::WaitFor(Range range) {
  const double start = events_.Now();
  while (!cancelled_ && status_.ok() && unanswered(range) > 0) caller_.Wait();
  CountWait(start, events_.Now());
  if (cancelled_) return absl::CancelledError("the simulated worker has failed");
  return status_;
}

void SimulatedParameters::Cancel() {
  cancelled_ = true;
  caller_.Wake();
}

bool SimulatedParameters::AllSent() const {
  return std::all_of(channels_.begin(), channels_.end(),
                     [](const auto& channel) { return channel->schedule->unsent() == 0; });
}

void SimulatedParameters::CountWait(double from, double to) {
  double left = std::clamp(left_at_, from, to);
  if (operation_.kind == Operation::kPull) left = from;
  if (operation_.kind == Operation::kPush || !AllSent()) left = to;
  totals_.push_seconds += left - from;
  totals_.pull_seconds += to - left;
}

}  // namespace catchment
