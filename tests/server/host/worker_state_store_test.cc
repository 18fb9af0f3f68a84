#include "server/host/worker_state_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/checkpoint/manifest.h"
#include "tests/common/base/settable_clock.h"

namespace catchment {
namespace {

using testing::HasSubstr;

constexpr int64_t kValues = 600000;  // three parts of an answer
constexpr uint64_t kCheckpoint = 12;

std::vector<float> Ramp(float first) {
  std::vector<float> values(kValues);
  for (int64_t i = 0; i < kValues; ++i) values[i] = first + static_cast<float>(i);
  return values;
}

class WorkerStateStoreTest : public testing::Test {
 protected:
  WorkerStateStoreTest() {
    std::filesystem::remove_all(directory_);
    Open();
  }

  void Open() {
    store_ = std::make_unique<WorkerStateStore>(
        WorkerStateStore::Options{.directory = directory_, .num_values = kValues, .resumed = kCheckpoint},
        WorkerStateStore::Owner{
            .admit = [this](uint64_t incarnation, uint64_t checkpoint) -> absl::StatusOr<uint32_t> {
              EXPECT_EQ(checkpoint, kCheckpoint);
              if (incarnation >= 100) return absl::FailedPreconditionError("not wanted");
              return IndexOf(incarnation);
            },
            .index_of = [](uint64_t incarnation) { return IndexOf(incarnation); },
            .saved =
                [this](uint64_t incarnation, uint64_t, const absl::Status& status) {
                  MutexLock lock(&mu_);
                  saved_.emplace_back(incarnation, status.code());
                }},
        &clock_);
  }

  static absl::StatusOr<uint32_t> IndexOf(uint64_t incarnation) { return incarnation - 50; }

  static v1::SaveWorkerStateRequest Request(uint32_t worker) {
    v1::SaveWorkerStateRequest request;
    request.set_worker(worker);
    request.set_incarnation(worker + 50);
    request.set_checkpoint(kCheckpoint);
    return request;
  }
  static v1::SaveWorkerStateRequest Number(uint32_t worker, const std::string& name, uint64_t value) {
    v1::SaveWorkerStateRequest request = Request(worker);
    request.mutable_part()->set_name(name);
    request.mutable_part()->set_number(value);
    return request;
  }
  static v1::SaveWorkerStateRequest Part(uint32_t worker, const std::vector<float>& vector, int64_t begin,
                                         int64_t end) {
    v1::SaveWorkerStateRequest request = Request(worker);
    request.mutable_part()->set_name("velocity");
    v1::WorkerStatePart::Values* const values = request.mutable_part()->mutable_values();
    values->set_begin(begin);
    values->set_values(vector.data() + begin, (end - begin) * sizeof(float));
    return request;
  }

  std::future<absl::Status> StartSave(const v1::SaveWorkerStateRequest& request) {
    auto done = std::make_shared<std::promise<absl::Status>>();
    store_->Answer(MakeCall(request),
                   [done](const absl::StatusOr<v1::Reply>& reply) { done->set_value(reply.status()); });
    return done->get_future();
  }
  absl::Status Save(const v1::SaveWorkerStateRequest& request) { return StartSave(request).get(); }

  absl::StatusOr<v1::LoadWorkerStateReply> Load(uint32_t worker, uint64_t part) {
    v1::LoadWorkerStateRequest request;
    request.set_worker(worker);
    request.set_incarnation(worker + 50);
    request.set_part(part);
    std::promise<absl::StatusOr<v1::Reply>> done;
    store_->Answer(MakeCall(request),
                   [&done](absl::StatusOr<v1::Reply> reply) { done.set_value(std::move(reply)); });
    return TakeReply<v1::LoadWorkerStateReply>(done.get_future().get());
  }

  void SaveAll(uint32_t worker, const std::vector<float>& vector, uint64_t number) {
    EXPECT_EQ(Save(Number(worker, "steps", number)), absl::OkStatus());
    EXPECT_EQ(Save(Part(worker, vector, 0, 1000)), absl::OkStatus());
    EXPECT_EQ(Save(Part(worker, vector, 1000, kValues)), absl::OkStatus());
    EXPECT_EQ(Save(Request(worker)), absl::OkStatus());
  }

  std::vector<std::pair<uint64_t, absl::StatusCode>> saved() {
    MutexLock lock(&mu_);
    return saved_;
  }
  std::string FileOf(uint32_t worker) const {
    return CheckpointDirectory(directory_, kCheckpoint) + "/worker-" + std::to_string(worker) +
           ".safetensors";
  }

  const std::string directory_ = testing::TempDir() + "/worker_state_store";
  SettableClock clock_;
  Mutex mu_;
  std::vector<std::pair<uint64_t, absl::StatusCode>> saved_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<WorkerStateStore> store_;
};

TEST_F(WorkerStateStoreTest, GivesBackWhatWasSaved) {
  SaveAll(3, Ramp(0.5f), (uint64_t{1} << 60) + 1);
  SaveAll(4, Ramp(7), 2);
  for (const auto& [worker, first, steps] :
       {std::tuple(3u, 0.5f, (uint64_t{1} << 60) + 1), std::tuple(4u, 7.0f, uint64_t{2})}) {
    std::vector<float> vector(kValues, -1);
    uint64_t part = 0;
    uint64_t values = 0;
    while (true) {
      const auto reply = Load(worker, part++);
      ASSERT_TRUE(reply.ok()) << reply.status();
      if (!reply->has_part()) break;
      if (reply->part().has_number()) {
        EXPECT_EQ(reply->part().name(), "steps");
        EXPECT_EQ(reply->part().number(), steps);
        continue;
      }
      EXPECT_EQ(reply->part().name(), "velocity");
      const std::string& bytes = reply->part().values().values();
      ASSERT_LE(reply->part().values().begin() + bytes.size() / sizeof(float),
                static_cast<uint64_t>(kValues));
      std::memcpy(vector.data() + reply->part().values().begin(), bytes.data(), bytes.size());
      values += bytes.size() / sizeof(float);
    }
    EXPECT_EQ(values, static_cast<uint64_t>(kValues));
    EXPECT_GT(part, 4u) << "no answer is larger than a message should be";
    EXPECT_EQ(vector, Ramp(first));
  }
}

TEST_F(WorkerStateStoreTest, TakesAPartThatArrivesTwiceOnce) {
  const std::vector<float> vector = Ramp(1);
  EXPECT_EQ(Save(Part(0, vector, 0, 1000)), absl::OkStatus());
  EXPECT_EQ(Save(Part(0, vector, 0, 1000)), absl::OkStatus());
  EXPECT_EQ(Save(Part(0, vector, 1000, kValues)), absl::OkStatus());
  EXPECT_EQ(Save(Request(0)), absl::OkStatus());
  EXPECT_THAT(saved(), testing::ElementsAre(std::pair(uint64_t{50}, absl::StatusCode::kOk)));
}

TEST_F(WorkerStateStoreTest, AnotherWorkerWaitsForItsTurn) {
  const std::vector<float> vector = Ramp(1);
  EXPECT_EQ(Save(Part(0, vector, 0, 1000)), absl::OkStatus());
  std::future<absl::Status> other = StartSave(Number(1, "steps", 1));
  EXPECT_EQ(Save(Part(0, vector, 1000, kValues)), absl::OkStatus());
  EXPECT_EQ(other.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  EXPECT_EQ(Save(Request(0)), absl::OkStatus());
  EXPECT_EQ(other.get(), absl::OkStatus());
}

TEST_F(WorkerStateStoreTest, AWorkerThatSendsNothingMoreLosesItsTurn) {
  EXPECT_EQ(Save(Part(0, Ramp(1), 0, 1000)), absl::OkStatus());
  std::future<absl::Status> other = StartSave(Number(1, "steps", 1));
  clock_.Advance(WorkerStateStore::kTurnSeconds);
  EXPECT_EQ(other.get(), absl::OkStatus());
  EXPECT_THAT(saved(), testing::ElementsAre(std::pair(uint64_t{50}, absl::StatusCode::kDeadlineExceeded)));
}

TEST_F(WorkerStateStoreTest, RefusesWhatDoesNotFit) {
  const std::vector<float> vector = Ramp(1);
  // A gap, too many values, and an end that comes too early. After each the state has to begin again.
  EXPECT_EQ(Save(Part(0, vector, 5, 10)).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Save(Part(0, vector, 0, 10)), absl::OkStatus());
  v1::SaveWorkerStateRequest large = Part(0, vector, 10, kValues);
  large.mutable_part()->mutable_values()->mutable_values()->append(4, 'x');
  const absl::Status too_large = Save(large);
  EXPECT_EQ(too_large.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(too_large.message()), HasSubstr("velocity"));
  EXPECT_EQ(Save(Part(0, vector, 0, 10)), absl::OkStatus());
  EXPECT_THAT(std::string(Save(Request(0)).message()), HasSubstr("10 of 600000"));
  EXPECT_EQ(Save(Request(100)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(saved().size(), 3u) << "the owner hears of admitted states only";
  EXPECT_FALSE(std::filesystem::exists(FileOf(0)));
}

TEST_F(WorkerStateStoreTest, StateHasAtMostSoManyVectorsAndNumbers) {
  const std::vector<float> vector = Ramp(1);
  const auto named = [](v1::SaveWorkerStateRequest request, int index) {
    request.mutable_part()->set_name("part" + std::to_string(index));
    return request;
  };
  for (int i = 0; i < static_cast<int>(WorkerStateStore::kMaxNumbers); ++i)
    ASSERT_EQ(Save(named(Number(0, "", 1), i)), absl::OkStatus());
  ASSERT_EQ(Save(named(Number(0, "", 2), 0)), absl::OkStatus()) << "again";
  const absl::Status numbers = Save(named(Number(0, "", 1), WorkerStateStore::kMaxNumbers));
  EXPECT_EQ(numbers.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(numbers.message(), "a worker's state has more than 64 numbers; it is not saved");
  for (int i = 0; i < static_cast<int>(WorkerStateStore::kMaxVectors); ++i)
    ASSERT_EQ(Save(named(Part(0, vector, 0, 10), i)), absl::OkStatus());
  ASSERT_EQ(Save(named(Part(0, vector, 10, 20), 0)), absl::OkStatus());
  const absl::Status vectors = Save(named(Part(0, vector, 0, 10), WorkerStateStore::kMaxVectors));
  EXPECT_EQ(vectors.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(vectors.message(), "a worker's state has more than 16 vectors; it is not saved");
  EXPECT_FALSE(std::filesystem::exists(FileOf(0)));
  SaveAll(0, vector, 1);
}

TEST_F(WorkerStateStoreTest, PartsThatDoNotFitTakeNoPlace) {
  const std::vector<float> vector = Ramp(1);
  v1::SaveWorkerStateRequest empty = Request(0);
  empty.mutable_part()->set_name("velocity");
  EXPECT_EQ(Save(empty).code(), absl::StatusCode::kInvalidArgument) << "neither a number nor values";
  SaveAll(0, vector, 1);
  EXPECT_TRUE(std::filesystem::exists(FileOf(0)));
}

TEST_F(WorkerStateStoreTest, ADamagedOrMissingFileIsNamed) {
  SaveAll(0, Ramp(1), 1);
  {
    std::fstream file(FileOf(0), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-4, std::ios::end);
    file.write("\0\0\0\0", 4);
  }
  for (uint32_t worker : {0, 1}) {
    const auto reply = Load(worker, 0);
    EXPECT_EQ(reply.status().code(), absl::StatusCode::kDataLoss) << reply.status();
    EXPECT_THAT(std::string(reply.status().message()), HasSubstr(FileOf(worker)));
  }
}

TEST_F(WorkerStateStoreTest, AWorkerHasOnlyTheStateOfItsOwnIndex) {
  SaveAll(0, Ramp(1), 1);
  v1::SaveWorkerStateRequest request = Number(1, "steps", 7);
  request.set_worker(0);
  EXPECT_EQ(Save(request), absl::OkStatus());
  request.clear_part();
  EXPECT_EQ(Save(request), absl::OkStatus());
  EXPECT_TRUE(std::filesystem::exists(FileOf(1)));
  EXPECT_EQ(Load(1, 0)->part().number(), 7u);
  EXPECT_FALSE(Load(1, 1)->has_part());
  EXPECT_EQ(Load(0, 0)->part().number(), 1u) << "that of worker 0 is unchanged";
}

TEST_F(WorkerStateStoreTest, PartsAreReadInOrder) {
  SaveAll(0, Ramp(1), 1);
  EXPECT_EQ(Load(0, 1).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(Load(0, UINT64_MAX).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(Load(0, 0)->has_part());
  EXPECT_TRUE(Load(0, 1)->has_part());
  EXPECT_TRUE(Load(0, 1)->has_part()) << "its answer was lost";
  EXPECT_EQ(Load(0, 0).status().code(), absl::StatusCode::kInvalidArgument);
  for (uint64_t part = 2; Load(0, part)->has_part(); ++part) {
  }
  std::filesystem::remove(FileOf(0));
  for (const uint64_t part : {uint64_t{0}, uint64_t{1}, UINT64_MAX})
    EXPECT_FALSE(Load(0, part)->has_part()) << "the file is not read again";
}

TEST_F(WorkerStateStoreTest, AnotherWorkerLoadsInItsTurn) {
  SaveAll(0, Ramp(1), 1);
  SaveAll(1, Ramp(2), 2);
  EXPECT_TRUE(Load(0, 0)->has_part());
  std::future<uint64_t> other =
      std::async(std::launch::async, [this] { return Load(1, 0)->part().number(); });
  EXPECT_EQ(other.wait_for(std::chrono::milliseconds(1)), std::future_status::timeout);
  for (uint64_t part = 1; Load(0, part)->has_part(); ++part) {
  }
  EXPECT_EQ(other.get(), 2u);
  std::future<bool> next = std::async(std::launch::async, [this] { return Load(2, 0).ok(); });
  clock_.Advance(WorkerStateStore::kTurnSeconds);
  EXPECT_FALSE(next.get()) << "it has no state";
}

TEST_F(WorkerStateStoreTest, TheEndAnswersAll) {
  EXPECT_EQ(Save(Part(0, Ramp(1), 0, 1000)), absl::OkStatus());
  std::future<absl::Status> other = StartSave(Number(1, "steps", 1));
  store_->End();
  EXPECT_EQ(other.get().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Save(Number(2, "steps", 1)).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace catchment
