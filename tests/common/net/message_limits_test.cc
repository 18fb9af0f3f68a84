// Every field of every request, and of a server's report to the master, at the edges of what is accepted.
#include "common/net/message_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/job/algorithm_facts.h"
#include "common/job/program_metrics.h"
#include "proto/health.pb.h"
#include "proto/limits.pb.h"
#include "proto/master.pb.h"
#include "proto/standby.pb.h"
#include "proto/wire.pb.h"

namespace catchment {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using testing::HasSubstr;

// The files whose messages state limits.
std::vector<const google::protobuf::FileDescriptor*> Files() {
  return {v1::Block::descriptor()->file(), v1::GetJobRequest::descriptor()->file(),
          v1::StandbyHello::descriptor()->file(), grpc::health::v1::HealthCheckRequest::descriptor()->file()};
}

using Messages = std::set<const Descriptor*>;

// Adds the message, and the messages in it.
void AddMessages(const Descriptor& message, Messages* messages) {
  if (!messages->insert(&message).second) return;
  for (int i = 0; i < message.field_count(); ++i) {
    if (message.field(i)->message_type() != nullptr) AddMessages(*message.field(i)->message_type(), messages);
  }
}

// The messages that a server receives, and those that the master receives as answers, except those that have
// checks of their own.
Messages Received() {
  Messages received;
  for (const Descriptor* hello :
       {v1::Hello::descriptor(), v1::StandbyHello::descriptor(), v1::ShardReport::descriptor()})
    AddMessages(*hello, &received);
  for (const google::protobuf::FileDescriptor* file : Files()) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        const Descriptor* const input = file->service(s)->method(m)->input_type();
        if (input != v1::Block::descriptor() && input != v1::StandbyPart::descriptor())
          AddMessages(*input, &received);
      }
    }
  }
  return received;
}

// Returns true for a message that is not in a list: only its fields have limits.
bool IsSingleMessage(const FieldDescriptor& field) {
  return field.message_type() != nullptr && !field.is_repeated();
}

std::vector<const FieldDescriptor*> LimitedFields() {
  std::vector<const FieldDescriptor*> fields;
  for (const Descriptor* message : Received()) {
    for (int i = 0; i < message->field_count(); ++i) {
      if (!IsSingleMessage(*message->field(i))) fields.push_back(message->field(i));
    }
  }
  return fields;
}

TEST(MessageLimitsTest, FieldsOfReceivedMessagesAndNoOthersStateTheirLimits) {
  const Messages received = Received();
  Messages all;
  for (const google::protobuf::FileDescriptor* file : Files()) {
    for (int m = 0; m < file->message_type_count(); ++m) AddMessages(*file->message_type(m), &all);
  }
  for (const Descriptor* message : all) {
    for (int i = 0; i < message->field_count(); ++i) {
      const FieldDescriptor& field = *message->field(i);
      EXPECT_EQ(field.options().HasExtension(v1::limit), received.count(message) && !IsSingleMessage(field))
          << field.full_name() << ": see proto/limits.proto";
    }
  }
}

const v1::Limit& LimitIn(const Descriptor& message, const std::string& field) {
  return LimitOf(*message.FindFieldByName(field));
}

TEST(MessageLimitsTest, LimitsAreThoseOfTheCode) {
  EXPECT_EQ(LimitIn(*v1::Member::descriptor(), "worker").number(), kMaxWorkers - 1);
  EXPECT_EQ(LimitIn(*v1::StandbyHello::descriptor(), "num_shards").number(), kMaxWorkers);
  EXPECT_EQ(LimitIn(*v1::Roster::descriptor(), "members").elements(), kMaxWorkers);
  EXPECT_EQ(LimitIn(*v1::QuorumStatistics::descriptor(), "merged_values").elements(), kMaxWorkers + 1);
  EXPECT_EQ(LimitIn(*v1::Progress::descriptor(), "program_metrics").elements(), kMaxProgramMetrics);
  EXPECT_EQ(LimitIn(*v1::ProgramMetric::descriptor(), "name").line_bytes(), kMaxMetricNameBytes);
}

std::unique_ptr<Message> New(const FieldDescriptor& field) {
  return std::unique_ptr<Message>(
      google::protobuf::MessageFactory::generated_factory()->GetPrototype(field.containing_type())->New());
}

// Returns the status of the field's message with this number.
absl::Status WithNumber(const FieldDescriptor& field, double value) {
  const auto message = New(field);
  const auto& values = *message->GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_UINT32) {
    if (value > UINT32_MAX) return absl::InvalidArgumentError(absl::StrCat(field.name(), " cannot have it"));
    values.SetUInt32(message.get(), &field, static_cast<uint32_t>(value));
  } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64) {
    values.SetUInt64(message.get(), &field, static_cast<uint64_t>(value));
  } else {
    values.SetDouble(message.get(), &field, value);
  }
  return CheckLimits(*message);
}

absl::Status WithText(const FieldDescriptor& field, const std::string& text) {
  const auto message = New(field);
  message->GetReflection()->SetString(message.get(), &field, text);
  return CheckLimits(*message);
}

absl::Status WithElements(const FieldDescriptor& field, int count) {
  const auto message = New(field);
  const auto& values = *message->GetReflection();
  for (int i = 0; i < count; ++i) {
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_MESSAGE:
        values.AddMessage(message.get(), &field);
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        values.AddUInt64(message.get(), &field, 1);
        break;
      default:
        values.AddInt64(message.get(), &field, 1);
    }
  }
  return CheckLimits(*message);
}

void ExpectRefused(const absl::Status& status, absl::string_view field) {
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << field << ": " << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(std::string(field.substr(field.rfind('.') + 1))));
}

// Expects that texts of up to `most` bytes are accepted.
void ExpectTexts(const FieldDescriptor& field, size_t most) {
  EXPECT_TRUE(WithText(field, std::string(most, 'a')).ok()) << field.full_name();
  ExpectRefused(WithText(field, std::string(most + 1, 'a')), field.full_name());
}

TEST(MessageLimitsTest, EachIsAcceptedAtItsLimitAndRefusedBeyond) {
  int checked = 0;
  for (const FieldDescriptor* limited : LimitedFields()) {
    const FieldDescriptor& field = *limited;
    const std::string& name = field.full_name();
    const v1::Limit& limit = LimitOf(field);
    switch (limit.kind_case()) {
      case v1::Limit::KIND_NOT_SET:
        continue;
      case v1::Limit::kNumber:
        EXPECT_TRUE(WithNumber(field, 0).ok()) << name;
        EXPECT_TRUE(WithNumber(field, limit.number()).ok()) << name;
        ExpectRefused(WithNumber(field, limit.number() + 1), name);
        if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
          ExpectRefused(WithNumber(field, -1e-9), name);
          ExpectRefused(WithNumber(field, std::numeric_limits<double>::quiet_NaN()), name);
          ExpectRefused(WithNumber(field, std::numeric_limits<double>::infinity()), name);
        } else {
          ExpectRefused(WithNumber(field, 0x1p63), name);
        }
        break;
      case v1::Limit::kLineBytes:
        for (const char control : {'\n', '\x1b', '\x7f', '\0'}) {
          ExpectRefused(WithText(field, std::string("a") + control), name);
        }
        for (const char* control : {"\u009b", "\u202e", "\u2028", "\u2066", "\u200f"})
          ExpectRefused(WithText(field, control), name);
        EXPECT_TRUE(WithText(field, "M\xc3\xbcnchen, 2 threads").ok()) << name;
        ExpectTexts(field, limit.line_bytes());
        break;
      case v1::Limit::kBytes:
        ExpectTexts(field, limit.bytes());
        break;
      case v1::Limit::kFileName:
        for (const std::string file :
             {".", "..", "../x", "/etc/passwd", "a/b", "a\n", "\xc2\x9b", "\xe2\x80\xae"}) {
          ExpectRefused(WithText(field, file), name);
        }
        ExpectRefused(WithText(field, std::string("a\0b", 3)), name);
        ExpectTexts(field, 255);
        break;
      case v1::Limit::kElements:
        EXPECT_TRUE(WithElements(field, limit.elements()).ok()) << name;
        ExpectRefused(WithElements(field, limit.elements() + 1), name);
        break;
    }
    ++checked;
  }
  EXPECT_GT(checked, 40);
}

TEST(MessageLimitsTest, TextsOfMembersThatBecomeEventsAreShort) {
  for (const FieldDescriptor* field : LimitedFields()) {
    if (absl::StartsWith(field->containing_type()->name(), "Shard")) continue;  // of a server
    EXPECT_LE(LimitOf(*field).bytes(), 1024) << field->full_name();
  }
}

TEST(MessageLimitsTest, MessagesInMessagesAndListsAreChecked) {
  v1::ShardCommand command;
  command.add_rosters();
  command.add_rosters()->add_members()->set_worker(1);
  EXPECT_TRUE(CheckLimits(command).ok());
  command.mutable_rosters(1)->add_members()->set_worker(UINT32_MAX);
  ExpectRefused(CheckLimits(command), "Member.worker");
  command.mutable_rosters(1)->mutable_members()->RemoveLast();
  command.mutable_run()->set_job("a\nb");
  ExpectRefused(CheckLimits(command), "Run.job");
  EXPECT_TRUE(CheckLimits(v1::GetJobRequest()).ok());
  v1::ShardReport report;
  report.add_saved()->set_file("shard_0_of_2");
  report.add_workers()->add_staleness_us(1);
  EXPECT_TRUE(CheckLimits(report).ok());
  report.add_saved()->set_file("shard\n");
  ExpectRefused(CheckLimits(report), "SavedShard.file");
}

}  // namespace
}  // namespace catchment
