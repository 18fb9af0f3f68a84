// Calls of members and reports of shards to a master, in any order. Whatever is refused, the master must keep its accounts:
// no more samples done than there are.
//
// Input: the kind of job; then calls, each with the byte of its kind. The fields of a message are protobuf's bytes, of
// which those that name the sender are mostly replaced by a member's.
#include "server/master/master.h"

#include <glog/logging.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "tests/fuzz/input.h"
#include "tests/server/master/testing.h"

namespace catchment {
namespace {

constexpr int kShards = 2;
constexpr int kMostSteps = 150;
constexpr uint64_t kTrainSamples = 40;

class Test {
 public:
  explicit Test(FuzzInput in) : in_(in) {
    JobOptions options;
    const uint8_t kind = in_.Byte();
    options.synchronous = (kind & 1) != 0;
    options.workers = 1 + (kind >> 1) % 3;
    options.epochs = 1 + (kind >> 3) % 3;
    options.every_updates = (kind & 64) != 0 ? 3 : 0;
    absl::StatusOr<std::unique_ptr<Master>> master =
        Master::Create(MakeJob(options), {{"w", {3}}}, kShards, &clock_, std::nullopt);
    CHECK(master.ok()) << master.status();
    master_ = *std::move(master);
  }

  void Run() {
    for (int step = 0; step < kMostSteps && !in_.empty() && !master_->Over(); ++step) {
      Step();
      Check();
    }
  }

 private:
  struct Sender {
    uint32_t worker = 0;
    uint64_t incarnation = 0;
  };

  template <typename Message>
  Message Read() {
    Message message;
    message.ParsePartialFromString(std::string(in_.Text()));
    return message;
  }

  // A message of a member, or of whoever its bytes name.
  template <typename Message>
  Message ReadOfMember() {
    Message message = Read<Message>();
    const uint8_t choice = in_.Byte();
    if (members_.empty() || choice == 255) return message;
    const Sender& sender = members_[choice % members_.size()];
    if constexpr (requires { message.set_worker(sender.worker); }) message.set_worker(sender.worker);
    message.set_incarnation(sender.incarnation);
    return message;
  }

  void Register() {
    auto request = Read<v1::RegisterRequest>();
    if (in_.Byte() != 0) {
      request.set_role(in_.Byte() % 4 == 0 ? v1::EVALUATOR : v1::WORKER);
      request.set_train_samples(kTrainSamples);
      request.clear_tensors();
      v1::TensorInfo* const tensor = request.add_tensors();
      tensor->set_name("w");
      tensor->add_shape(3);
    }
    const absl::StatusOr<v1::RegisterReply> reply = master_->Register(request);
    if (reply.ok()) members_.push_back({reply->worker(), reply->incarnation()});
  }

  void GetLease() {
    const auto request = ReadOfMember<v1::GetLeaseRequest>();
    master_->GetLease(request).status().IgnoreError();
    master_->MayWaitForLease(request);
  }

  void Report() {
    auto report = Read<v1::ShardReport>();
    if (in_.Byte() != 0) {
      report.set_shard(in_.Below(kShards));
      report.set_generation(master_->generation());
    }
    master_->OnShardReport(report).IgnoreError();
  }

  void EvaluateAndKeep() {
    const auto report = ReadOfMember<v1::EvaluationReport>();
    master_->ReportEvaluation(report).status().IgnoreError();
    master_->BestWanted(report.incarnation(), report.evaluation()).status().IgnoreError();
  }

  void Step() {
    switch (in_.Below(12)) {
      case 0:
        return Register();
      case 1:
        return master_->Heartbeat(ReadOfMember<v1::HeartbeatRequest>()).status().IgnoreError();
      case 2:
      case 3:
        return GetLease();
      case 4:
        master_->Leave(ReadOfMember<v1::LeaveRequest>());
        return;
      case 5:
        return master_->GetEvaluation(ReadOfMember<v1::GetEvaluationRequest>()).status().IgnoreError();
      case 6:
        return EvaluateAndKeep();
      case 7:
      case 8:
        return Report();
      case 9:
        for (const CompleteCheckpoint& checkpoint : master_->TakeCompleteCheckpoints()) {
          master_->OnCheckpointRecorded(checkpoint.number, absl::OkStatus());
        }
        return;
      case 10:
        if (in_.Byte() % 16 == 0) master_->Stop("input");
        return;
      default:
        clock_.Advance(in_.Byte() / 8.0);
        master_->Tick();
    }
  }

  void Check() {
    const v1::JobStatus status = master_->Status();
    CHECK_LE(master_->done_samples(), master_->total_samples());
    CHECK(std::isfinite(status.learning_rate())) << status.ShortDebugString();
    CHECK_LE(status.workers_size(), 100000);
    master_->Command();
    master_->TakeEvents();
  }

  FuzzInput in_;
  ManualClock clock_;
  std::unique_ptr<Master> master_;
  std::vector<Sender> members_;
};

}  // namespace
}  // namespace catchment

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  catchment::Test(catchment::FuzzInput(data, size)).Run();
  return 0;
}
