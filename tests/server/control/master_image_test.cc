// A master that is restored from an image has everything of it, whatever its values.
#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/base/latency_histogram.h"
#include "server/control/check_image.h"
#include "server/control/master.h"
#include "server/control/span.h"
#include "tests/server/control/testing.h"

namespace catchment {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

// Sets all fields of messages to values that differ from each other and from the defaults.
class Filler {
 public:
  void Fill(Message* message) {
    const google::protobuf::Descriptor* const type = message->GetDescriptor();
    for (int f = 0; f < type->field_count(); ++f) {
      const FieldDescriptor* const field = type->field(f);
      if (field->is_map()) {
        FillMap(message, field);
      } else if (field->is_repeated()) {
        Add(message, field);
        Add(message, field);
      } else if (field->real_containing_oneof() == nullptr) {
        Set(message, field);
      }
    }
  }

 private:
  static void FillMap(Message* message, const FieldDescriptor* field) {
    if (auto* const master = dynamic_cast<v1::MasterImage*>(message)) {
      ASSERT_EQ(field->name(), "times_stuck");
      (*master->mutable_times_stuck())["node:7"] = 3;
      return;
    }
    auto* const image = dynamic_cast<v1::StateCollectionImage*>(message);
    ASSERT_NE(image, nullptr) << field->full_name();
    (*image->mutable_awaited())[501] = 3;
    (*image->mutable_saved())[502] = 4;
  }

  void Set(Message* message, const FieldDescriptor* field) {
    const google::protobuf::Reflection* const to = message->GetReflection();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Fill(to->MutableMessage(message, field));
      case FieldDescriptor::CPPTYPE_BOOL:
        return to->SetBool(message, field, true);
      case FieldDescriptor::CPPTYPE_ENUM:
        return to->SetEnumValue(message, field, 1);
      case FieldDescriptor::CPPTYPE_UINT32:
        return to->SetUInt32(message, field, static_cast<uint32_t>(++last_));
      case FieldDescriptor::CPPTYPE_UINT64:
        return to->SetUInt64(message, field, ++last_);
      case FieldDescriptor::CPPTYPE_INT64:
        return to->SetInt64(message, field, static_cast<int64_t>(++last_));
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return to->SetDouble(message, field, static_cast<double>(++last_) + 0.5);
      case FieldDescriptor::CPPTYPE_STRING:
        return to->SetString(message, field, "text " + std::to_string(++last_));
      default:
        FAIL() << "a field of another type: " << field->full_name();
    }
  }

  void Add(Message* message, const FieldDescriptor* field) {
    const google::protobuf::Reflection* const to = message->GetReflection();
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        return Fill(to->AddMessage(message, field));
      case FieldDescriptor::CPPTYPE_UINT32:
        return to->AddUInt32(message, field, static_cast<uint32_t>(++last_));
      case FieldDescriptor::CPPTYPE_UINT64:
        return to->AddUInt64(message, field, ++last_);
      case FieldDescriptor::CPPTYPE_DOUBLE:
        return to->AddDouble(message, field, static_cast<double>(++last_));
      case FieldDescriptor::CPPTYPE_FLOAT:
        return to->AddFloat(message, field, static_cast<float>(++last_));
      case FieldDescriptor::CPPTYPE_STRING:
        return to->AddString(message, field, "text " + std::to_string(++last_));
      default:
        FAIL() << "a repeated field of another type: " << field->full_name();
    }
  }

  uint64_t last_ = 100;
};

v1::StepsImage Steps(uint64_t epoch, uint64_t begin) {
  v1::StepsImage image;
  AddStep({{epoch, begin, begin + 4}}, &image);
  AddStep({{epoch, begin + 4, begin + 8}}, &image);
  AddStep({}, &image);
  AddStep({{epoch, begin + 20, begin + 21}, {epoch + 1, 0, 2}}, &image);
  return image;
}

// Fields whose values are not independent of each other.
void MakeConsistent(v1::MasterImage* image) {
  uint64_t epoch = 0;
  for (v1::MemberImage& member : *image->mutable_membership()->mutable_members())
    *member.mutable_lease_steps() = Steps(++epoch, 1);
  for (v1::LeavingImage& leaving : *image->mutable_leaving())
    *leaving.mutable_worker()->mutable_lease_steps() = Steps(++epoch, 1);
  image->mutable_state_machine()->set_state(static_cast<uint32_t>(JobStateMachine::State::kTraining));
  image->mutable_state_machine()->set_outcome(1);
  LatencyHistogram round_trips;
  round_trips.Add(100, 7);
  round_trips.Add(900, 8);
  v1::WorkTotalsImage* const work = image->mutable_work();
  work->clear_round_trip_us();
  work->clear_round_trip_counts();
  round_trips.ForEach([work](uint64_t microseconds, uint64_t count) {
    work->add_round_trip_us(microseconds);
    work->add_round_trip_counts(count);
  });
  // Not known before the checkpoint is complete.
  image->mutable_held()->clear_state();
  // Kept with the evaluation's report (EvaluationReports).
  image->mutable_evaluations()->mutable_last()->clear_statistics();
}

void FillSource(v1::SampleSourceImage* source) {
  source->clear_returned();
  *source->add_returned() = ToProto({0, 3, 5});
  *source->add_returned() = ToProto({1, 2, 9});
}

class MasterImageTest : public testing::TestWithParam<bool> {};

TEST_P(MasterImageTest, IsRestoredWhateverItsValues) {
  const bool synchronous = GetParam();
  v1::Job job = MakeJob({.synchronous = synchronous});
  job.mutable_optimizer()->mutable_schedule()->set_decay(v1::Schedule::PLATEAU);
  v1::MasterImage image;
  Filler filler;
  filler.Fill(&image);
  if (synchronous) {
    filler.Fill(image.mutable_plans());
    FillSource(image.mutable_plans()->mutable_source());
    uint64_t epoch = 10;
    for (v1::PlanLedgerImage::Plan& plan : *image.mutable_plans()->mutable_plans())
      *plan.mutable_steps() = Steps(++epoch, 5);
  } else {
    filler.Fill(image.mutable_leases());
    FillSource(image.mutable_leases()->mutable_source());
    uint64_t epoch = 10;
    for (v1::LeaseLedgerImage::Holder& holder : *image.mutable_leases()->mutable_holders())
      *holder.mutable_kept() = Steps(++epoch, 5);
  }
  MakeConsistent(&image);
  SettableClock clock;
  const std::unique_ptr<Master> master = Master::Restore(job, {{"w", {64}}}, 2, &clock, image, 0);
  google::protobuf::util::MessageDifferencer differencer;
  differencer.set_float_comparison(google::protobuf::util::MessageDifferencer::APPROXIMATE);
  std::string differences;
  differencer.ReportDifferencesToString(&differences);
  EXPECT_TRUE(differencer.Compare(image, master->Save())) << differences;
}

INSTANTIATE_TEST_SUITE_P(Ledgers, MasterImageTest, testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "Plans" : "Leases"); });

// A master whose two workers train.
std::unique_ptr<Master> Training(const v1::Job& job, const Clock& clock) {
  std::unique_ptr<Master> master = *Master::Create(job, {{"w", {64}}}, 2, &clock, std::nullopt);
  v1::RegisterRequest request;
  request.set_train_samples(100);
  v1::TensorInfo* const tensor = request.add_tensors();
  tensor->set_name("w");
  tensor->add_shape(64);
  std::vector<v1::GetLeaseRequest> leases;
  for (int worker = 0; worker < 2; ++worker) {
    const absl::StatusOr<v1::RegisterReply> reply = master->Register(request);
    EXPECT_TRUE(reply.ok()) << reply.status();
    leases.emplace_back().set_worker(reply->worker());
    leases.back().set_incarnation(reply->incarnation());
  }
  for (int round = 0; round < 3; ++round) {
    for (const v1::GetLeaseRequest& lease : leases) EXPECT_TRUE(master->GetLease(lease).ok());
    for (uint32_t shard = 0; shard < 2; ++shard) {
      v1::ShardReport report;
      report.set_shard(shard);
      report.set_generation(master->leases().generation());
      EXPECT_TRUE(master->OnShardReport(report).ok());
    }
  }
  return master;
}

using ChangeImage = std::function<void(v1::MasterImage*)>;

// Each of them would end the master that is restored from it, now or later, or take its memory.
const std::vector<ChangeImage> kOfBoth = {
    [](auto* image) { image->set_train_samples(0); },
    [](auto* image) { image->set_train_samples(UINT64_MAX); },
    [](auto* image) { image->clear_ledger(); },
    [](auto* image) { image->mutable_state_machine()->set_state(8); },
    [](auto* image) { image->mutable_state_machine()->set_outcome(3); },
    [](auto* image) { image->mutable_state_machine()->set_trained_seconds(NAN); },
    [](auto* image) { image->mutable_state_machine()->set_seconds_in_state(-1); },
    [](auto* image) { image->mutable_schedule()->set_seconds_since(INFINITY); },
    [](auto* image) { image->mutable_schedule()->mutable_last()->set_number(UINT64_MAX); },
    [](auto* image) { image->mutable_evaluations()->set_due(UINT64_MAX); },
    [](auto* image) { image->mutable_plateau()->set_factor(NAN); },
    [](auto* image) { image->mutable_plateau()->set_factor(2); },
    [](auto* image) { image->set_granted(UINT64_MAX); },
    [](auto* image) { image->mutable_rosters()->set_generation(UINT64_MAX); },
    [](auto* image) { image->mutable_membership()->set_next_incarnation(UINT64_MAX); },
    [](auto* image) { image->mutable_membership()->set_next_incarnation(1); },
    [](auto* image) { image->mutable_membership()->mutable_members(0)->set_index(UINT32_MAX); },
    [](auto* image) { image->mutable_membership()->mutable_members(0)->set_role(static_cast<v1::Role>(7)); },
    [](auto* image) { *image->mutable_membership()->add_members() = image->membership().members(0); },
    [](auto* image) { image->mutable_membership()->add_held_indices(UINT32_MAX); },
    [](auto* image) {
      image->mutable_membership()->mutable_members(0)->mutable_lease_steps()->set_sizes(1, UINT64_MAX);
    },
    [](auto* image) { (*image->mutable_states()->mutable_awaited())[1] = UINT32_MAX; },
    [](auto* image) { image->mutable_held()->set_number(3); },
    [](auto* image) {
      for (int shard = 0; shard < 2; ++shard)
        image->mutable_held()->add_shards()->set_file("../../somewhere");
    },
    [](auto* image) { image->add_complete()->set_number(3); },
    [](auto* image) {
      *image->add_leaving()->mutable_worker()->mutable_lease_steps() = Steps(UINT64_MAX, 1);
    },
};

const std::vector<ChangeImage> kOfLeases = {
    [](auto* image) { image->mutable_leases()->mutable_source()->set_next_position(100); },
    [](auto* image) { image->mutable_leases()->mutable_source()->set_next_epoch(UINT64_MAX); },
    [](auto* image) {
      *image->mutable_leases()->mutable_source()->add_returned() = ToProto({0, 0, 1});
    },
    [](auto* image) {
      *image->mutable_leases()->mutable_source()->add_returned() = ToProto({0, 99, 100});
    },
    [](auto* image) {
      *image->mutable_leases()->mutable_source()->add_returned() = ToProto({0, 5, 3});
    },
    [](auto* image) { *image->mutable_leases()->add_holders() = image->leases().holders(0); },
    [](auto* image) { image->mutable_leases()->mutable_holders(0)->set_done(100); },
    [](auto* image) { image->mutable_leases()->mutable_holders(0)->set_first(UINT64_MAX); },
    [](auto* image) { image->mutable_leases()->mutable_holders(0)->set_gone(true); },
    [](auto* image) { image->mutable_leases()->mutable_holders(0)->set_most(0); },
    [](auto* image) {
      v1::StepsImage* const kept = image->mutable_leases()->mutable_holders(0)->mutable_kept();
      kept->set_sizes(0, 0);
      kept->set_sizes(1, UINT64_MAX);
    },
    [](auto* image) { image->mutable_leases()->mutable_holders(0)->mutable_kept()->add_sizes(1); },
    [](auto* image) { image->mutable_leases()->set_open_samples(1); },
    [](auto* image) { image->mutable_leases()->set_open_minibatches(0); },
    [](auto* image) { image->mutable_leases()->set_assigned_minibatches(0); },
};

const std::vector<ChangeImage> kOfPlans = {
    [](auto* image) { image->mutable_plans()->mutable_source()->set_next_position(100); },
    [](auto* image) {
      *image->mutable_plans()->mutable_source()->add_returned() = ToProto({0, 0, 1});
    },
    [](auto* image) { image->mutable_plans()->mutable_plans(0)->clear_participants(); },
    [](auto* image) { image->mutable_plans()->mutable_plans(0)->mutable_participants(0)->set_done(1000); },
    [](auto* image) { image->mutable_plans()->mutable_plans(0)->mutable_participants(0)->set_holder(77); },
    [](auto* image) {
      *image->mutable_plans()->mutable_plans(0)->add_participants() = image->plans().plans(0).participants(0);
    },
    [](auto* image) { image->mutable_plans()->mutable_plans(0)->set_first_step(3); },
    [](auto* image) { *image->mutable_plans()->add_plans() = image->plans().plans(0); },
    [](auto* image) { image->mutable_plans()->clear_plans(); },
    [](auto* image) { image->mutable_plans()->set_next_step(0); },
    [](auto* image) { image->mutable_plans()->set_budget_steps(0); },
    [](auto* image) { image->mutable_plans()->set_open_samples(0); },
    [](auto* image) { image->mutable_plans()->mutable_holders(0)->set_leases(0, 999); },
    [](auto* image) { image->mutable_plans()->mutable_holders(0)->set_done(9); },
    [](auto* image) { image->mutable_plans()->mutable_holders(0)->set_forgotten(1); },
    [](auto* image) {
      image->mutable_plans()->mutable_holders(0)->set_done(UINT64_MAX);
      image->mutable_plans()->mutable_holders(0)->set_forgotten(UINT64_MAX);
    },
    [](auto* image) { *image->mutable_plans()->add_holders() = image->plans().holders(0); },
};

TEST_P(MasterImageTest, OneThatNoMasterCanHaveWrittenIsRefused) {
  const bool synchronous = GetParam();
  const SettableClock clock;
  const v1::Job job = MakeJob({.synchronous = synchronous, .workers = 2});
  const v1::MasterImage sound = Training(job, clock)->Save();
  ASSERT_TRUE(CheckMasterImage(sound, job, 2).ok()) << CheckMasterImage(sound, job, 2);
  ASSERT_TRUE(synchronous ? sound.plans().holders_size() == 2 : sound.leases().holders_size() == 2)
      << sound.DebugString();
  for (const auto* const changes : {&kOfBoth, synchronous ? &kOfPlans : &kOfLeases}) {
    for (size_t i = 0; i < changes->size(); ++i) {
      v1::MasterImage image = sound;
      (*changes)[i](&image);
      EXPECT_EQ(CheckMasterImage(image, job, 2).code(), absl::StatusCode::kInvalidArgument)
          << "change " << i << ": " << image.DebugString();
    }
  }
}

TEST(MasterImage, CopiesOfAnotherRunOrOfOtherServersAreRefused) {
  const SettableClock clock;
  const v1::Job job = MakeJob({.synchronous = false, .workers = 2});
  v1::MasterCopy copy;
  *copy.mutable_master() = Training(job, clock)->Save();
  copy.set_run_id(7);
  for (int server = 0; server < 2; ++server) copy.add_servers();
  EXPECT_TRUE(CheckMasterCopy(copy, job, 2, 7).ok());
  EXPECT_EQ(CheckMasterCopy(copy, job, 2, 8).message(),
            "the copy of the master's state is damaged: it is of another run");
  copy.mutable_servers(1)->set_offered_epoch(UINT64_MAX);
  EXPECT_FALSE(CheckMasterCopy(copy, job, 2, 7).ok());
  copy.mutable_servers()->RemoveLast();
  EXPECT_FALSE(CheckMasterCopy(copy, job, 2, 7).ok());
}

TEST(MasterImage, NextIncarnationIsAtLeastThatOfTheNewProcess) {
  v1::MasterImage image;
  image.set_train_samples(10);
  image.mutable_leases();
  image.mutable_membership()->set_next_incarnation(7);
  SettableClock clock;
  const v1::Job job = MakeJob({.synchronous = false});
  EXPECT_EQ(Master::Restore(job, {{"w", {64}}}, 1, &clock, image, 5)->members().next_incarnation(), 7u);
  EXPECT_EQ(Master::Restore(job, {{"w", {64}}}, 1, &clock, image, 9)->members().next_incarnation(), 9u);
}

}  // namespace
}  // namespace catchment
