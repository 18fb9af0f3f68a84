// Workers that push, pause, lose their connections, leave and join, in any order, with two shards that learn
// of it at different times: in every mode some worker can always continue, and every block counts once. With
// standbys that is so although shards are lost at any moment.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/random.h"
#include "server/shard/replica.h"
#include "server/shard/standby_log.h"
#include "tests/server/shard/shard_harness.h"
#include "tests/server/shard/standby_parts.h"

namespace catchment {
namespace {

constexpr int64_t kValues = 96;
constexpr int64_t kBlockSize = 16;
constexpr uint32_t kShards = 2;
constexpr uint32_t kMaxMembers = 6;

struct Mode {
  const char* name;
  const char* algorithm;
  bool in_groups;
  uint64_t waiting;    // contributions that stay with each block when all have left
  bool drops = false;  // contributions that are too old, although nobody waits in groups
};

using Place = std::pair<uint32_t, uint32_t>;  // shard, block

struct Worker {
  uint32_t index = 0;
  uint64_t incarnation = 0;
  uint64_t clock = 0;  // before its first push
  bool idle = false;
  uint64_t since = 0;  // generation that has it as it is
  uint64_t sequence = 0;
  std::vector<Place> unsent;
  std::set<Place> unanswered;
  std::map<Place, uint64_t> versions;

  bool ready() const { return unsent.empty() && unanswered.empty(); }
};

class Simulation {
 public:
  Simulation(const Mode& mode, uint64_t seed, bool with_standbys = false)
      : mode_(mode),
        with_standbys_(with_standbys),
        random_(seed),
        layout_(FlatLayout(kValues, kShards, kBlockSize)),
        job_(GradientJobWith(mode.algorithm)),
        shards_(kShards),
        logs_(kShards),
        replicas_(kShards),
        held_(kShards) {
    for (uint32_t s = 0; s < kShards; ++s) {
      Shard::Contents contents;
      contents.weights.assign(layout_.shard(s).size(), 0.0f);
      Begin(s, std::move(contents));
    }
  }

  // Replaces a shard by another one with the contents of its standby: what was not acknowledged is lost. If
  // everything was, both must be the same.
  void Lose(uint32_t s) {
    const bool all = random_.Below(2) == 0;
    if (all) Replicate(s, /*all=*/true);
    const ShardSnapshot before = shards_[s]->Snapshot();
    held_[s].clear();
    Begin(s, replicas_[s]->TakeContents());
    if (all) ExpectSame(before, shards_[s]->Snapshot());
    informed_[s] = 0;
    Inform(s);
    std::vector<uint64_t> incarnations;
    for (const Worker& worker : workers_) incarnations.push_back(worker.incarnation);
    for (const uint64_t incarnation : incarnations) SendAgain(Find(incarnation), s);
  }

  // Returns false if no worker can continue although some have work.
  bool Step(bool churning) {
    if (churning) Disturb();
    if (with_standbys_) {
      if (random_.Below(100) == 0) Lose(random_.Below(kShards));
      for (uint32_t s = 0; s < kShards; ++s) {
        if (random_.Below(3) == 0) Replicate(s, /*all=*/false);
      }
    }
    if (workers_.empty()) Join();
    for (uint32_t s = 0; s < kShards; ++s) {
      if (random_.Below(4) == 0) Inform(s);
    }
    std::vector<Worker*> able;
    bool work = false;
    for (Worker& worker : workers_) {
      work |= !worker.idle;
      if (!worker.unsent.empty() || (worker.ready() && !worker.idle && IsKnown(worker)))
        able.push_back(&worker);
    }
    if (able.empty()) {
      bool late = false;
      for (uint32_t s = 0; s < kShards; ++s) late |= Replicate(s, /*all=*/true);
      if (late) return true;
      const bool informed = std::all_of(informed_.begin(), informed_.end(),
                                        [this](uint64_t generation) { return generation == generation_; });
      return !(informed && work);
    }
    Worker* const worker = able[random_.Below(able.size())];
    if (worker->unsent.empty()) BeginPush(worker);
    Send(worker);
    return true;
  }

  // All leave when what they have begun is done, the busiest last.
  void Finish() {
    while (!workers_.empty()) {
      for (uint32_t s = 0; s < kShards; ++s) Replicate(s, /*all=*/true);
      for (size_t w = 0; w < workers_.size();) {
        Worker& worker = workers_[w];
        while (!worker.unsent.empty()) Send(&worker);
        if (!worker.idle && worker.ready()) SetIdle(&worker);
        worker.ready() ? Leave(w) : static_cast<void>(++w);
      }
      for (uint32_t s = 0; s < kShards; ++s) Inform(s);
    }
  }

  void ExpectEveryBlockCountsOnce() {
    for (uint32_t s = 0; s < kShards; ++s) {
      const ShardSnapshot snapshot = shards_[s]->Snapshot();
      for (uint32_t b = 0; b < static_cast<uint32_t>(snapshot.state.blocks_size()); ++b) {
        const uint64_t sent = sent_[{s, b}];
        ASSERT_GT(sent, 1000u);
        const uint64_t applied = snapshot.state.blocks(b).samples();
        if (mode_.in_groups) {
          EXPECT_LE(applied + late_[Place(s, b)], sent);
          EXPECT_GT(applied, sent / 4);
        } else {
          const uint64_t late = snapshot.state.blocks(b).late_samples();
          EXPECT_EQ(applied + late, sent - mode_.waiting) << "shard " << s << " block " << b;
          EXPECT_EQ(late > 0, mode_.drops) << "shard " << s << " block " << b;
        }
      }
    }
  }

  std::string Describe() const {
    std::string text;
    for (const Worker& worker : workers_) {
      text += "worker " + std::to_string(worker.index) + (worker.idle ? " idle" : "") + " clock " +
              std::to_string(worker.clock + worker.sequence) + " waits for " +
              std::to_string(worker.unanswered.size()) + " blocks\n";
    }
    return text;
  }

 private:
  struct Sink final : AnswerSink {
    Sink(Simulation* simulation, uint64_t incarnation, uint32_t shard)
        : simulation(*simulation), incarnation(incarnation), shard(shard) {}
    void Deliver(Answer answer) override { simulation.Take(incarnation, shard, answer.header); }
    Simulation& simulation;
    const uint64_t incarnation;
    const uint32_t shard;
  };

  // Begins shard `s`, and an image of it for its standby.
  void Begin(uint32_t s, Shard::Contents contents) {
    logs_[s] = with_standbys_ ? std::make_unique<StandbyLog>() : nullptr;
    shards_[s] = std::make_unique<Shard>(
        job_, layout_, s, std::move(contents), [](std::unique_ptr<PendingSnapshot>) {}, true, logs_[s].get());
    if (!with_standbys_) return;
    replicas_[s] = std::make_unique<Replica>(job_, layout_, s);
    SendImage(shards_[s].get(), layout_, replicas_[s].get());
  }

  // Sends changes of shard `s` to its standby, and delivers the answers that waited for them. Returns true if
  // there were any.
  bool Replicate(uint32_t s, bool all) {
    if (!with_standbys_) return false;
    for (uint64_t left = all ? UINT64_MAX : random_.Below(4); left > 0; --left) {
      const std::optional<StandbyLog::Change> change = logs_[s]->Next();
      if (!change) break;
      SendChange(*change, replicas_[s].get());
    }
    logs_[s]->Acknowledge(replicas_[s]->number());
    std::vector<Answer> due;
    for (size_t i = 0; i < held_[s].size();) {
      if (!logs_[s]->IsAcknowledged(held_[s][i].change)) {
        ++i;
        continue;
      }
      due.push_back(std::move(held_[s][i]));
      held_[s].erase(held_[s].begin() + i);
    }
    const bool any = !due.empty();
    catchment::Deliver(&due);
    return any;
  }

  // Delivers answers, or keeps them until Replicate.
  void Deliver(uint32_t s, std::vector<Answer>* answers) {
    if (!with_standbys_) return catchment::Deliver(answers);
    for (Answer& answer : *answers) held_[s].push_back(std::move(answer));
    answers->clear();
  }

  static void ExpectSame(const ShardSnapshot& before, const ShardSnapshot& after) {
    EXPECT_EQ(before.weights, after.weights);
    EXPECT_EQ(before.states, after.states);
    ASSERT_EQ(before.state.blocks_size(), after.state.blocks_size());
    for (int b = 0; b < before.state.blocks_size(); ++b) {
      EXPECT_EQ(before.state.blocks(b).SerializeAsString(), after.state.blocks(b).SerializeAsString());
    }
    ASSERT_GE(before.state.watermarks_size(), after.state.watermarks_size());
    for (const v1::Watermark& watermark : after.state.watermarks()) {
      const auto& all = before.state.watermarks();
      const auto same = std::find_if(all.begin(), all.end(), [&](const v1::Watermark& other) {
        return other.worker() == watermark.worker();
      });
      ASSERT_NE(same, all.end());
      // A worker that has begun another incarnation has pushed nothing in it.
      if (same->incarnation() != watermark.incarnation()) {
        EXPECT_EQ(same->sequence(), 0u);
        continue;
      }
      EXPECT_EQ(same->SerializeAsString(), watermark.SerializeAsString());
    }
  }

  void Disturb() {
    const uint64_t what = random_.Below(200);
    if (what == 0 && workers_.size() < kMaxMembers) Join();
    if (workers_.empty()) return;
    const size_t w = random_.Below(workers_.size());
    Worker* const worker = &workers_[w];
    if (what == 1) Leave(w);
    if (what < 10 && worker->ready() && !worker->idle && IsKnown(*worker)) return SetIdle(worker);
    if (what < 30 && worker->idle) return SetActive(worker);
    if (what >= 30 && what < 40) SendAgain(worker);
  }

  // Returns a clock near the slowest worker's, as the master may know it: from some pushes ago.
  uint64_t Clock(uint64_t pushes) {
    uint64_t slowest = UINT64_MAX;
    for (const Worker& worker : workers_) {
      if (!worker.idle) slowest = std::min(slowest, worker.clock + worker.sequence - worker.sequence % 3);
    }
    return slowest == UINT64_MAX || slowest < pushes ? 0 : slowest - pushes;
  }

  void Join() {
    Worker worker;
    worker.clock = Clock(0);
    while (std::any_of(workers_.begin(), workers_.end(),
                       [&](const Worker& w) { return w.index == worker.index; })) {
      ++worker.index;
    }
    worker.incarnation = ++incarnations_;
    worker.since = ++generation_;
    workers_.push_back(worker);
  }

  void Leave(size_t w) {
    // Pushes of a worker that has left cannot be sent again.
    for (uint32_t s = 0; s < kShards; ++s) Replicate(s, /*all=*/true);
    workers_.erase(workers_.begin() + w);
    ++generation_;
  }

  void SetIdle(Worker* worker) {
    worker->idle = true;
    ++generation_;
  }

  void SetActive(Worker* worker) {
    worker->clock = Clock(worker->sequence);
    worker->idle = false;
    worker->since = ++generation_;
  }

  bool IsKnown(const Worker& worker) const {
    return *std::min_element(informed_.begin(), informed_.end()) >= worker.since;
  }

  void Inform(uint32_t s) {
    if (informed_[s] == generation_) return;
    v1::ShardCommand command;
    command.set_generation(generation_);
    v1::Roster* roster = command.add_rosters();
    std::vector<const Worker*> members;
    for (const Worker& worker : workers_) members.push_back(&worker);
    std::sort(members.begin(), members.end(), [](auto* a, auto* b) { return a->index < b->index; });
    for (const Worker* worker : members) {
      v1::Member* member = roster->add_members();
      member->set_worker(worker->index);
      member->set_incarnation(worker->incarnation);
      member->set_idle(worker->idle);
      member->set_clock(worker->clock);
    }
    std::vector<Answer> answers;
    shards_[s]->SetRosters(command, /*now=*/0, &answers);
    informed_[s] = generation_;
    Deliver(s, &answers);
  }

  void BeginPush(Worker* worker) {
    const bool first = worker->sequence++ == 0;
    for (uint32_t s = 0; s < kShards; ++s) {
      for (uint32_t b = 0; b < static_cast<uint32_t>(shards_[s]->num_blocks()); ++b) {
        worker->unsent.emplace_back(s, b);
        if (first) Replicate(s, /*all=*/true);
        if (first) worker->versions[{s, b}] = shards_[s]->Snapshot().state.blocks(b).version();
      }
    }
  }

  void Send(Worker* worker) {
    const size_t i = random_.Below(worker->unsent.size());
    const Place place = worker->unsent[i];
    worker->unsent.erase(worker->unsent.begin() + i);
    worker->unanswered.insert(place);
    ++sent_[place];
    Handle(*worker, place);
  }

  // Its connections, or the one to a shard, have broken: what was not answered is sent again.
  void SendAgain(Worker* worker, std::optional<uint32_t> shard = std::nullopt) {
    const std::set<Place> unanswered = worker->unanswered;
    const uint64_t incarnation = worker->incarnation;
    for (uint32_t s = 0; s < kShards; ++s) {
      if (shard && s != *shard) continue;
      std::erase_if(held_[s], [incarnation](const Answer& answer) {
        return static_cast<Sink&>(*answer.sink).incarnation == incarnation;
      });
    }
    for (const Place& place : unanswered) {
      if (shard && place.first != *shard) continue;
      Worker* const again = Find(incarnation);
      if (again->unanswered.count(place) > 0) Handle(*again, place);
    }
  }

  void Handle(const Worker& worker, const Place& place) {
    const auto& [s, b] = place;
    Request request = MakeRequest(worker.index, worker.incarnation,
                                  {.operation = v1::Block::PUSH_PULL,
                                   .sequence = worker.sequence,
                                   .version = worker.versions.at(place),
                                   .block = b,
                                   .samples = 1,
                                   .steps = 2 * worker.sequence},
                                  std::make_shared<Sink>(this, worker.incarnation, s));
    request.contribution.values = shards_[s]->pool()->Get(shards_[s]->block_range(b).size());
    std::fill_n(request.contribution.values->data(), request.contribution.values->size(), 0.5f);
    std::vector<Answer> answers;
    const absl::Status status = shards_[s]->Handle(std::move(request), /*now=*/0, &answers);
    ASSERT_TRUE(status.ok()) << status;
    Deliver(s, &answers);
  }

  void Take(uint64_t incarnation, uint32_t shard, const BlockHeader& header) {
    const Place place{shard, header.block};
    late_[place] += header.fate == v1::Block::LATE;
    Worker* const worker = Find(incarnation);
    if (worker == nullptr) return;
    ASSERT_EQ(header.sequence, worker->sequence);
    ASSERT_EQ(worker->unanswered.erase(place), 1u) << "answered twice";
    worker->versions[place] = header.version;
  }

  Worker* Find(uint64_t incarnation) {
    for (Worker& worker : workers_) {
      if (worker.incarnation == incarnation) return &worker;
    }
    return nullptr;
  }

  const Mode mode_;
  const bool with_standbys_;
  Random random_;
  const ParameterLayout layout_;
  const v1::Job job_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<std::unique_ptr<StandbyLog>> logs_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::vector<std::vector<Answer>> held_;  // answers, until their changes are acknowledged
  std::vector<uint64_t> informed_ = std::vector<uint64_t>(kShards, 0);  // generations
  std::vector<Worker> workers_;
  uint64_t incarnations_ = 0;
  uint64_t generation_ = 0;
  std::map<Place, uint64_t> sent_;  // each contribution once
  std::map<Place, uint64_t> late_;
};

class ShardChurnTest : public testing::TestWithParam<Mode> {
 protected:
  static void Simulate(uint64_t seeds, bool with_standbys) {
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      Simulation simulation(GetParam(), seed, with_standbys);
      for (int step = 0; step < 15000; ++step) {
        ASSERT_TRUE(simulation.Step(true)) << "seed " << seed << ": after step " << step << " all wait:\n"
                                           << simulation.Describe();
        if (HasFatalFailure()) return;
      }
      simulation.Finish();
      simulation.ExpectEveryBlockCountsOnce();
    }
  }
};

TEST_P(ShardChurnTest, SomebodyCanAlwaysGoOnAndEveryBlockCountsOnce) { Simulate(6, /*with_standbys=*/false); }

TEST_P(ShardChurnTest, WithStandbysEveryBlockCountsOnceAlthoughShardsAreLost) {
  Simulate(3, /*with_standbys=*/true);
}

INSTANTIATE_TEST_SUITE_P(
    Modes, ShardChurnTest,
    testing::Values(
        Mode{"Asynchronous", "", false, 0}, Mode{"Hybrid", "consistency { grouped { groups: 2 } }", true, 0},
        Mode{"BackupWorker", "consistency { synchronous { backup_workers: 1 } }", true, 0},
        Mode{"HybridWithBackup", "consistency { grouped { groups: 2 backup_workers: 1 } }", true, 0},
        Mode{"Quorum",
             "consistency { quorum { minimum: 2 longest_grace_seconds: 1 } } "
             "contribution { pseudo_gradient { local_steps: 2 } }",
             true, 0},
        Mode{"Softsync", "consistency { n_softsync { n: 1 } }", false, 0},
        Mode{"TwoSoftsync", "consistency { n_softsync { n: 2 } }", false, 0},
        Mode{"Delay", "consistency { asynchronous { emulated_delay: 5 } }", false, 5},
        Mode{"StalenessLimit", "consistency { asynchronous { staleness_limit: 2 } }", false, 0, true},
        Mode{"Lockstep", "consistency { bounded_staleness { bound: 0 } }", false, 0},
        Mode{"Bounded", "consistency { bounded_staleness { bound: 2 } }", false, 0}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace catchment
