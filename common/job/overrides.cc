#include <google/protobuf/reflection.h>

#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
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
    return Problem(path, "name an item of a list by its index, from 0: layers[3]");
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

// A field, or an item of a list; an index at the end of the list adds one.
struct Place {
  Message* message;
  const FieldDescriptor* field;
  int index = 0;
};

template <typename T, typename Set>
bool Store(const Place& place, Set set, const T& value) {
  const Reflection& reflection = *place.message->GetReflection();
  if (!place.field->is_repeated()) {
    (reflection.*set)(place.message, place.field, value);
    return true;
  }
  const auto list = reflection.GetMutableRepeatedFieldRef<T>(place.message, place.field);
  if (place.index < list.size()) {
    list.Set(place.index, value);
  } else {
    list.Add(value);
  }
  return true;
}

template <typename T, typename Set>
bool SetInteger(const std::string& text, const Place& place, Set set) {
  T value;
  return absl::SimpleAtoi(text, &value) && Store<T>(place, set, value);
}

// Returns false if `text` is not a value of the field's type.
bool SetScalar(const std::string& text, const Place& place) {
  switch (place.field->cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return SetInteger<int32_t>(text, place, &Reflection::SetInt32);
    case FieldDescriptor::CPPTYPE_INT64:
      return SetInteger<int64_t>(text, place, &Reflection::SetInt64);
    case FieldDescriptor::CPPTYPE_UINT32:
      return SetInteger<uint32_t>(text, place, &Reflection::SetUInt32);
    case FieldDescriptor::CPPTYPE_UINT64:
      return SetInteger<uint64_t>(text, place, &Reflection::SetUInt64);
    case FieldDescriptor::CPPTYPE_DOUBLE: {
      double value;
      return absl::SimpleAtod(text, &value) && Store<double>(place, &Reflection::SetDouble, value);
    }
    case FieldDescriptor::CPPTYPE_FLOAT: {
      float value;
      return absl::SimpleAtof(text, &value) && Store<float>(place, &Reflection::SetFloat, value);
    }
    case FieldDescriptor::CPPTYPE_BOOL: {
      bool value;
      return absl::SimpleAtob(text, &value) && Store<bool>(place, &Reflection::SetBool, value);
    }
    case FieldDescriptor::CPPTYPE_ENUM: {
      const EnumValueDescriptor* value = FindEnumValue(*place.field, text);
      return value && Store<int32_t>(place, &Reflection::SetEnumValue, value->number());
    }
    case FieldDescriptor::CPPTYPE_STRING:
      return Store<std::string>(place, &Reflection::SetString, text);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      break;
  }
  return false;
}

// Returns the items of a list's value: [a, b], numbers with commas also without brackets, or a single item.
std::vector<std::string> ParseItems(absl::string_view text, const FieldDescriptor& field) {
  const bool brackets = absl::StartsWith(text, "[") && absl::EndsWith(text, "]");
  if (brackets) text = text.substr(1, text.size() - 2);
  if (absl::StripAsciiWhitespace(text).empty()) return {};
  const bool is_text = field.cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  if (!brackets && is_text) return {std::string(text)};
  std::vector<std::string> items;
  for (absl::string_view item : absl::StrSplit(text, ',')) {
    item = absl::StripAsciiWhitespace(item);
    const bool quoted =
        is_text && item.size() >= 2 && absl::StartsWith(item, "\"") && absl::EndsWith(item, "\"");
    items.emplace_back(quoted ? item.substr(1, item.size() - 2) : item);
  }
  return items;
}

// `path` is the path of *message, for errors.
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
    ASSIGN_OR_RETURN(const auto step, ParseStep(text, path_));
    const FieldDescriptor* field = message_->GetDescriptor()->FindFieldByName(step.name);
    if (!field) return Problem(path_, DescribeUnknownField(*message_->GetDescriptor(), step.name));
    if (step.index && !field->is_repeated()) return Problem(path_, "is not a list; leave the [index] out");
    const bool is_message = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (is_message && field->is_repeated() && !step.index) {
      return Problem(path_, absl::StrCat("is a list; give an item: ", path_, "[0]"));
    }
    if (is_message) return Enter(step, field, is_last, value);
    if (!is_last) return Problem(path_, "has no fields of its own");
    if (!field->is_repeated()) return Set(value, {message_, field});
    if (step.index) return SetItem(*step.index, field, value);
    message_->GetReflection()->ClearField(message_, field);
    for (const std::string& item : ParseItems(value, *field)) {
      const int end = message_->GetReflection()->FieldSize(*message_, field);
      RETURN_IF_ERROR(Set(item, {message_, field, end}));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status Set(const std::string& value, const Place& place) const {
    if (SetScalar(value, place)) return absl::OkStatus();
    return Problem(path_, DescribeMismatch(*place.field, value, "nothing"));
  }

  absl::Status SetItem(int index, const FieldDescriptor* field, const std::string& value) {
    const int size = message_->GetReflection()->FieldSize(*message_, field);
    if (index >= 0 && index <= size) return Set(value, {message_, field, index});
    return Problem(path_,
                   absl::StrCat("no such item; there are ", size, ", and the next one is [", size, "]"));
  }

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
        RETURN_IF_ERROR(CheckKind(*message_, field, path_));
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
    RETURN_IF_ERROR(walk.Take(steps[i], i + 1 == steps.size(), value));
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
