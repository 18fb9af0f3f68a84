// The admission of members, their loss and their leave.
#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/not_ready.h"
#include "tests/server/control/master_fixture.h"

namespace catchment {
namespace {

using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

// ------------------------------------------------------------------------------------------- admission

TEST_F(MasterTest, RefusesAnotherModelNamingTheTensor) {
  Start(MakeJob({}));
  v1::RegisterRequest request = Registration();
  request.mutable_tensors(0)->set_shape(1, 785);
  const absl::Status status = master_->Register(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("expected dense1.weight 10x784, got dense1.weight 10x785"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("host:7"));
}

TEST_F(MasterTest, OtherDataThanThatOfTheFirstWorkersWaitsUntilSamplesAreAssigned) {
  Start(MakeJob({.workers = 2}));
  Worker worker = Join();
  v1::RegisterRequest request = Registration();
  request.set_train_samples(kSamples + 1);
  request.set_pid(8);
  for (int i = 0; i < 3; ++i) {
    const absl::Status status = master_->Register(request).status();
    EXPECT_TRUE(IsNotReady(status)) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("the worker (host:8) waits, because it has 101 training samples, and the job has "
                          "100, as worker 0 (host:7) has; give all"));
  }
  EXPECT_THAT(FreshEvents(), Contains(HasSubstr("(host:8) has 101 training samples")).Times(1));
  Worker other = Join();
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  const absl::Status status = master_->Register(request).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("(host:8) has 101 training samples, and the job has"));
  request.set_train_samples(0);
  EXPECT_EQ(master_->Register(request).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(MasterTest, MostWorkersDecideTheDataAgainstAFirstOne) {
  for (const bool names : {false, true}) {
    v1::Job job = MakeJob({.workers = 3});
    job.mutable_data()->mutable_image_folder();
    Start(job);
    v1::RegisterRequest wrong = Registration();
    names ? wrong.set_class_names(5) : wrong.set_train_samples(UINT32_MAX);
    ASSERT_TRUE(master_->Register(wrong).ok());
    v1::RegisterRequest right = Registration();
    right.set_pid(8);
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(IsNotReady(master_->Register(right).status()));
    right.set_pid(9);
    EXPECT_TRUE(master_->Register(right).ok()) << "two of the job's three workers agree";
    EXPECT_THAT(FreshEvents(), Contains(HasSubstr("worker 0 (host:7) has other data than 2 of the")));
    right.set_pid(8);
    EXPECT_TRUE(master_->Register(right).ok());
    EXPECT_EQ(master_->members().num_workers(), 2);
    EXPECT_TRUE(IsNotReady(master_->Register(wrong).status()));
    EXPECT_EQ(master_->leases().total_samples(), kSamples);
  }
}

TEST_F(MasterTest, OnlyImageFoldersHaveNamesOfClasses) {
  Start(MakeJob({}));
  for (const v1::Role role : {v1::EVALUATOR, v1::WORKER}) {
    v1::RegisterRequest request = Registration(role);
    request.set_class_names(7);
    EXPECT_EQ(master_->Register(request).status().code(), absl::StatusCode::kFailedPrecondition);
  }
  EXPECT_TRUE(master_->Register(Registration()).ok());
}

TEST_F(MasterTest, WorkersDecideTheNamesOfClasses) {
  v1::Job job = MakeJob({.workers = 2});
  job.mutable_data()->mutable_image_folder();
  Start(job);
  v1::RegisterRequest evaluator = Registration(v1::EVALUATOR);
  evaluator.set_class_names(8);
  ASSERT_TRUE(master_->Register(evaluator).ok()) << "no worker is there to disagree";
  v1::RegisterRequest worker = Registration();
  worker.set_class_names(7);
  ASSERT_TRUE(master_->Register(worker).ok());
  EXPECT_THAT(FreshEvents(), Contains(HasSubstr("evaluator 0 (host:7) has classes of other names")));
  const absl::Status status = master_->Register(evaluator).status();
  EXPECT_TRUE(IsNotReady(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("the evaluator (host:7) waits, because it has classes of other names than worker 0"));
  evaluator.set_class_names(7);
  EXPECT_TRUE(master_->Register(evaluator).ok());
}

TEST_F(MasterTest, AResumedJobKnowsItsClasses) {
  v1::MasterState state;
  state.set_train_samples(kSamples);
  state.set_class_names(7);
  v1::Job job = MakeJob({});
  job.mutable_data()->mutable_image_folder();
  Start(job, 1, state);
  EXPECT_EQ(master_->Register(Registration()).status().code(), absl::StatusCode::kFailedPrecondition);
  v1::RegisterRequest request = Registration();
  request.set_class_names(7);
  EXPECT_TRUE(master_->Register(request).ok());
}

TEST_F(MasterTest, DataOfWorkersThatAreGoneAreForgotten) {
  v1::RegisterRequest request = Registration();
  request.set_train_samples(UINT32_MAX);
  for (const bool synchronous : {false, true}) {
    for (const uint32_t workers : {1, 2}) {  // one begins alone
      Start(MakeJob({.synchronous = synchronous, .workers = workers, .epochs = 2}));
      for (const bool leaves : {true, false}) {
        const absl::StatusOr<v1::RegisterReply> reply = master_->Register(request);
        ASSERT_TRUE(reply.ok()) << reply.status();
        EXPECT_TRUE(IsNotReady(master_->Register(Registration()).status()));
        Exchange();
        if (leaves) {
          Leave({.index = reply->worker(), .incarnation = reply->incarnation(), .lease = {}, .progress = {}});
        } else {
          clock_.Advance(11);
          master_->Tick();
        }
        EXPECT_EQ(master_->members().num_workers(), 0);
        Exchange();
      }
      if (workers == 1) {
        TrainAlone();
        EXPECT_EQ(master_->Status().samples(), 2 * kSamples);
      } else {
        Join();
        EXPECT_EQ(master_->leases().total_samples(), 2 * kSamples);
      }
    }
  }
}

TEST_F(MasterTest, DataAreThoseOfTheFirstWorkerThatWasAssignedSamples) {
  for (const bool synchronous : {false, true}) {
    Start(MakeJob({.synchronous = synchronous}));
    Worker worker = Join();
    ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
    Leave(worker);
    Exchange();
    v1::RegisterRequest request = Registration();
    request.set_train_samples(kSamples + 1);
    EXPECT_EQ(master_->Register(request).status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_TRUE(master_->Register(Registration()).ok());
  }
}

TEST_F(MasterTest, TheJobStatesHowManySamplesItsDataHave) {
  const auto start_with = [this](const std::string& data) {
    v1::Job job = MakeJob({});
    ASSERT_TRUE(google::protobuf::TextFormat::ParseFromString(data, job.mutable_data())) << data;
    Start(job);
  };
  for (const char* data :
       {"synthetic { samples: 100 }", "external { train_samples: 100 }",
        "drawn_digits { train_samples: 100 }", "generated_images { train_samples: 100 }"}) {
    start_with(data);
    v1::RegisterRequest request = Registration();
    for (const uint64_t samples : {uint64_t{99}, uint64_t{UINT32_MAX}}) {
      request.set_train_samples(samples);
      const absl::Status status = master_->Register(request).status();
      EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << data;
      EXPECT_THAT(std::string(status.message()),
                  HasSubstr("training samples, and the job's data have 100; start workers"));
    }
    EXPECT_TRUE(master_->Register(Registration()).ok()) << data;
  }
  start_with("mnist {}");
  EXPECT_THAT(std::string(master_->Register(Registration()).status().message()),
              HasSubstr("100 training samples, and the job's data have 60000"));
  for (const char* data : {"cifar10 {}", "table { train: 'rows.csv' }"}) {
    start_with(data);
    EXPECT_TRUE(master_->Register(Registration()).ok()) << "a worker counts them: " << data;
  }
}

TEST_F(MasterTest, AResumedJobKnowsItsData) {
  v1::MasterState state;
  state.set_train_samples(kSamples + 5);
  Start(MakeJob({}), 1, state);
  EXPECT_EQ(master_->Command().total_samples(), kSamples + 5);
  EXPECT_EQ(master_->Register(Registration()).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(MasterTest, RefusesADamagedState) {
  v1::MasterState state;
  state.set_train_samples(10);
  state.set_next_position(11);
  EXPECT_EQ(Master::Create(MakeJob({}), Tensors(), 1, &clock_, state).status().code(),
            absl::StatusCode::kInvalidArgument);
}

TEST_F(MasterTest, EvaluatorsNeedNoTrainingSamples) {
  Start(MakeJob({}));
  Join(v1::EVALUATOR);
  EXPECT_EQ(master_->Command().total_samples(), 0u) << "an evaluator does not say how much data there is";
}

// ---------------------------------------------------------------------------------------- losses, leaves

TEST_F(MasterTest, ALostWorkerIsUnknownAndItsSamplesGoToOthers) {
  Start(MakeJob({.synchronous = false, .workers = 2}));
  Worker lost = Join();
  Worker kept = Join();
  ASSERT_EQ(Next(&lost), v1::Lease::GRANTED);
  clock_.Advance(6);
  ASSERT_TRUE(Beat(kept).ok());
  clock_.Advance(6);
  master_->Tick();
  EXPECT_EQ(Beat(lost).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Ask(lost, 1).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(master_->Command().rosters(0).members_size(), 1);
  EXPECT_THAT(master_->Status().events(),
              Contains("worker 0 (host:7) sent no heartbeat for 12.0 s: considered lost; "
                       "its samples are assigned to other workers"));
  Exchange();
  ASSERT_EQ(Next(&kept), v1::Lease::GRANTED);
  EXPECT_EQ(kept.lease.minibatches(0).spans(0).begin(), 0u);
  const Worker back = Join();
  EXPECT_EQ(back.index, 0u);
  EXPECT_EQ(back.incarnation, 3u);
}

// The kernel closes a killed process's connections at once: no worker waits for the rest of its lease.
TEST_F(MasterTest, SynchronousJobGoesOnSoonAfterTheConnectionOfALostWorkerBroke) {
  Start(MakeJob({.workers = 2}));
  Worker lost = Join();
  Worker kept = Join();
  ASSERT_EQ(Next(&lost), v1::Lease::GRANTED);
  ASSERT_EQ(Next(&kept), v1::Lease::GRANTED);
  ASSERT_TRUE(Beat(lost).ok());
  shards_[1].Disconnect(lost.incarnation);
  shards_[1].Disconnect(kept.incarnation);
  for (int beats = 0; beats < 3; ++beats) {
    Exchange();
    clock_.Advance(0.5);
    ASSERT_TRUE(Beat(kept).ok());
    master_->Tick();
  }
  EXPECT_EQ(master_->members().num_workers(), 2) << "it may still be heard of";
  clock_.Advance(0.1);
  master_->Tick();
  EXPECT_EQ(master_->members().num_workers(), 1);
  EXPECT_THAT(master_->Status().events(),
              Contains(HasSubstr("worker 0 (host:7) lost its connection to server 1")));
  EXPECT_TRUE(Beat(kept).ok()) << "a live worker opens another connection";
  Exchange();
  DoLease({&kept});
  EXPECT_GT(shards_[0].version(), 0u);
}

// Workers of a large job are heard of less often.
TEST_F(MasterTest, DisconnectedWorkerMayMissThreeHeartbeatsHoweverManyWorkersThereAre) {
  Start(MakeJob({.synchronous = false, .workers = 500}));
  std::vector<Worker> workers;
  for (int i = 0; i < 500; ++i) workers.push_back(Join());
  Exchange();
  shards_[0].Disconnect(workers[7].incarnation);
  Exchange();
  clock_.Advance(7.5);
  master_->Tick();
  EXPECT_EQ(master_->members().num_workers(), 500);
  clock_.Advance(0.1);
  master_->Tick();
  EXPECT_EQ(master_->members().num_workers(), 499);
}

TEST_F(MasterTest, WaitsForNewWorkersWhenAllHaveLeft) {
  Start(MakeJob({}));
  Worker worker = Join();
  ASSERT_EQ(Next(&worker), v1::Lease::GRANTED);
  Leave(worker, "drained");
  EXPECT_EQ(master_->Status().phase(), v1::JobStatus::WAITING);
  EXPECT_THAT(master_->Status().reason(), HasSubstr("waiting for new workers"));
  EXPECT_THAT(master_->Status().events(), Contains("worker 0 (host:7) left: drained"));
  TrainAlone();
  EXPECT_EQ(master_->Status().phase(), v1::JobStatus::FINISHING);
  EXPECT_EQ(master_->Status().samples(), kSamples);
}

TEST_F(MasterTest, FailsWhenTheLastWorkerHasFailed) {
  Start(MakeJob({.workers = 2}));
  const Worker first = Join();
  const Worker second = Join();
  Leave(first, "out of memory", true);
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::TRAINING) << "another one is left";
  Leave(second, "the loss is NaN", true);
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::FINISHING) << "a last checkpoint is saved";
  Exchange();
  Exchange();
  EXPECT_EQ(master_->state_machine().phase(), v1::JobStatus::FAILED);
  EXPECT_THAT(master_->Status().reason(), HasSubstr("worker 1 (host:7), failed: the loss is NaN"));
  EXPECT_EQ(master_->Register(Registration()).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(MasterTest, WorkerThatLeavesAgainAndAgainDoesNotFillTheLog) {
  const std::string reason =
      absl::StrCat(std::string(900, 'x'), "\nE20261125 master_host.cc:1] the job failed\u202e\u009b");
  for (const bool alone : {false, true}) {  // alone, it begins and interrupts training
    Start(MakeJob({.workers = 1, .epochs = 2}));
    std::optional<Worker> other;
    if (!alone) other = Join();
    size_t bytes = 0, lines = 0;
    std::string last;
    const auto take = [&] {
      for (const std::string& event : FreshEvents()) {
        EXPECT_THAT(event, Not(AnyOf(HasSubstr("\n"), HasSubstr("\u202e"), HasSubstr("\u009b"))));
        bytes += event.size();
        ++lines;
        last = event;
      }
    };
    for (int i = 0; i < 10'000; ++i) {
      Leave(Join(), reason);
      if (i % 250 == 249) {  // the rate of one address
        clock_.Advance(1);
        Exchange();
        if (other) {
          ASSERT_TRUE(Beat(*other).ok());
        }
        master_->Tick();
        take();
      }
    }
    EXPECT_LT(lines, 2200u);
    EXPECT_LT(bytes, 2u << 20);
    clock_.Advance(2);
    master_->Tick();
    take();
    EXPECT_THAT(last, HasSubstr(" further events of members are left out"));
    master_->Stop("enough");
    take();
    EXPECT_THAT(last, Not(HasSubstr("left out"))) << "events of the job are always there";
  }
}

TEST_F(MasterTest, LeavingTwiceDoesNoHarm) {
  Start(MakeJob({.workers = 2}));
  const Worker first = Join();
  Join();
  Leave(first);
  const Worker other = Join();
  ASSERT_EQ(other.index, first.index);
  Leave(first);
  EXPECT_TRUE(Beat(other).ok());
}

}  // namespace
}  // namespace catchment
