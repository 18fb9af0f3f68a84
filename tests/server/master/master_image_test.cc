// A master that is restored from an image has everything of it, whatever its values.
#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/latency_histogram.h"
#include "server/master/master.h"
#include "server/master/span.h"
#include "tests/server/master/testing.h"

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
  ManualClock clock;
  const std::unique_ptr<Master> master = Master::Restore(job, {{"w", {64}}}, 2, &clock, image, 0);
  google::protobuf::util::MessageDifferencer differencer;
  differencer.set_float_comparison(google::protobuf::util::MessageDifferencer::APPROXIMATE);
  std::string differences;
  differencer.ReportDifferencesToString(&differences);
  EXPECT_TRUE(differencer.Compare(image, master->Save())) << differences;
}

INSTANTIATE_TEST_SUITE_P(Ledgers, MasterImageTest, testing::Bool(),
                         [](const auto& info) { return std::string(info.param ? "Plans" : "Leases"); });

TEST(MasterImage, NextIncarnationIsAtLeastThatOfTheNewProcess) {
  v1::MasterImage image;
  image.set_train_samples(10);
  image.mutable_leases();
  image.mutable_membership()->set_next_incarnation(7);
  ManualClock clock;
  const v1::Job job = MakeJob({.synchronous = false});
  EXPECT_EQ(Master::Restore(job, {{"w", {64}}}, 1, &clock, image, 5)->next_incarnation(), 7u);
  EXPECT_EQ(Master::Restore(job, {{"w", {64}}}, 1, &clock, image, 9)->next_incarnation(), 9u);
}

}  // namespace
}  // namespace catchment
