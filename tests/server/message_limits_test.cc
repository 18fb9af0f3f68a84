// Every field of every request, and of a server's report to the master, at the edges of what is accepted.
#include "common/net/message_limits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "proto/health.pb.h"
#include "proto/master.pb.h"
#include "proto/standby.pb.h"
#include "proto/wire.pb.h"

namespace catchment {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using testing::HasSubstr;

// The messages that a server receives, and those that the master receives as answers.
std::set<const Descriptor*> Received() {
  std::set<const Descriptor*> requests = {v1::Hello::descriptor(), v1::StandbyHello::descriptor(),
                                          v1::ShardReport::descriptor()};
  for (const google::protobuf::FileDescriptor* file :
       {v1::GetJobRequest::descriptor()->file(), v1::Block::descriptor()->file(),
        grpc::health::v1::HealthCheckRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        requests.insert(file->service(s)->method(m)->input_type());
      }
    }
  }
  requests.erase(v1::Block::descriptor());  // it has checks of its own
  return requests;
}

void AddFields(const Descriptor& message, std::map<std::string, const FieldDescriptor*>* fields) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const bool is_message = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (!is_message || field.is_repeated()) {
      std::string name = field.full_name();
      for (const std::string package : {"catchment.v1.", "grpc.health.v1."}) {
        if (absl::StartsWith(name, package)) name = name.substr(package.size());
      }
      fields->emplace(name, &field);
    }
    if (is_message) AddFields(*field.message_type(), fields);
  }
}

std::map<std::string, const FieldDescriptor*> AllFields() {
  std::map<std::string, const FieldDescriptor*> fields;
  for (const Descriptor* request : Received()) AddFields(*request, &fields);
  return fields;
}

TEST(MessageLimitsTest, EveryFieldOfEveryReceivedMessageIsInTheTable) {
  std::set<std::string> in_table, in_messages;
  for (const FieldLimit& limit : FieldLimits()) in_table.insert(std::string(limit.field));
  for (const auto& [name, field] : AllFields()) in_messages.insert(name);
  EXPECT_EQ(in_table, in_messages);
  EXPECT_EQ(in_table.size(), FieldLimits().size()) << "a field is there twice";
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

TEST(MessageLimitsTest, EachIsAcceptedAtItsLimitAndRefusedBeyond) {
  const auto fields = AllFields();
  int checked = 0;
  for (const FieldLimit& limit : FieldLimits()) {
    const FieldDescriptor& field = *fields.at(std::string(limit.field));
    const int most = static_cast<int>(limit.most);
    switch (limit.kind) {
      case FieldLimit::kAny:
        continue;
      case FieldLimit::kNumber:
        EXPECT_TRUE(WithNumber(field, 0).ok()) << limit.field;
        EXPECT_TRUE(WithNumber(field, limit.most).ok()) << limit.field;
        ExpectRefused(WithNumber(field, limit.most + 1), limit.field);
        if (field.cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
          ExpectRefused(WithNumber(field, -1e-9), limit.field);
          ExpectRefused(WithNumber(field, std::numeric_limits<double>::quiet_NaN()), limit.field);
          ExpectRefused(WithNumber(field, std::numeric_limits<double>::infinity()), limit.field);
        } else {
          ExpectRefused(WithNumber(field, 0x1p63), limit.field);
        }
        break;
      case FieldLimit::kLine:
        for (const char control : {'\n', '\x1b', '\x7f', '\0'}) {
          ExpectRefused(WithText(field, std::string("a") + control), limit.field);
        }
        for (const char* control : {"\u009b", "\u202e", "\u2028", "\u2066", "\u200f"})
          ExpectRefused(WithText(field, control), limit.field);
        EXPECT_TRUE(WithText(field, "M\xc3\xbcnchen, 2 threads").ok()) << limit.field;
        [[fallthrough]];
      case FieldLimit::kText:
        EXPECT_TRUE(WithText(field, std::string(most, 'a')).ok()) << limit.field;
        ExpectRefused(WithText(field, std::string(most + 1, 'a')), limit.field);
        break;
      case FieldLimit::kFile:
        for (const std::string name :
             {".", "..", "../x", "/etc/passwd", "a/b", "a\n", "\xc2\x9b", "\xe2\x80\xae"}) {
          ExpectRefused(WithText(field, name), limit.field);
        }
        ExpectRefused(WithText(field, std::string("a\0b", 3)), limit.field);
        EXPECT_TRUE(WithText(field, std::string(255, 'a')).ok()) << limit.field;
        ExpectRefused(WithText(field, std::string(256, 'a')), limit.field);
        break;
      case FieldLimit::kCount:
        EXPECT_TRUE(WithElements(field, most).ok()) << limit.field;
        ExpectRefused(WithElements(field, most + 1), limit.field);
        break;
    }
    ++checked;
  }
  EXPECT_GT(checked, 40);
}

TEST(MessageLimitsTest, TextsOfMembersThatBecomeEventsAreShort) {
  for (const FieldLimit& limit : FieldLimits()) {
    const bool of_server = limit.field.substr(0, 5) == "Shard";
    if (limit.kind != FieldLimit::kText || of_server) continue;
    EXPECT_LE(limit.most, 1024) << limit.field;
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
