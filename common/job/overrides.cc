#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/job/text_format.h"

namespace catchment {
namespace {

using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

absl::Status Problem(const std::string& path, const std::string& text) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", text));
}

// One part of a path: "layers[3]".
struct Step {
  std::string name;
  std::optional<int> index;
};

absl::StatusOr<Step> ParseStep(const std::string& text, const std::string& path) {
  const size_t bracket = text.find('[');
  if (bracket == std::string::npos) return Step{text, std::nullopt};
  int index;
  const bool closed = absl::EndsWith(text, "]");
  if (!closed || !absl::SimpleAtoi(text.substr(bracket + 1, text.size() - bracket - 2), &index)) {
    return Problem(path, "an item of a list is given by its index, from 0: layers[3]");
  }
  return Step{text.substr(0, bracket), index};
}

bool EqualsIgnoringCase(const std::string& a, const std::string& b) {
  return absl::AsciiStrToLower(a) == absl::AsciiStrToLower(b);
}

const EnumValueDescriptor* FindEnumValue(const FieldDescriptor& field, const std::string& name) {
  for (int i = 0; i < field.enum_type()->value_count(); ++i) {
    if (EqualsIgnoringCase(field.enum_type()->value(i)->name(), name)) return field.enum_type()->value(i);
  }
  return nullptr;
}

template <typename T, typename Set>
bool SetInteger(const std::string& text, Set set) {
  T value;
  if (!absl::SimpleAtoi(text, &value)) return false;
  set(value);
  return true;
}

// False when `text` is not a value of the field's type.
bool SetScalar(const std::string& text, const FieldDescriptor* field, Message* message) {
  const Reflection& reflection = *message->GetReflection();
  switch (field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return SetInteger<int32_t>(text, [&](int32_t value) { reflection.SetInt32(message, field, value); });
    case FieldDescriptor::CPPTYPE_INT64:
      return SetInteger<int64_t>(text, [&](int64_t value) { reflection.SetInt64(message, field, value); });
    case FieldDescriptor::CPPTYPE_UINT32:
      return SetInteger<uint32_t>(text, [&](uint32_t value) { reflection.SetUInt32(message, field, value); });
    case FieldDescriptor::CPPTYPE_UINT64:
      return SetInteger<uint64_t>(text, [&](uint64_t value) { reflection.SetUInt64(message, field, value); });
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      double value;
      if (!absl::SimpleAtod(text, &value)) return false;
      reflection.SetDouble(message, field, value);
      return true;
    }
    case FieldDescriptor::CPPTYPE_FLOAT: {
      float value;
      if (!absl::SimpleAtof(text, &value)) return false;
      reflection.SetFloat(message, field, value);
      return true;
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      bool value;
      if (!absl::SimpleAtob(text, &value)) return false;
      reflection.SetBool(message, field, value);
      return true;
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const EnumValueDescriptor* value = FindEnumValue(*field, text);
      if (value) reflection.SetEnum(message, field, value);
      return value != nullptr;
    }
    case FieldDescriptor::CPPTYPE_STRING:
      reflection.SetString(message, field, text);
      return true;
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
  }
  return false;
}

// `path` is where *message stands, for errors.
absl::Status SetMessage(const std::string& text, const std::string& path, Message* message) {
  if (!absl::StartsWith(text, "{") || !absl::EndsWith(text, "}")) {
    return Problem(
        path,
        absl::StrCat("expected fields in braces, { ... }, got ", text.empty() ? "nothing" : text,
                     "; to set one field, give its path: ", path, ".",
                     message->GetDescriptor()->field_count() > 0 ? message->GetDescriptor()->field(0)->name()
                                                                 : "FIELD",
                     "=VALUE"));
  }
  return ParseText(text.substr(1, text.size() - 2), "in braces", path, message);
}

// The item of a list keeps its kind: another one is more likely to be a wrong index than a wish.
absl::Status CheckKind(const Message& message, const FieldDescriptor* field, const std::string& path) {
  const auto* oneof = field->real_containing_oneof();
  if (!oneof) return absl::OkStatus();
  const FieldDescriptor* set = message.GetReflection()->GetOneofFieldDescriptor(message, oneof);
  if (!set || set == field) return absl::OkStatus();
  return Problem(path, absl::StrCat("this item is ", set->name(), ", not ", field->name(),
                                    "; to make it one, give it as a whole: ", path, "={...}"));
}

// Walks along a path, one step after another.
class Walk {
 public:
  explicit Walk(Message* message) : message_(message) {}

  absl::Status Take(const std::string& text, bool is_last, const std::string& value) {
    absl::StrAppend(&path_, path_.empty() ? "" : ".", text);
    const auto step = ParseStep(text, path_);
    if (!step.ok()) return step.status();
    const FieldDescriptor* field = message_->GetDescriptor()->FindFieldByName(step->name);
    if (!field) return Problem(path_, DescribeUnknownField(*message_->GetDescriptor(), step->name));
    if (field->is_repeated() != step->index.has_value()) {
      return Problem(path_, field->is_repeated() ? absl::StrCat("is a list; give an item: ", path_, "[0]")
                                                 : std::string("is not a list; leave the [index] out"));
    }
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) return Enter(*step, field, is_last, value);
    if (!is_last) return Problem(path_, "has no fields of its own");
    if (field->is_repeated()) return Problem(path_, "items of this list cannot be set one by one");
    if (SetScalar(value, field, message_)) return absl::OkStatus();
    return Problem(
        path_, absl::StrCat("expected ", DescribeType(*field), ", got ", value.empty() ? "nothing" : value));
  }

 private:
  absl::Status Enter(const Step& step, const FieldDescriptor* field, bool is_last, const std::string& value) {
    const Reflection& reflection = *message_->GetReflection();
    if (step.index) {
      const int size = reflection.FieldSize(*message_, field);
      if (*step.index < 0 || *step.index >= size) {
        return Problem(path_, size == 0
                                  ? std::string("the list is empty")
                                  : absl::StrCat("no such item; there are ", size, ", 0 to ", size - 1));
      }
      message_ = reflection.MutableRepeatedMessage(message_, field, *step.index);
    } else {
      if (in_item_ && !is_last) {
        if (const absl::Status status = CheckKind(*message_, field, path_); !status.ok()) return status;
      }
      message_ = reflection.MutableMessage(message_, field);
    }
    in_item_ = step.index.has_value();
    return is_last ? SetMessage(value, path_, message_) : absl::OkStatus();
  }

  Message* message_;
  bool in_item_ = false;
  std::string path_;
};

absl::Status Apply(const std::string& text, Message* message) {
  const size_t equals = text.find('=');
  if (equals == 0 || equals == std::string::npos) {
    return absl::InvalidArgumentError("is not PATH=VALUE, such as optimizer.learning_rate=0.05");
  }
  const std::string path(absl::StripAsciiWhitespace(text.substr(0, equals)));
  const std::string value(absl::StripAsciiWhitespace(text.substr(equals + 1)));
  const std::vector<std::string> steps = absl::StrSplit(path, '.');
  Walk walk(message);
  for (size_t i = 0; i < steps.size(); ++i) {
    const absl::Status status = walk.Take(steps[i], i + 1 == steps.size(), value);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ApplyOverrides(const std::vector<std::string>& overrides, Message* message) {
  std::vector<std::string> problems;
  for (const std::string& text : overrides) {
    const absl::Status status = Apply(text, message);
    if (!status.ok()) problems.push_back(absl::StrCat("override \"", text, "\": ", status.message()));
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
}

}  // namespace catchment
