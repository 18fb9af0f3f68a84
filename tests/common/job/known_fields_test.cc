#include "common/job/job_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/job.pb.h"

namespace catchment {
namespace {

using testing::HasSubstr;

v1::Job SomeJob() {
  v1::Job job;
  job.set_name("known");
  job.mutable_model()->add_layers()->mutable_flatten();
  job.mutable_model()->add_layers()->mutable_dense()->set_units(3);
  job.mutable_optimizer()->set_kind(v1::Optimizer::ADAM);
  return job;
}

template <typename Message>
void AddUnknown(Message* message, int number) {
  message->GetReflection()->MutableUnknownFields(message)->AddVarint(number, 1);
}

TEST(CheckFieldsKnown, MessageOfThisBuildPasses) { EXPECT_TRUE(CheckFieldsKnown(SomeJob()).ok()); }

TEST(CheckFieldsKnown, UnknownFieldIsNamedAtEveryDepth) {
  v1::Job job = SomeJob();
  AddUnknown(&job, 9001);
  EXPECT_EQ(CheckFieldsKnown(job).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(CheckFieldsKnown(job).message()),
            "catchment.v1.Job has a field with number 9001, which this build does not know");
  job = SomeJob();
  AddUnknown(job.mutable_optimizer()->mutable_schedule(), 9002);
  EXPECT_THAT(std::string(CheckFieldsKnown(job).message()),
              HasSubstr("catchment.v1.Schedule has a field with number 9002"));
  job = SomeJob();
  AddUnknown(job.mutable_model()->mutable_layers(1)->mutable_dense(), 9003);
  EXPECT_THAT(std::string(CheckFieldsKnown(job).message()), HasSubstr("has a field with number 9003"));
}

TEST(CheckFieldsKnown, UnknownFieldSurvivesTheWire) {
  v1::Job job = SomeJob();
  AddUnknown(job.mutable_optimizer(), 9004);
  v1::Job received;
  ASSERT_TRUE(received.ParseFromString(job.SerializeAsString()));
  EXPECT_THAT(std::string(CheckFieldsKnown(received).message()),
              HasSubstr("catchment.v1.Optimizer has a field with number 9004"));
}

TEST(CheckFieldsKnown, UnknownValueOfAnEnumerationIsNamed) {
  v1::Job job = SomeJob();
  job.mutable_optimizer()->set_kind(static_cast<v1::Optimizer::Kind>(99));
  EXPECT_THAT(std::string(CheckFieldsKnown(job).message()),
              HasSubstr("catchment.v1.Optimizer.kind has the value 99"));
}

}  // namespace
}  // namespace catchment
