// Common parts of a shard's tests: small jobs, a shard with small blocks, and requests and answers in one
// line each.
#ifndef CATCHMENT_TESTS_SERVER_SHARD_SHARD_HARNESS_H_
#define CATCHMENT_TESTS_SERVER_SHARD_SHARD_HARNESS_H_

#include <glog/logging.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "server/shard/shard.h"

namespace catchment {

inline v1::Job GradientJob(bool synchronous, float learning_rate = 1) {
  v1::Job job;
  job.set_name("test");
  job.set_batch_size(10000);
  v1::Consistency* consistency = job.mutable_algorithm()->mutable_consistency();
  if (synchronous) {
    consistency->mutable_synchronous();
  } else {
    consistency->mutable_asynchronous();
  }
  v1::AccruedGradient* gradient = job.mutable_algorithm()->mutable_contribution()->mutable_gradient();
  gradient->set_push_period(1);
  gradient->set_fetch_period(1);
  job.mutable_optimizer()->set_kind(v1::Optimizer::SGD);
  job.mutable_optimizer()->set_learning_rate(learning_rate);
  return job;
}

inline v1::Job ElasticJob(bool synchronous, float moving_rate) {
  v1::Job job = GradientJob(synchronous);
  v1::ElasticDifference* elastic = job.mutable_algorithm()->mutable_contribution()->mutable_elastic();
  elastic->set_communication_period(1);
  elastic->set_moving_rate(moving_rate);
  return job;
}

// `algorithm`: in text format, what differs from an asynchronous job without compensation or periods.
inline v1::Job GradientJobWith(const std::string& algorithm, float learning_rate = 1) {
  v1::Job job = GradientJob(false, learning_rate);
  v1::Algorithm more;
  CHECK(google::protobuf::TextFormat::ParseFromString(algorithm, &more)) << algorithm;
  job.mutable_algorithm()->MergeFrom(more);
  return job;
}

// One tensor of `values` values.
inline ParameterLayout FlatLayout(int64_t values, int num_shards, int64_t block_size) {
  return *ParameterLayout::Create({{"w", {values}}}, num_shards, block_size);
}

// Returns the incarnation of a worker unless tests set another one.
inline uint64_t IncarnationOf(uint32_t worker) { return 10 + worker; }

inline v1::Roster RosterOfLives(uint64_t from_version,
                                const std::vector<std::pair<uint32_t, uint64_t>>& members) {
  v1::Roster roster;
  roster.set_from_version(from_version);
  for (const auto& [worker, incarnation] : members) {
    v1::Member* member = roster.add_members();
    member->set_worker(worker);
    member->set_incarnation(incarnation);
  }
  return roster;
}

inline v1::Roster MakeRoster(uint64_t from_version, const std::vector<uint32_t>& workers) {
  std::vector<std::pair<uint32_t, uint64_t>> members;
  for (uint32_t worker : workers) members.emplace_back(worker, IncarnationOf(worker));
  return RosterOfLives(from_version, members);
}

// The same, but these have nothing to work on.
inline v1::Roster WithIdle(v1::Roster roster, const std::vector<uint32_t>& workers) {
  for (v1::Member& member : *roster.mutable_members()) {
    member.set_idle(std::find(workers.begin(), workers.end(), member.worker()) != workers.end());
  }
  return roster;
}

// Says whose answer it is; is never delivered to.
struct NamedSink final : AnswerSink {
  explicit NamedSink(std::string name, bool sends_again = false)
      : name(std::move(name)), sends_again(sends_again) {}
  void Deliver(Answer) override {}
  bool CanSendAgain() const override { return sends_again; }
  const std::string name;
  const bool sends_again;
};

inline std::string NameOf(uint32_t worker) { return "worker " + std::to_string(worker); }

struct Reply {
  std::string to;
  BlockHeader header;
  std::vector<float> payload;
  bool again = false;
};

// Returns the steps of a push that is not of the first step: more with every call.
inline uint64_t NextStep() {
  static std::atomic<uint64_t> steps = 0;
  return ++steps;
}

// A request as tests write it; `values` is repeated over the block.
struct Send {
  uint32_t worker = 0;
  v1::Block::Operation operation = v1::Block::PUSH_PULL;
  uint64_t sequence = 1;
  uint64_t version = 0;
  float value = 0;
  uint32_t block = 0;
  uint32_t samples = 1;
  uint64_t incarnation = 0;  // 0: IncarnationOf(worker)
  const char* to = nullptr;  // null: NameOf(worker)
  uint64_t connection = 0;
};

class ShardHarness {
 public:
  // All members take part from version 0 on. Weights begin at zero unless `contents` says otherwise.
  ShardHarness(const v1::Job& job, int64_t values, int64_t block_size, const std::vector<uint32_t>& workers,
               Shard::Contents contents = {})
      : ShardHarness(job, FlatLayout(values, 1, block_size), 0, workers, std::move(contents)) {}
  // Shard `index` of the layout.
  ShardHarness(const v1::Job& job, ParameterLayout layout, int index, const std::vector<uint32_t>& workers,
               Shard::Contents contents = {})
      : layout_(std::move(layout)) {
    if (contents.weights.empty()) contents.weights.assign(layout_.shard(index).size(), 0.0f);
    shard_ = std::make_unique<Shard>(
        job, layout_, index, std::move(contents),
        [this](std::unique_ptr<PendingSnapshot> snapshot) { pending_.push_back(std::move(snapshot)); });
    SetRosters({MakeRoster(0, workers)});
  }

  Shard& shard() { return *shard_; }
  const ParameterLayout& layout() const { return layout_; }
  // Returns the snapshots for the sink, finished now. They must not contain what the shard has done since
  // they began.
  const std::vector<ShardSnapshot>& snapshots() {
    for (; snapshots_.size() < pending_.size(); pending_[snapshots_.size() - 1].reset()) {
      snapshots_.push_back(pending_[snapshots_.size()]->Finish());
    }
    return snapshots_;
  }

  // Sets the factor of schedule PLATEAU in every later command.
  void SetPlateauFactor(double factor) { plateau_factor_ = factor; }

  // The master announces this checkpoint, in every command from here on.
  void Announce(uint64_t number, uint64_t version) {
    announced_ = {number, version};
    SetRosters(rosters_, total_samples_);
  }

  void SetRosters(const std::vector<v1::Roster>& rosters, uint64_t total_samples = 0) {
    rosters_ = rosters;
    total_samples_ = total_samples;
    v1::ShardCommand command;
    command.set_checkpoint(announced_.first);
    command.set_checkpoint_version(announced_.second);
    if (plateau_factor_.has_value()) command.set_plateau_factor(*plateau_factor_);
    command.set_generation(++generation_);
    for (const v1::Roster& roster : rosters) *command.add_rosters() = roster;
    command.set_total_samples(total_samples);
    command.set_step_seconds(step_seconds_);
    command.set_most_samples(most_samples_);
    shard_->SetRosters(command, now_, &answers_);
  }

  // Sets the time of a step in every later command.
  void SetStepSeconds(double seconds) {
    step_seconds_ = seconds;
    SetRosters(rosters_, total_samples_);
  }
  // Sets ShardCommand.most_samples in every later command.
  void SetMostSamples(uint64_t samples) {
    most_samples_ = samples;
    SetRosters(rosters_, total_samples_);
  }
  // The time passes without a request.
  void Tick(double now) {
    now_ = now;
    shard_->Tick(now, &answers_);
  }

  // Later contributions come over connections by which they can be asked for again.
  void SendAgain() { send_again_ = true; }
  // Sets the time of later requests.
  void SetTime(double now) { now_ = now; }

  absl::Status Handle(const Send& send) {
    const bool pull = send.operation == v1::Block::PULL;
    const int64_t size =
        send.block < static_cast<uint32_t>(shard_->num_blocks()) ? shard_->block_range(send.block).size() : 1;
    return HandleValues(send, pull ? std::vector<float>() : std::vector<float>(size, send.value));
  }

  absl::Status HandleValues(const Send& send, const std::vector<float>& values) {
    const BlockHeader header{.operation = send.operation,
                             .sequence = send.sequence,
                             .version = send.version,
                             .block = send.block,
                             .samples = send.samples,
                             .steps = send.sequence};
    Request request = MakeRequest(
        send.worker, send.incarnation == 0 ? IncarnationOf(send.worker) : send.incarnation, header,
        std::make_shared<NamedSink>(send.to == nullptr ? NameOf(send.worker) : send.to, send_again_),
        send.connection);
    const absl::string_view bytes(reinterpret_cast<const char*>(values.data()),
                                  values.size() * sizeof(float));
    absl::Status status =
        shard_->ReadPayload(PayloadView({&bytes, 1}, 0, bytes.size()), header.scale, &request.contribution);
    if (status.ok()) status = shard_->Handle(std::move(request), now_, &answers_);
    return status;
  }

  // The answers since the last call.
  std::vector<Reply> Take() {
    std::vector<Reply> replies;
    for (const Answer& answer : answers_) {
      Reply reply{static_cast<NamedSink&>(*answer.sink).name, answer.header, {}, answer.again};
      if (answer.payload != nullptr) {
        reply.payload.assign(answer.payload->data(), answer.payload->data() + answer.payload->size());
      }
      replies.push_back(std::move(reply));
    }
    answers_.clear();
    return replies;
  }

  v1::WorkerStatistics Statistics(uint32_t worker) const {
    const v1::ShardReport report = shard_->Report();
    for (const v1::WorkerStatistics& statistics : report.workers()) {
      if (statistics.worker() == worker) return statistics;
    }
    return {};
  }

  // All that a request may change.
  std::string State() const {
    const ShardSnapshot snapshot = shard_->Snapshot();
    std::string state = snapshot.state.SerializeAsString();
    state.append(reinterpret_cast<const char*>(snapshot.weights.data()),
                 snapshot.weights.size() * sizeof(float));
    return state;
  }

 private:
  const ParameterLayout layout_;
  std::unique_ptr<Shard> shard_;
  std::vector<std::unique_ptr<PendingSnapshot>> pending_;  // null once they are finished
  std::vector<ShardSnapshot> snapshots_;
  uint64_t generation_ = 0;
  std::pair<uint64_t, uint64_t> announced_;  // number, version
  std::vector<v1::Roster> rosters_;
  uint64_t total_samples_ = 0;
  double now_ = 0;
  double step_seconds_ = 0;
  uint64_t most_samples_ = 0;
  bool send_again_ = false;
  std::optional<double> plateau_factor_;
  std::vector<Answer> answers_;
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_SERVER_SHARD_SHARD_HARNESS_H_
