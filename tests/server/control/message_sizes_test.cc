// The sizes of a master's messages: with as many members as a job may have, all that servers receive fit into
// their limit, and nothing grows with the time for which a job trains.
#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/algorithm_facts.h"
#include "server/control/master.h"
#include "server/shard/replica.h"
#include "tests/server/control/fake_shard.h"
#include "tests/server/control/testing.h"

namespace catchment {
namespace {

// The limit of a message to a server, in addition to a block (server/process/server_edge.cc).
constexpr size_t kMostBytes = 4 << 20;
constexpr double kHour = 3600;
constexpr uint64_t kSamples = 5000;

struct Worker {
  v1::RegisterReply me;
  v1::Lease lease;
  v1::Progress progress;
};

class MessageSizesTest : public testing::TestWithParam<bool> {
 protected:
  void Start(uint32_t workers) {
    v1::Job job = MakeJob({.synchronous = GetParam(),
                           .workers = workers,
                           .epochs = 1'000'000,
                           .every_updates = 0,
                           .every_seconds = 24 * kHour});
    job.mutable_faults()->set_heartbeat_timeout_seconds(1.5 * kHour);
    absl::StatusOr<std::unique_ptr<Master>> master =
        Master::Create(job, {{"w", {64}}}, 2, &clock_, std::nullopt);
    ASSERT_TRUE(master.ok()) << master.status();
    master_ = *std::move(master);
    for (int shard : {0, 1}) shards_.emplace_back(shard, GetParam());
  }

  // Notes the size of a message.
  template <typename Message>
  Message Sent(const std::string& kind, Message message) {
    size_t& largest = sizes_[kind];
    largest = std::max(largest, message.ByteSizeLong());
    return message;
  }

  Worker Join(v1::Role role, const std::string& device) {
    v1::RegisterRequest request;
    request.set_role(role);
    request.set_host(std::string(255, 'h'));
    request.set_pid(++last_pid_);
    request.set_device(device);
    request.set_train_samples(role == v1::WORKER ? kSamples : 0);
    v1::TensorInfo* const tensor = request.add_tensors();
    tensor->set_name("w");
    tensor->add_shape(64);
    const absl::StatusOr<v1::RegisterReply> reply =
        master_->Register(request, absl::StrCat("10.0.0.", last_pid_));
    EXPECT_TRUE(reply.ok()) << reply.status();
    Worker worker;
    if (reply.ok()) worker.me = Sent("RegisterReply", *reply);
    // As many metrics and round trips as a report may have.
    for (int i = 0; i < 64; ++i) {
      v1::ProgramMetric* const metric = worker.progress.add_program_metrics();
      metric->set_name(absl::StrCat("metric ", i, std::string(80, 'm')));
      metric->set_sum(0.5);
      metric->set_count(1);
    }
    for (uint64_t i = 0; i < 116; ++i) {
      worker.progress.add_round_trip_us(uint64_t{1} << (i / 4));
      worker.progress.add_round_trip_counts(1'000'000);
    }
    return worker;
  }

  void Beat(const Worker& worker, v1::Role role = v1::WORKER) {
    v1::HeartbeatRequest request;
    request.set_role(role);
    request.set_worker(worker.me.worker());
    request.set_incarnation(worker.me.incarnation());
    *request.mutable_progress() = worker.progress;
    const absl::StatusOr<v1::HeartbeatReply> reply = master_->Heartbeat(request);
    ASSERT_TRUE(reply.ok()) << reply.status();
    Sent("HeartbeatReply", *reply);
  }

  void Exchange() {
    for (FakeShard& shard : shards_) {
      shard.Take(Sent("ShardCommand", master_->Command()));
      ASSERT_TRUE(master_->OnShardReport(shard.Report()).ok());
    }
    for (const CompleteCheckpoint& checkpoint : master_->checkpoints().TakeComplete()) {
      Sent("MasterState", checkpoint.state);
      master_->OnCheckpointRecorded(checkpoint.number, absl::OkStatus());
      ++checkpoints_;
    }
  }

  bool NextLease(Worker* worker) {
    v1::GetLeaseRequest request;
    request.set_worker(worker->me.worker());
    request.set_incarnation(worker->me.incarnation());
    request.set_after(worker->lease.number());
    *request.mutable_progress() = worker->progress;
    const absl::StatusOr<v1::Lease> lease = master_->GetLease(request);
    EXPECT_TRUE(lease.ok()) << lease.status();
    if (!lease.ok() || lease->state() != v1::Lease::GRANTED) return false;
    worker->lease = Sent("Lease", *lease);
    worker->progress.set_lease(lease->number());
    worker->progress.set_lease_steps(0);
    return true;
  }

  // All workers take a lease and do its steps.
  void TrainLease(std::map<uint32_t, Worker>* workers) {
    std::vector<Worker*> granted;
    for (int attempt = 0; attempt < 4 && granted.size() < workers->size(); ++attempt) {
      for (auto& [index, worker] : *workers) {
        const bool has = std::find(granted.begin(), granted.end(), &worker) != granted.end();
        if (!has && NextLease(&worker)) granted.push_back(&worker);
      }
      Exchange();
    }
    ASSERT_FALSE(granted.empty());
    for (int step = 0; step < granted[0]->lease.minibatches_size(); ++step) {
      for (Worker* const worker : granted) {
        if (step >= worker->lease.minibatches_size()) continue;
        worker->progress.set_lease_steps(step + 1);
        worker->progress.set_steps(worker->progress.steps() + 1);
        for (FakeShard& shard : shards_)
          shard.Contribute(worker->me.incarnation(), worker->lease.first_version() + step,
                           worker->progress.steps());
      }
    }
    Exchange();
    for (auto& [index, worker] : *workers) Beat(worker);
  }

  void Leave(const Worker& worker) {
    v1::LeaveRequest request;
    request.set_worker(worker.me.worker());
    request.set_incarnation(worker.me.incarnation());
    request.set_reason(std::string(1024, 'r'));
    Sent("LeaveReply", master_->Leave(request));
  }

  void LookAtStates() {
    Sent("MasterImage", master_->Save());
    Sent("JobStatus", master_->Status());
  }

  SettableClock clock_;
  std::unique_ptr<Master> master_;
  std::vector<FakeShard> shards_;
  std::map<std::string, size_t> sizes_;  // the largest of each kind of message
  uint32_t last_pid_ = 0;
  int checkpoints_ = 0;
};

TEST_P(MessageSizesTest, AreWithinTheLimitOfServersWithTheMostMembers) {
  Start(kMaxWorkers);
  std::map<uint32_t, Worker> workers;
  for (uint32_t w = 0; w < kMaxWorkers; ++w)
    workers[w] = Join(v1::WORKER, absl::StrCat(w, std::string(1000, 'd')));
  for (auto& [index, worker] : workers) Beat(worker);
  for (int round = 0; round < 2; ++round) {
    Exchange();
    for (uint32_t w = 0; w < 100; ++w) NextLease(&workers[w]);
  }
  EXPECT_GT(workers[99].lease.number(), 0u);
  LookAtStates();
  for (const auto& [kind, bytes] : sizes_) {
    // Clients set no limit for an answer, and the image is sent in parts.
    if (kind == "MasterImage" || kind == "JobStatus") continue;
    EXPECT_LE(bytes, kMostBytes) << kind;
  }
  v1::StandbyPart state;
  state.set_master(master_->Save().SerializeAsString());
  ASSERT_GT(state.ByteSizeLong(), kMostBytes);
  EXPECT_TRUE(SendInParts(state, [](const v1::StandbyPart& part) {
    EXPECT_LE(part.ByteSizeLong(), kMostBytes);
    return true;
  }));
}

// Most workers train for all of the time. Every hour one leaves and another joins; one every day is lost.
TEST_P(MessageSizesTest, DoNotGrowInAMonth) {
  constexpr int kDays = 30, kWorkers = 6, kLeasesPerHour = 3;
  Start(kWorkers);
  std::map<uint32_t, Worker> workers;
  const auto join = [&] {
    const Worker worker = Join(v1::WORKER, absl::StrCat("device ", last_pid_));
    workers[worker.me.worker()] = worker;
  };
  for (int w = 0; w < kWorkers; ++w) join();
  std::map<std::string, size_t> earlier;
  for (int day = 0; day < kDays; ++day) {
    for (int hour = 0; hour < 24; ++hour) {
      for (int lease = 0; lease < kLeasesPerHour; ++lease) {
        clock_.Advance(kHour / kLeasesPerHour);
        master_->Tick();
        TrainLease(&workers);
        if (HasFatalFailure()) return;
      }
      LookAtStates();
      const auto last = std::prev(workers.end());
      // A lost worker's time runs out while the others train.
      if (hour > 0) Leave(last->second);
      workers.erase(last);
      join();
    }
    if (day == 2) earlier = std::exchange(sizes_, {});
    if (day == kDays - 3) sizes_.clear();
  }
  EXPECT_GT(checkpoints_, kDays / 2);
  for (const auto& [kind, bytes] : sizes_) EXPECT_LE(bytes, earlier[kind] * 1.1 + 100) << kind;
}

INSTANTIATE_TEST_SUITE_P(Modes, MessageSizesTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Synchronous" : "Asynchronous"; });

}  // namespace
}  // namespace catchment
