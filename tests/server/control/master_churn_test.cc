// Random joins, losses, leaves, stalls and leases for thousands of events: no sample is lost or assigned to
// two workers at the same time, no checkpoint omits one, and the job ends. In some of the jobs the master is
// also replaced, again and again, by one that is restored from its image.
#include <glog/logging.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "server/control/check_image.h"
#include "server/control/master.h"
#include "server/control/span.h"
#include "tests/server/control/fake_shard.h"
#include "tests/server/control/testing.h"

namespace catchment {
namespace {

using Sample = std::pair<uint64_t, uint64_t>;  // epoch, position

std::vector<Sample> SamplesOf(const v1::Minibatch& minibatch) {
  std::vector<Sample> samples;
  for (const v1::SampleSpan& span : minibatch.spans()) {
    for (uint64_t i = span.begin(); i < span.end(); ++i) samples.emplace_back(span.epoch(), i);
  }
  return samples;
}

struct SimulatedWorker {
  uint32_t index = 0;
  uint64_t incarnation = 0;
  v1::Lease lease;
  uint64_t step = 0;             // of its lease: computed
  std::vector<Sample> unpushed;  // of steps that are computed
  double heard_at = 0;
  double stalled_until = 0;  // it neither works nor is heard of
  v1::Progress progress;
};

struct Churn {
  JobOptions job;
  uint64_t samples;
  uint64_t seed;
  bool restarts = false;  // of the master
};

class Simulation {
 public:
  explicit Simulation(const Churn& churn) : churn_(churn), random_(churn.seed) {
    auto master = Master::Create(MakeJob(churn.job), Tensors(), 2, &clock_, std::nullopt);
    CHECK(master.ok());
    master_ = *std::move(master);
    for (int i = 0; i < 2; ++i) shards_.emplace_back(i, churn.job.synchronous);
  }

  void Run(int churn_events, int max_events) {
    for (int event = 0; event < max_events && !master_->state_machine().over(); ++event) {
      clock_.Advance(0.02);
      const bool churning = event < churn_events;
      if (workers_.empty() || (random_.Below(churning ? 150 : 2000) == 0 && workers_.size() < 6)) Join();
      if (churning) Disturb();
      if (!workers_.empty()) Act(&workers_[random_.Below(workers_.size())]);
      if (random_.Below(3) == 0) Poll(&shards_[random_.Below(shards_.size())]);
      Heartbeats();
      if (random_.Below(5) == 0) master_->Tick();
      if (churn_.restarts) SaveAndRestart();
      TakeCheckpoints();
      if (master_->state_machine().phase() == v1::JobStatus::DONE) master_->OnOutputsWritten();
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

  void ExpectAllIsTrained() {
    EXPECT_TRUE(master_->state_machine().over()) << master_->Status().DebugString();
    EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::DONE);
    EXPECT_EQ(master_->Status().samples(), churn_.job.epochs * churn_.samples);
    for (uint64_t i = 0; i < churn_.job.epochs * churn_.samples; ++i) {
      ASSERT_TRUE(IsTrained({i / churn_.samples, i % churn_.samples}, UINT64_MAX)) << "never trained: " << i;
    }
    EXPECT_GT(losses_, 3);
    EXPECT_GT(checkpoints_, churn_.restarts ? 1 : 3);
    EXPECT_TRUE(!churn_.restarts || restarts_ > 20) << restarts_;
  }

 private:
  static std::vector<TensorSpec> Tensors() { return {{"w", {64}}}; }
  bool synchronous() const { return churn_.job.synchronous; }

  // Saves the master if others have seen a decision of it since the last image, and now and then replaces it
  // by one that is restored from the image, which may be older than other changes.
  void SaveAndRestart() {
    if (!master_->state_machine().begun()) return;
    const Master::Decisions decisions = master_->decisions();
    if (std::exchange(answered_, false) || !image_ || decisions != decided_) image_ = master_->Save();
    decided_ = decisions;
    if (random_.Below(100) != 0) return;
    ++restarts_;
    ASSERT_TRUE(CheckMasterImage(*image_, MakeJob(churn_.job), 2).ok())
        << CheckMasterImage(*image_, MakeJob(churn_.job), 2);
    master_ = Master::Restore(MakeJob(churn_.job), Tensors(), 2, &clock_, *image_, incarnations_ + 10);
    decided_ = master_->decisions();
    ExpectIsSaved(*image_, incarnations_ + 10);
  }

  // The master has everything of the image.
  void ExpectIsSaved(v1::MasterImage image, uint64_t next_incarnation) const {
    image.mutable_membership()->set_next_incarnation(
        std::max(image.membership().next_incarnation(), next_incarnation));
    google::protobuf::util::MessageDifferencer differencer;
    differencer.set_float_comparison(google::protobuf::util::MessageDifferencer::APPROXIMATE);
    std::string differences;
    differencer.ReportDifferencesToString(&differences);
    ASSERT_TRUE(differencer.Compare(image, master_->Save())) << differences;
  }

  void Join() {
    v1::RegisterRequest request;
    v1::TensorInfo* tensor = request.add_tensors();
    tensor->set_name("w");
    tensor->add_shape(64);
    request.set_train_samples(churn_.samples);
    const auto reply = master_->Register(request, absl::StrCat("10.0.0.", ++joined_));
    ASSERT_TRUE(reply.ok()) << reply.status();
    for (const SimulatedWorker& worker : workers_) {
      ASSERT_NE(worker.incarnation, reply->incarnation());
    }
    SimulatedWorker worker;
    worker.index = reply->worker();
    worker.incarnation = reply->incarnation();
    worker.heard_at = clock_.Now();
    workers_.push_back(worker);
    incarnations_ = std::max(incarnations_, worker.incarnation);
    answered_ = true;
  }

  void Disturb() {
    if (workers_.empty()) return;
    const uint64_t which = random_.Below(workers_.size());
    switch (random_.Below(400)) {
      case 0:  // lost without a word
        ++losses_;
        workers_.erase(workers_.begin() + which);
        break;
      case 1:
        Leave(which);
        break;
      case 2:  // long enough to be considered lost
        workers_[which].stalled_until = clock_.Now() + 12;
        break;
      default:
        break;
    }
  }

  void Leave(uint64_t which) {
    const SimulatedWorker& worker = workers_[which];
    v1::LeaveRequest request;
    request.set_worker(worker.index);
    request.set_incarnation(worker.incarnation);
    *request.mutable_progress() = worker.progress;
    master_->Leave(request);
    answered_ = true;
    workers_.erase(workers_.begin() + which);
  }

  void Heartbeats() {
    for (size_t i = 0; i < workers_.size(); ++i) {
      SimulatedWorker& worker = workers_[i];
      if (clock_.Now() < worker.stalled_until || clock_.Now() < worker.heard_at + 3) continue;
      v1::HeartbeatRequest request;
      request.set_worker(worker.index);
      request.set_incarnation(worker.incarnation);
      *request.mutable_progress() = worker.progress;
      const auto reply = master_->Heartbeat(request);
      if (!reply.ok()) {
        ASSERT_EQ(reply.status().code(), absl::StatusCode::kNotFound);
        workers_.erase(workers_.begin() + i--);
        ++losses_;
        Join();
        continue;
      }
      worker.heard_at = clock_.Now();
    }
  }

  void Act(SimulatedWorker* worker) {
    if (clock_.Now() < worker->stalled_until) return;
    if (worker->step < static_cast<uint64_t>(worker->lease.minibatches_size())) {
      DoStep(worker);
    } else {
      AskForLease(worker);
    }
  }

  void AskForLease(SimulatedWorker* worker) {
    v1::GetLeaseRequest request;
    request.set_worker(worker->index);
    request.set_incarnation(worker->incarnation);
    request.set_after(worker->lease.number());
    *request.mutable_progress() = worker->progress;
    const auto lease = master_->GetLease(request);
    if (!lease.ok()) {
      ASSERT_EQ(lease.status().code(), absl::StatusCode::kNotFound) << lease.status();
      workers_.erase(workers_.begin() + (worker - workers_.data()));
      return;
    }
    worker->heard_at = clock_.Now();
    if (lease->state() == v1::Lease::WAIT && lease->flush() && !worker->unpushed.empty()) {
      Push(worker, 0);
    } else if (lease->state() == v1::Lease::FINISHED) {
      Leave(worker - workers_.data());
    } else if (lease->state() == v1::Lease::GRANTED) {
      const auto again = master_->GetLease(request);
      ASSERT_TRUE(again.ok());
      ASSERT_EQ(again->SerializeAsString(), lease->SerializeAsString());
      NoteGrant(*worker, *lease);
      answered_ = true;
      worker->lease = *lease;
      worker->step = 0;
      worker->progress.set_lease(lease->number());
      worker->progress.set_lease_steps(0);
    }
  }

  void NoteGrant(const SimulatedWorker& worker, const v1::Lease& lease) {
    const std::set<uint64_t> members = Members();
    for (int i = 0; i < lease.minibatches_size(); ++i) {
      for (const Sample& sample : SamplesOf(lease.minibatches(i))) {
        ASSERT_EQ(done_.count(sample), 0u)
            << "assigned again although all shards have it: " << sample.first << "/" << sample.second;
        const auto held = holders_.find(sample);
        ASSERT_TRUE(held == holders_.end() || members.count(held->second) == 0)
            << "assigned to two workers at the same time: " << sample.first << "/" << sample.second;
        holders_[sample] = worker.incarnation;
        deals_[sample].push_back({.incarnation = worker.incarnation,
                                  .version = lease.first_version() + i / churn_.job.push_period,
                                  .step = worker.progress.steps() + i + 1});
      }
    }
  }

  std::set<uint64_t> Members() const {
    std::set<uint64_t> incarnations;
    const v1::ShardCommand command = master_->Command();
    for (const v1::Roster& roster : command.rosters()) {
      for (const v1::Member& member : roster.members()) incarnations.insert(member.incarnation());
    }
    return incarnations;
  }

  void DoStep(SimulatedWorker* worker) {
    const uint64_t period = churn_.job.push_period;
    const std::vector<Sample> samples = SamplesOf(worker->lease.minibatches(static_cast<int>(worker->step)));
    const uint64_t steps = worker->progress.steps() + 1;
    worker->unpushed.insert(worker->unpushed.end(), samples.begin(), samples.end());
    worker->progress.set_steps(steps);
    const bool push = synchronous() ? (worker->step + 1) % period == 0 : steps % period == 0;
    if (push && !Push(worker, worker->lease.first_version() + worker->step / period)) {
      // It tries again.
      worker->progress.set_steps(steps - 1);
      worker->unpushed.resize(worker->unpushed.size() - samples.size());
      return;
    }
    worker->progress.set_lease_steps(++worker->step);
  }

  // True when all shards have answered.
  bool Push(SimulatedWorker* worker, uint64_t version) {
    const uint64_t steps = worker->progress.steps();
    bool answered = true;
    for (FakeShard& shard : shards_) {
      if (synchronous() && shard.version() > version) continue;
      if (synchronous() && random_.Below(3) == 0) {
        answered = false;  // on its way still; it may be lost between two shards
        continue;
      }
      if (!shard.Contribute(worker->incarnation, version, steps)) return false;
      if (synchronous() && shard.version() <= version) answered = false;
    }
    if (!answered) return false;
    for (const FakeShard& shard : shards_) {
      // A version that was made without it, as it is a member no more.
      if (shard.Settled(worker->incarnation) < steps) return true;
    }
    done_.insert(worker->unpushed.begin(), worker->unpushed.end());
    worker->unpushed.clear();
    return true;
  }

  void Poll(FakeShard* shard) {
    shard->Take(master_->Command());
    ASSERT_TRUE(master_->OnShardReport(shard->Report()).ok());
  }

  // Whatever a checkpoint does not list as pending or still to come was trained by steps before it. In
  // asynchronous mode nothing that all shards had when they took it is pending.
  void TakeCheckpoints() {
    for (const CompleteCheckpoint& checkpoint : master_->checkpoints().TakeComplete()) {
      // A master that is restored may record the last one again.
      ASSERT_GE(checkpoint.number, last_checkpoint_ + (restarts_ > 0 ? 0 : 1));
      last_checkpoint_ = checkpoint.number;
      master_->OnCheckpointRecorded(checkpoint.number, absl::OkStatus());
      ++checkpoints_;
      const v1::MasterState& state = checkpoint.state;
      uint64_t pending = 0;
      std::set<Sample> open;
      for (const v1::SampleSpan& span : state.pending()) {
        pending += span.end() - span.begin();
        for (uint64_t i = span.begin(); i < span.end(); ++i) open.emplace(span.epoch(), i);
      }
      const uint64_t assigned = state.next_epoch() * churn_.samples + state.next_position();
      ASSERT_EQ(state.samples() + pending, assigned);
      for (uint64_t i = 0; i < assigned; ++i) {
        const Sample sample{i / churn_.samples, i % churn_.samples};
        const bool trained =
            synchronous() ? IsTrained(sample, state.version()) : IsInCheckpoint(sample, checkpoint.number);
        if (open.count(sample) == 0) {
          ASSERT_TRUE(trained) << "lost: " << sample.first << "/" << sample.second;
        } else if (!synchronous()) {
          ASSERT_FALSE(trained) << "all shards have it: " << sample.first << "/" << sample.second;
        }
      }
    }
  }

  // Synchronous mode: in an update of all shards, to `version` at most. Otherwise: in one of all shards.
  bool IsTrained(const Sample& sample, uint64_t version) const {
    const auto assignments = deals_.find(sample);
    if (assignments == deals_.end()) return false;
    if (!synchronous()) return done_.count(sample) > 0;
    return std::any_of(assignments->second.begin(), assignments->second.end(), [&](const Grant& grant) {
      return grant.version < version && shards_[0].MadeBy(grant.incarnation, grant.version) &&
             shards_[1].MadeBy(grant.incarnation, grant.version);
    });
  }

  // Returns whether all shards had the sample in an update when they took the checkpoint.
  bool IsInCheckpoint(const Sample& sample, uint64_t checkpoint) const {
    const auto assignments = deals_.find(sample);
    if (assignments == deals_.end()) return false;
    return std::any_of(assignments->second.begin(), assignments->second.end(), [&](const Grant& grant) {
      return std::all_of(shards_.begin(), shards_.end(), [&](const FakeShard& shard) {
        return shard.SettledAt(checkpoint, grant.incarnation) >= grant.step;
      });
    });
  }

  struct Grant {
    uint64_t incarnation = 0;
    uint64_t version = 0;  // synchronous mode
    uint64_t step = 0;     // of the worker since its registration, from 1
  };

  const Churn churn_;
  Random random_;
  SettableClock clock_;
  std::unique_ptr<Master> master_;
  std::vector<FakeShard> shards_;
  std::vector<SimulatedWorker> workers_;
  std::map<Sample, uint64_t> holders_;  // the last that it was assigned to
  std::set<Sample> done_;               // in contributions that all shards have
  std::map<Sample, std::vector<Grant>> deals_;
  uint64_t last_checkpoint_ = 0;
  int losses_ = 0;
  int checkpoints_ = 0;
  // The image of the master that its standby has.
  std::optional<v1::MasterImage> image_;
  Master::Decisions decided_;
  bool answered_ = false;  // a call that changes what the master must not forget
  int joined_ = 0;
  uint64_t incarnations_ = 0;  // the highest that a worker was given
  int restarts_ = 0;
};

class MasterChurnTest : public ::testing::TestWithParam<Churn> {};

TEST_P(MasterChurnTest, NoSampleIsLostAndTheJobEnds) {
  Simulation simulation(GetParam());
  simulation.Run(20000, 400000);
  simulation.ExpectAllIsTrained();
}

std::vector<Churn> Churns() {
  std::vector<Churn> churns;
  for (bool synchronous : {false, true}) {
    for (uint32_t push_period : {1, 3}) {
      for (uint64_t seed = 1; seed <= 5; ++seed) {
        const uint64_t epochs = synchronous ? 6 : 15;
        churns.push_back({{synchronous, 3, 7, push_period, epochs, 20}, 1009, seed});
        churns.push_back({{synchronous, 3, 7, push_period, epochs, 20}, 1009, seed + 100, true});
      }
    }
  }
  return churns;
}

INSTANTIATE_TEST_SUITE_P(Jobs, MasterChurnTest, ::testing::ValuesIn(Churns()), [](const auto& info) {
  const Churn& churn = info.param;
  return std::string(churn.job.synchronous ? "Synchronous" : "Asynchronous") + "PushPeriod" +
         std::to_string(churn.job.push_period) + (churn.restarts ? "Restarts" : "") + "Seed" +
         std::to_string(churn.seed);
});

}  // namespace
}  // namespace catchment
