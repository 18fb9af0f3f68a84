#include "common/job/known_fields.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/unknown_field_set.h"

namespace catchment {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

int NumValues(const Message& message, const FieldDescriptor* field) {
  return field->is_repeated() ? message.GetReflection()->FieldSize(message, field) : 1;
}

absl::Status CheckEnum(const Message& message, const FieldDescriptor* field, int i) {
  const Reflection& reflection = *message.GetReflection();
  const int value = field->is_repeated() ? reflection.GetRepeatedEnumValue(message, field, i)
                                         : reflection.GetEnumValue(message, field);
  if (field->enum_type()->FindValueByNumber(value) != nullptr) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(field->full_name(), " has the value ", value, ", which this build does not know"));
}

absl::Status CheckField(const Message& message, const FieldDescriptor* field) {
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < NumValues(message, field); ++i) {
    absl::Status status;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_ENUM) status = CheckEnum(message, field, i);
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      status = CheckFieldsKnown(field->is_repeated() ? reflection.GetRepeatedMessage(message, field, i)
                                                     : reflection.GetMessage(message, field));
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckFieldsKnown(const Message& message) {
  const Reflection& reflection = *message.GetReflection();
  const google::protobuf::UnknownFieldSet& unknown = reflection.GetUnknownFields(message);
  if (!unknown.empty()) {
    return absl::FailedPreconditionError(absl::StrCat(message.GetDescriptor()->full_name(),
                                                      " has a field with number ", unknown.field(0).number(),
                                                      ", which this build does not know"));
  }
  std::vector<const FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    if (absl::Status status = CheckField(message, field); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace catchment
