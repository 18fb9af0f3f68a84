// Several workers on real shards in one process, without a network and without chance.
//
// Every worker runs on a thread of its own, but only one at a time: the turn passes after every operation on the
// parameters to another worker that can go on, by default the next one in a circle. A worker whose operation waits
// at a gate can when it has been answered. An operation reaches all blocks of all shards in one turn, so the order
// of pushes does not depend on how the parameters are split.
#ifndef CATCHMENT_TESTS_CONFORMANCE_IN_PROCESS_PARAMETERS_H_
#define CATCHMENT_TESTS_CONFORMANCE_IN_PROCESS_PARAMETERS_H_

#include <glog/logging.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "common/mutex.h"
#include "server/shard.h"
#include "server/edge/train_stream.h"
#include "worker/parameters.h"

namespace catchment {

struct ParameterSplit {
  int num_shards = 1;
  int64_t block_size = 1 << 18;
};

class VirtualCluster {
 public:
  using Work = std::function<void(Parameters* parameters)>;
  // Which of the ready workers, in ascending order, goes on; `last` is the one that had the turn.
  using Pick = std::function<int(const std::vector<int>& ready, int last)>;

  using Split = ParameterSplit;

  VirtualCluster(const v1::Job& job, const std::vector<float>& initial, int num_workers, const Split& split = {},
                 Pick pick = NextInCircle)
      : layout_(*ParameterLayout::Create({{"w", {static_cast<int64_t>(initial.size())}}}, split.num_shards,
                                         split.block_size)),
        pick_(std::move(pick)) {
    for (int s = 0; s < split.num_shards; ++s) {
      const Range range = layout_.shard(s);
      Shard::Contents contents;
      contents.weights.assign(initial.begin() + range.begin, initial.begin() + range.end);
      shards_.push_back(
          std::make_unique<Shard>(job, layout_, s, std::move(contents), [](const ShardSnapshot&) {}));
    }
    for (int w = 0; w < num_workers; ++w) {
      clients_.push_back(std::make_shared<Client>(this, w));
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
        unfinished_.erase(w);
        if (!unfinished_.empty()) PassTurn(w);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  void Run(const Work& work) { Run(std::vector<Work>(clients_.size(), work)); }

  // To be called by a worker in its turn: it leaves all gates.
  void Leave(int worker) {
    members_.erase(worker);
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

  static int NextInCircle(const std::vector<int>& ready, int last) {
    const auto next = std::upper_bound(ready.begin(), ready.end(), last);
    return next == ready.end() ? ready.front() : *next;
  }

 private:
  // All of it is used only in turns.
  class Client final : public Parameters, public std::enable_shared_from_this<Client> {
   public:
    Client(VirtualCluster* cluster, int worker) : cluster_(*cluster), worker_(worker) {
      for (int s = 0; s < cluster_.layout_.num_shards(); ++s) {
        versions_.emplace_back(cluster_.layout_.num_blocks(s), 0);
      }
    }

    absl::Status Pull(uint64_t min_version, absl::Span<float> weights) override {
      return Operate({v1::Block::PULL, 0, min_version}, nullptr, weights.data()).status();
    }
    absl::StatusOr<Outcome> Push(absl::Span<const float> gradient, uint32_t samples) override {
      return Operate({v1::Block::PUSH, ++sequence_, 0, 0, samples}, gradient.data(), nullptr);
    }
    absl::StatusOr<Outcome> PushPull(absl::Span<const float> gradient, uint32_t samples,
                                     absl::Span<float> weights) override {
      return Operate({v1::Block::PUSH_PULL, ++sequence_, 0, 0, samples}, gradient.data(), weights.data());
    }
    absl::StatusOr<Outcome> Exchange(absl::Span<const float> x, uint32_t samples,
                                     absl::Span<float> difference) override {
      return Operate({v1::Block::EXCHANGE, ++sequence_, 0, 0, samples}, x.data(), difference.data());
    }

    bool ready() const { return unanswered_ == 0; }

   private:
    // An answer does not say of which shard it is.
    struct ShardSink final : AnswerSink {
      ShardSink(std::shared_ptr<Client> client, int shard) : client(std::move(client)), shard(shard) {}
      void Deliver(Answer answer) override { client->Take(shard, answer); }
      const std::shared_ptr<Client> client;
      const int shard;
    };

    absl::StatusOr<Outcome> Operate(BlockHeader header, const float* in, float* out) {
      outcome_ = {};
      out_ = out;
      unanswered_ = 0;
      for (const auto& versions : versions_) unanswered_ += static_cast<int>(versions.size());
      for (int s = 0; s < cluster_.layout_.num_shards(); ++s) {
        const auto sink = std::make_shared<ShardSink>(shared_from_this(), s);
        for (int b = 0; b < cluster_.layout_.num_blocks(s); ++b) {
          header.block = b;
          if (in != nullptr) header.version = versions_[s][b];
          if (absl::Status status = Send(s, sink, header, in); !status.ok()) return status;
        }
      }
      cluster_.PassTurn(worker_);
      cluster_.WaitForTurn(worker_);
      return outcome_;
    }

    absl::Status Send(int s, const std::shared_ptr<AnswerSink>& sink, const BlockHeader& header, const float* in) {
      Shard& shard = *cluster_.shards_[s];
      Request request{static_cast<uint32_t>(worker_), Incarnation(worker_), header, nullptr, sink};
      const Range range = cluster_.layout_.block(s, static_cast<int>(header.block));
      if (in != nullptr) {
        request.payload = shard.pool()->Get(range.size());
        std::copy_n(in + range.begin, range.size(), request.payload->data());
      }
      std::vector<Answer> answers;
      const absl::Status status = shard.Handle(std::move(request), &answers);
      catchment::Deliver(&answers);
      return status;
    }

    void Take(int s, const Answer& answer) {
      const Range range = cluster_.layout_.block(s, static_cast<int>(answer.header.block));
      if (out_ != nullptr && answer.payload != nullptr) {
        std::copy_n(answer.payload->data(), range.size(), out_ + range.begin);
        versions_[s][answer.header.block] = answer.header.version;
      }
      outcome_.staleness = std::max(outcome_.staleness, answer.header.staleness);
      outcome_.late |= answer.header.fate == v1::Block::LATE;
      outcome_.non_finite |= answer.header.fate == v1::Block::NON_FINITE;
      --unanswered_;
    }

    VirtualCluster& cluster_;
    const int worker_;
    uint64_t sequence_ = 0;
    std::vector<std::vector<uint64_t>> versions_;  // by shard and block, as last pulled
    int unanswered_ = 0;
    float* out_ = nullptr;
    Outcome outcome_;
  };

  static uint64_t Incarnation(int worker) { return 100 + worker; }

  void SetRosters() {
    v1::ShardCommand command;
    command.set_generation(++generation_);
    v1::Roster* roster = command.add_rosters();
    for (int w : members_) {
      v1::Member* member = roster->add_members();
      member->set_worker(w);
      member->set_incarnation(Incarnation(w));
    }
    for (const auto& shard : shards_) {
      std::vector<Answer> answers;
      shard->SetRosters(command, &answers);
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
  // Of whoever has the turn.
  std::set<int> members_;
  std::set<int> unfinished_;
  uint64_t generation_ = 0;

  Mutex mu_;
  CondVar changed_;
  int turn_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_CONFORMANCE_IN_PROCESS_PARAMETERS_H_
