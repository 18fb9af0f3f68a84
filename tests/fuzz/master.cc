// Calls of members and reports of shards to a master, in any order, which is restored now and then from its
// image, with fields that the input has changed. Whatever is refused, the master must keep its accounts: no
// more samples done than there are.
//
// Input: the kind of job; then calls, each with the byte of its kind. The fields of a message are protobuf's
// bytes, of which those that name the sender are mostly replaced by a member's.
#include "server/control/master.h"

#include <glog/logging.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "common/base/file_access.h"
#include "server/control/check_image.h"
#include "tests/fuzz/input.h"
#include "tests/server/control/testing.h"

namespace catchment {
namespace {

constexpr int kShards = 2;
constexpr int kMaxSteps = 150;
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
    options.push_period = (kind & 128) != 0 ? 3 : 1;
    job_ = MakeJob(options);
    absl::StatusOr<std::unique_ptr<Master>> master =
        Master::Create(job_, {{"w", {3}}}, kShards, &clock_, std::nullopt);
    CHECK(master.ok()) << master.status();
    master_ = *std::move(master);
  }

  void Run() {
    for (int step = 0; step < kMaxSteps && !in_.empty() && !master_->state_machine().over(); ++step) {
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
    master_->leases().MayWait(request);
  }

  void Report() {
    auto report = Read<v1::ShardReport>();
    if (in_.Byte() != 0) {
      report.set_shard(in_.Below(kShards));
      report.set_generation(master_->leases().generation());
    }
    // As the edge makes sure (message_limits.h).
    for (v1::SavedShard& saved : *report.mutable_saved()) {
      if (!IsFileName(saved.file())) saved.set_file("shard");
    }
    master_->OnShardReport(report).IgnoreError();
  }

  void EvaluateAndKeep() {
    const auto report = ReadOfMember<v1::EvaluationReport>();
    master_->ReportEvaluation(report).status().IgnoreError();
    master_->evaluation().BestWanted(report.incarnation(), report.evaluation()).status().IgnoreError();
  }

  uint64_t ReadNumber(uint64_t before) {
    constexpr uint64_t kNumbers[] = {0, 1, 2, 3, 4, 1000, UINT32_MAX, 1ULL << 40, 1ULL << 62, UINT64_MAX};
    const uint8_t choice = in_.Byte();
    if (choice < std::size(kNumbers)) return kNumbers[choice];
    return choice % 2 == 0 ? before + choice % 8 : before - choice % 8;
  }

  double ReadDouble() {
    constexpr double kDoubles[] = {0, -1, 1e-300, 1, 1e300, INFINITY, -INFINITY, NAN};
    return kDoubles[in_.Below(std::size(kDoubles))];
  }

  // Changes, removes or doubles a field of the message, or of a message in it.
  void Change(google::protobuf::Message* message) {
    using google::protobuf::FieldDescriptor;
    const google::protobuf::Reflection& values = *message->GetReflection();
    const FieldDescriptor* const field =
        message->GetDescriptor()->field(static_cast<int>(in_.Below(message->GetDescriptor()->field_count())));
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (field->is_repeated()) {
      const int size = values.FieldSize(*message, field);
      const uint8_t how = in_.Byte();
      if (size == 0) return;
      if (how % 4 == 0) return values.RemoveLast(message, field);
      if (how % 4 == 1) return values.SwapElements(message, field, 0, how / 4 % size);
      const int at = how / 4 % size;
      if (is_message && how % 4 == 2 && !field->is_map()) {
        const std::unique_ptr<google::protobuf::Message> copy(
            values.GetRepeatedMessage(*message, field, at).New());
        copy->CopyFrom(values.GetRepeatedMessage(*message, field, at));
        return values.AddMessage(message, field)->CopyFrom(*copy);
      }
      if (is_message) return Change(values.MutableRepeatedMessage(message, field, at));
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_UINT64)
        values.SetRepeatedUInt64(message, field, at,
                                 ReadNumber(values.GetRepeatedUInt64(*message, field, at)));
      return;
    }
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return in_.Byte() == 0 ? values.ClearField(message, field)
                               : Change(values.MutableMessage(message, field));
      case FieldDescriptor::CPPTYPE_BOOL:
        return values.SetBool(message, field, !values.GetBool(*message, field));
      case FieldDescriptor::CPPTYPE_ENUM:
        return values.SetEnumValue(message, field, static_cast<int>(ReadNumber(1)));
      case FieldDescriptor::CPPTYPE_UINT32:
        return values.SetUInt32(message, field,
                                static_cast<uint32_t>(ReadNumber(values.GetUInt32(*message, field))));
      case FieldDescriptor::CPPTYPE_UINT64:
        return values.SetUInt64(message, field, ReadNumber(values.GetUInt64(*message, field)));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return values.SetDouble(message, field, ReadDouble());
      case FieldDescriptor::CPPTYPE_STRING:
        return values.SetString(message, field, std::string(in_.Text()));
      default:
        return;
    }
  }

  // The master's process is lost; the standby gives back its image, as it is or changed.
  void Continue() {
    if (!master_->state_machine().begun()) return;
    v1::MasterImage image = master_->Save();
    const absl::Status sound = CheckMasterImage(image, job_, kShards);
    // An image that was changed and passed may hold what its check does not look at.
    CHECK(sound.ok() || changed_) << sound << image.DebugString();
    for (uint32_t changes = in_.Below(4); changes > 0; --changes) {
      Change(&image);
      changed_ = true;
    }
    if (CheckMasterImage(image, job_, kShards).ok())
      master_ = Master::Restore(job_, {{"w", {3}}}, kShards, &clock_, image, 0);
  }

  void Step() {
    switch (in_.Below(13)) {
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
        for (const CompleteCheckpoint& checkpoint : master_->checkpoints().TakeComplete()) {
          master_->OnCheckpointRecorded(checkpoint.number, absl::OkStatus());
        }
        return;
      case 10:
        if (in_.Byte() % 16 == 0) master_->Stop("input");
        return;
      case 11:
        return Continue();
      default:
        clock_.Advance(in_.Byte() / 8.0);
        master_->Tick();
    }
  }

  void Check() {
    const v1::JobStatus status = master_->Status();
    CHECK_LE(master_->leases().done_samples(), master_->leases().total_samples());
    CHECK(std::isfinite(status.learning_rate())) << status.ShortDebugString();
    CHECK_LE(status.workers_size(), 100000);
    master_->Command();
    master_->events().TakeFresh();
  }

  FuzzInput in_;
  SettableClock clock_;
  v1::Job job_;
  bool changed_ = false;
  std::unique_ptr<Master> master_;
  std::vector<Sender> members_;
};

}  // namespace
}  // namespace catchment

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  catchment::Test(catchment::FuzzInput(data, size)).Run();
  return 0;
}
