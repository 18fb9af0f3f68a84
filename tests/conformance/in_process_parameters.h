// Several workers on real shards in one process, without a network and without chance.
//
// Every worker runs on a separate thread, but only one at a time: the turn passes once in every operation
// on the parameters, when the worker waits for it for the first time, to another worker that can go on, by
// default the next one in a circle. A worker whose operation waits at a gate can when it has been answered. A
// block is sent, and where nothing holds it up answered, as soon as its values are ready. An operation
// reaches all blocks of all shards in one turn, so the order of pushes does not depend on how the parameters
// are split.
//
// Instead of Run, a test may use the parameters of the workers itself, on one thread, and decide what happens
// at which time: each operation must be answered before the test waits for it.
#ifndef CATCHMENT_TESTS_CONFORMANCE_IN_PROCESS_PARAMETERS_H_
#define CATCHMENT_TESTS_CONFORMANCE_IN_PROCESS_PARAMETERS_H_

#include <glog/logging.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/job/job_layout.h"
#include "server/shard/shard.h"
#include "worker/client/block_schedule.h"
#include "worker/parameters.h"

namespace catchment {

struct ParameterSplit {
  int num_shards = 1;
  int64_t block_size = 1 << 18;
  std::vector<int64_t> tensors = {};  // their sizes; none: one tensor of all
};

class VirtualCluster {
 public:
  using Work = std::function<void(Parameters* parameters)>;
  // Returns which of the ready workers, in ascending order, runs next; `last` is the one that ran before.
  using Pick = std::function<int(const std::vector<int>& ready, int last)>;

  using Split = ParameterSplit;

  VirtualCluster(const v1::Job& job, const std::vector<float>& initial, int num_workers,
                 const Split& split = {}, Pick pick = NextInCircle)
      : layout_(LayOut(job, static_cast<int64_t>(initial.size()), split)), pick_(std::move(pick)) {
    for (int s = 0; s < split.num_shards; ++s) {
      const Range range = layout_.shard(s);
      Shard::Contents contents;
      contents.weights.assign(initial.begin() + range.begin, initial.begin() + range.end);
      shards_.push_back(std::make_unique<Shard>(job, layout_, s, std::move(contents),
                                                [](std::unique_ptr<PendingSnapshot>) {}));
    }
    for (int w = 0; w < num_workers; ++w) {
      clients_.push_back(std::make_shared<Client>(this, w, 100 + w));
      members_.insert(w);
    }
    SetRosters();
  }

  // One function per worker; returns when all have returned.
  void Run(const std::vector<Work>& works) {
    CHECK_EQ(works.size(), clients_.size());
    unfinished_.clear();
    for (size_t w = 0; w < works.size(); ++w) unfinished_.insert(static_cast<int>(w));
    {
      MutexLock lock(&mu_);
      turn_ = 0;
    }
    std::vector<std::thread> threads;
    for (size_t w = 0; w < works.size(); ++w) {
      threads.emplace_back([this, &work = works[w], w = static_cast<int>(w)] {
        WaitForTurn(w);
        work(clients_[w].get());
        clients_[w]->GiveUp();
        unfinished_.erase(w);
        Leave(w);
        if (!unfinished_.empty()) PassTurn(w);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  void Run(const Work& work) { Run(std::vector<Work>(clients_.size(), work)); }

  // Without Run: returns the parameters of a worker, whose connection is open.
  Parameters* Connect(int worker) {
    clients_[worker]->Connect();
    return clients_[worker].get();
  }
  // Without Run: a new process of a worker that has left.
  Parameters* Join(int worker) {
    const uint64_t incarnation = clients_[worker]->incarnation() + 100;
    clients_[worker]->GiveUp();
    clients_[worker] = std::make_shared<Client>(this, worker, incarnation);
    members_.insert(worker);
    SetRosters();
    return Connect(worker);
  }
  // Sets the time of all that follows.
  void SetTime(double now) { now_ = now; }
  void SetStepSeconds(double seconds) {
    step_seconds_ = seconds;
    SetRosters();
  }
  // Makes the updates that are due at this time.
  void Tick() {
    for (const auto& shard : shards_) {
      std::vector<Answer> answers;
      shard->Tick(now_, &answers);
      catchment::Deliver(&answers);
    }
  }

  // To be called by a worker in its turn: it leaves all gates, as it does when its work is done.
  void Leave(int worker) {
    if (members_.erase(worker) > 0) SetRosters();
  }
  // To be called by any worker in its turn, of one who has nothing under way: it has nothing to do, or work
  // again.
  void SetIdle(int worker, bool idle) {
    idle_.erase(worker);
    if (idle) idle_.insert(worker);
    SetRosters();
  }

  std::vector<float> Weights() const {
    std::vector<float> weights;
    for (const auto& shard : shards_) {
      const std::vector<float> part = shard->Weights();
      weights.insert(weights.end(), part.begin(), part.end());
    }
    return weights;
  }
  const Shard& shard(int index) const { return *shards_[index]; }
  const ParameterLayout& layout() const { return layout_; }

  static int NextInCircle(const std::vector<int>& ready, int last) {
    const auto next = std::upper_bound(ready.begin(), ready.end(), last);
    return next == ready.end() ? ready.front() : *next;
  }

 private:
  // All of it is used only in turns.
  class Client final : public Parameters, public std::enable_shared_from_this<Client> {
   public:
    Client(VirtualCluster* cluster, int worker, uint64_t incarnation)
        : cluster_(*cluster),
          worker_(worker),
          incarnation_(incarnation),
          transfers_(cluster->layout_.num_fragments()) {
      for (int s = 0; s < cluster_.layout_.num_shards(); ++s) {
        versions_.emplace_back(cluster_.layout_.num_blocks(s), 0);
        schedules_.emplace_back(&cluster_.layout_, s);
      }
    }

    void Start(const Operation& operation) override {
      Transfer& transfer = transfers_[operation.fragment];
      CHECK(transfer.awaited) << "an operation started before the last one ended";
      transfer = {.operation = operation,
                  .awaited = false,
                  .sequence = transfer.sequence,
                  .version = transfer.version,
                  .called = transfer.called};
      transfer.sequence += transfer.HasInput();
      for (BlockSchedule& schedule : schedules_) schedule.Start(transfer.HasInput(), operation.fragment);
      if (!transfer.HasInput()) SendReady();
    }
    void Ready(Range range) override {
      for (BlockSchedule& schedule : schedules_) schedule.Ready(range);
      SendReady();
    }
    absl::Status Await(Range) override {
      return transfers_[0].operation.kind == Operation::kPush ? absl::OkStatus() : WaitForAll(0);
    }
    absl::StatusOr<Outcome> Finish(int fragment) override {
      if (absl::Status status = WaitForAll(fragment); !status.ok()) return status;
      return transfers_[fragment].outcome;
    }
    bool IsDone(int fragment) const override { return IsAnswered(fragment); }
    bool Called(int fragment) override {
      const Transfer& transfer = transfers_[fragment];
      return transfer.called == transfer.version;
    }
    int num_fragments() const override { return cluster_.layout_.num_fragments(); }
    std::vector<Range> fragment(int fragment) const override { return cluster_.layout_.fragment(fragment); }

    uint64_t incarnation() const { return incarnation_; }
    void Connect() {
      for (int s = 0; s < cluster_.layout_.num_shards(); ++s) {
        // The shard keeps a weak reference.
        connections_.push_back(std::make_shared<ShardSink>(weak_from_this(), s));
        std::vector<Answer> calls =
            cluster_.shards_[s]->Connected(worker_, incarnation_, connections_.back());
        catchment::Deliver(&calls);
      }
    }

    // Returns true if the worker can go on in a turn.
    bool ready() const { return waits_for_ < 0 || IsAnswered(waits_for_); }
    // The memory of the operations goes.
    void GiveUp() {
      for (Transfer& transfer : transfers_) transfer.operation.output = {};
    }

   private:
    // An answer does not say of which shard it is.
    struct ShardSink final : AnswerSink {
      ShardSink(std::weak_ptr<Client> client, int shard) : client(std::move(client)), shard(shard) {}
      void Deliver(Answer answer) override {
        const std::shared_ptr<Client> taker = client.lock();
        if (taker != nullptr) answer.again ? taker->SendAgain(shard) : taker->Take(shard, answer);
      }
      bool CanSendAgain() const override { return true; }
      const std::weak_ptr<Client> client;
      const int shard;
    };

    // The state of a fragment's operation.
    struct Transfer {
      Operation operation;
      bool awaited = true;
      uint64_t sequence = 0;
      Outcome outcome;
      uint64_t version = 0;            // as last pulled, of the fragment's last block
      std::optional<uint64_t> called;  // the version of the last call

      bool HasInput() const { return operation.kind != Operation::kPull; }
    };

    bool IsAnswered(int fragment) const {
      return std::all_of(schedules_.begin(), schedules_.end(), [fragment](const BlockSchedule& schedule) {
        return schedule.unanswered(fragment) == 0;
      });
    }
    Transfer& TransferOf(int shard, int block) {
      return transfers_[cluster_.layout_.FragmentsOfBlocks(shard)[block]];
    }

    absl::Status WaitForAll(int fragment) {
      if (!std::exchange(transfers_[fragment].awaited, true)) {
        if (cluster_.unfinished_.empty()) {
          CHECK(IsAnswered(fragment)) << "worker " << worker_ << " waits";
          return status_;
        }
        waits_for_ = fragment;
        cluster_.PassTurn(worker_);
        cluster_.WaitForTurn(worker_);
        waits_for_ = -1;
      }
      return status_;
    }

    void SendReady() {
      for (int s = 0; s < cluster_.layout_.num_shards(); ++s) {
        const auto sink = std::make_shared<ShardSink>(shared_from_this(), s);
        for (int b = schedules_[s].Next(); b != BlockSchedule::kNone; b = schedules_[s].Next()) {
          status_.Update(Send(s, b, sink));
        }
      }
    }

    void SendAgain(int s) {
      schedules_[s].SendAgain();
      SendReady();
    }

    absl::Status Send(int s, int block, const std::shared_ptr<AnswerSink>& sink) {
      static constexpr v1::Block::Operation kKinds[] = {v1::Block::PULL, v1::Block::PUSH,
                                                        v1::Block::PUSH_PULL, v1::Block::EXCHANGE};
      Shard& shard = *cluster_.shards_[s];
      const Transfer& transfer = TransferOf(s, block);
      const Operation& operation = transfer.operation;
      const BlockHeader header{.operation = kKinds[operation.kind],
                               .sequence = transfer.HasInput() ? transfer.sequence : 0,
                               .version = transfer.HasInput() ? versions_[s][block] : operation.min_version,
                               .block = static_cast<uint32_t>(block),
                               .samples = operation.samples,
                               .steps = operation.steps};
      Request request = MakeRequest(static_cast<uint32_t>(worker_), incarnation_, header, sink);
      if (transfer.HasInput()) {
        const Range range = cluster_.layout_.block(s, block);
        const absl::string_view bytes(reinterpret_cast<const char*>(operation.input.data() + range.begin),
                                      range.size() * sizeof(float));
        const PayloadView payload({&bytes, 1}, 0, bytes.size());
        const absl::Status read = shard.ReadPayload(payload, header.scale, &request.contribution);
        if (!read.ok()) return read;
      }
      std::vector<Answer> answers;
      const absl::Status status = shard.Handle(std::move(request), cluster_.now_, &answers);
      catchment::Deliver(&answers);
      return status;
    }

    void Take(int s, const Answer& answer) {
      const int block = static_cast<int>(answer.header.block);
      const Range range = cluster_.layout_.block(s, block);
      Transfer& transfer = TransferOf(s, block);
      if (answer.header.operation == v1::Block::CALL) {
        transfer.called = answer.header.version;
        return;
      }
      if (!transfer.operation.output.empty() && answer.payload != nullptr) {
        std::copy_n(answer.payload->data(), range.size(), transfer.operation.output.data() + range.begin);
        versions_[s][block] = transfer.version = answer.header.version;
      }
      transfer.outcome.staleness = std::max(transfer.outcome.staleness, answer.header.staleness);
      transfer.outcome.late |= answer.header.fate == v1::Block::LATE;
      transfer.outcome.non_finite |= answer.header.fate == v1::Block::NON_FINITE;
      schedules_[s].Answered(block);
    }

    VirtualCluster& cluster_;
    const int worker_;
    const uint64_t incarnation_;
    std::vector<std::shared_ptr<ShardSink>> connections_;
    std::vector<std::vector<uint64_t>> versions_;  // by shard and block, as last pulled
    std::vector<BlockSchedule> schedules_;
    std::vector<Transfer> transfers_;  // by fragment
    int waits_for_ = -1;               // the fragment that the worker waits for; -1: for none
    absl::Status status_;
  };

  // As the job has it, but in blocks of a size that no job has.
  static ParameterLayout LayOut(const v1::Job& job, int64_t size, const Split& split) {
    std::vector<TensorSpec> tensors;
    for (const int64_t n : split.tensors) tensors.push_back({"w" + std::to_string(tensors.size()), {n}});
    if (tensors.empty()) tensors = {{"w", {size}}};
    const Cuts cuts = LayoutOf(job, tensors, split.num_shards)->cuts();
    ParameterLayout layout =
        *ParameterLayout::Create(tensors, split.num_shards, split.block_size, cuts, FragmentsOf(job));
    CHECK_EQ(layout.size(), size);
    return layout;
  }

  void SetRosters() {
    v1::ShardCommand command;
    command.set_generation(++generation_);
    command.set_step_seconds(step_seconds_);
    v1::Roster* roster = command.add_rosters();
    for (int w : members_) {
      v1::Member* member = roster->add_members();
      member->set_worker(w);
      member->set_incarnation(clients_[w]->incarnation());
      member->set_idle(idle_.count(w) > 0);
    }
    for (const auto& shard : shards_) {
      std::vector<Answer> answers;
      shard->SetRosters(command, now_, &answers);
      catchment::Deliver(&answers);
    }
  }

  void PassTurn(int from) {
    std::vector<int> ready;
    for (int w : unfinished_) {
      if (clients_[w]->ready()) ready.push_back(w);
    }
    CHECK(!ready.empty()) << "all workers wait for each other";
    const int next = pick_(ready, from);
    MutexLock lock(&mu_);
    turn_ = next;
    changed_.Notify();
  }

  void WaitForTurn(int worker) {
    MutexLock lock(&mu_);
    changed_.Wait(&mu_, [&] { return turn_ == worker; });
  }

  const ParameterLayout layout_;
  const Pick pick_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<std::shared_ptr<Client>> clients_;
  // Used by the thread whose turn it is.
  std::set<int> members_;
  std::set<int> idle_;
  std::set<int> unfinished_;
  uint64_t generation_ = 0;
  double now_ = 0;
  double step_seconds_ = 0;

  Mutex mu_;
  CondVar changed_;
  int turn_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_CONFORMANCE_IN_PROCESS_PARAMETERS_H_
