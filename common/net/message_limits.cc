#include "common/net/message_limits.h"

#include <string>
#include <unordered_map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "common/base/file_access.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace catchment {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Returns "RegisterRequest.host".
absl::string_view NameOf(const FieldDescriptor& field) {
  return absl::string_view(field.full_name()).substr(field.file()->package().size() + 1);
}

absl::Status TooMuch(const FieldDescriptor& field, absl::string_view has, uint32_t most) {
  return absl::InvalidArgumentError(
      absl::StrCat(NameOf(field), " ", has, "; at most ", most, " is accepted"));
}

absl::Status CheckNumber(const FieldDescriptor& field, double most, double value) {
  if (value >= 0 && value <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(NameOf(field), " is ", value, "; accepted are 0 to ", most));
}

absl::Status CheckText(const FieldDescriptor& field, const v1::Limit& limit, absl::string_view text) {
  if (limit.file_name()) {
    if (IsFileName(text)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(NameOf(field), " is not the name of a file in a directory"));
  }
  const uint32_t most = limit.has_line_bytes() ? limit.line_bytes() : limit.bytes();
  if (text.size() > most) return TooMuch(field, absl::StrCat("has ", text.size(), " bytes"), most);
  if (!limit.has_line_bytes() || OneLine(text) == text) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(NameOf(field), " has control characters"));
}

absl::Status CheckSingular(const Message& message, const FieldDescriptor& field, const v1::Limit& limit) {
  const Reflection& values = *message.GetReflection();
  std::string scratch;
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_STRING:
      return CheckText(field, limit, values.GetStringReference(message, &field, &scratch));
    case FieldDescriptor::CPPTYPE_UINT32:
      return CheckNumber(field, limit.number(), values.GetUInt32(message, &field));
    case FieldDescriptor::CPPTYPE_UINT64:
      return CheckNumber(field, limit.number(), static_cast<double>(values.GetUInt64(message, &field)));
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return CheckNumber(field, limit.number(), values.GetDouble(message, &field));
    default:
      return absl::InternalError(absl::StrCat(NameOf(field), " has a limit that its type cannot have"));
  }
}

// A field that is looked at: it has a limit, or is a message, whose fields may have one.
struct Check {
  const FieldDescriptor* field;
  const v1::Limit* limit;
};

// A report of a server has thousands of messages of one type, so the options of fields are looked up once.
const std::vector<Check>& ChecksOf(const Descriptor& message) {
  thread_local std::unordered_map<const Descriptor*, std::vector<Check>> all;
  const auto [found, is_new] = all.try_emplace(&message);
  for (int i = 0; is_new && i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const v1::Limit& limit = LimitOf(field);
    if (limit.kind_case() != v1::Limit::KIND_NOT_SET || field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE)
      found->second.push_back({&field, &limit});
  }
  return found->second;
}

absl::Status CheckField(const Message& message, const Check& check) {
  const Reflection& values = *message.GetReflection();
  const FieldDescriptor& field = *check.field;
  const bool is_message = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  if (!field.is_repeated()) {
    if (!values.HasField(message, &field)) return absl::OkStatus();
    return is_message ? CheckLimits(values.GetMessage(message, &field))
                      : CheckSingular(message, field, *check.limit);
  }
  const int count = values.FieldSize(message, &field);
  const v1::Limit& limit = *check.limit;
  if (limit.has_elements() && static_cast<uint32_t>(count) > limit.elements())
    return TooMuch(field, absl::StrCat("has ", count, " elements"), limit.elements());
  for (int i = 0; is_message && i < count; ++i) {
    RETURN_IF_ERROR(CheckLimits(values.GetRepeatedMessage(message, &field, i)));
  }
  return absl::OkStatus();
}

}  // namespace

const v1::Limit& LimitOf(const FieldDescriptor& field) {
  const v1::Limit::Name name = field.options().GetExtension(v1::limit);
  return v1::Limit::Name_descriptor()->FindValueByNumber(name)->options().GetExtension(v1::bound);
}

absl::Status CheckLimits(const Message& message) {
  for (const Check& check : ChecksOf(*message.GetDescriptor())) {
    RETURN_IF_ERROR(CheckField(message, check));
  }
  return absl::OkStatus();
}

}  // namespace catchment
