#include "common/job/text_format.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <climits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace catchment {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::io::Tokenizer;

constexpr char kEnd[] = "the end of the text";

// Keeps the first error. Lines and columns count from 0.
class FirstError final : public google::protobuf::io::ErrorCollector {
 public:
  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& text) override {
    if (any_) return;
    any_ = true;
    position_ = {line, column};
    text_ = text;
  }

  std::pair<int, int> position() const { return position_; }
  const std::string& text() const { return text_; }

 private:
  bool any_ = false;
  std::pair<int, int> position_;
  std::string text_;
};

// A message that has been entered, and how far its current field has been read.
struct Frame {
  const Descriptor* message;
  std::string path;
  std::pair<int, int> brace;                   // that opened it
  absl::flat_hash_map<std::string, int> seen;  // messages of each repeated field

  std::string name;  // of the current field
  std::pair<int, int> name_position;
  const FieldDescriptor* field = nullptr;  // null: the message has no such field
  bool colon = false;
  bool in_list = false;
  std::string value;
  std::pair<int, int> value_position;

  bool AwaitsValue() const { return colon && (value.empty() || value == "-"); }
};

// Returns the name of the field's enumeration, or true or false, that `text` is in some case; empty if there
// is none.
std::string NameInAnyCase(const FieldDescriptor& field, const std::string& text) {
  std::vector<std::string> names;
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_BOOL) names = {"true", "false"};
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) {
    for (int i = 0; i < field.enum_type()->value_count(); ++i)
      names.push_back(field.enum_type()->value(i)->name());
  }
  const auto equals = [&](const std::string& name) { return absl::EqualsIgnoreCase(name, text); };
  const auto found = std::find_if(names.begin(), names.end(), equals);
  return found == names.end() ? "" : *found;
}

// Protobuf says at which token its parser gave up, and not always what stood there. This follows the text to
// that token and knows the field under way.
class Tracer {
 public:
  Tracer(const Descriptor* message, const std::string& path) { frames_.push_back({message, path, {}}); }

  // Reads the tokens before `position`; afterwards stopped_at() is the text of the token there, a sign with
  // its number.
  void Follow(const std::string& text, std::pair<int, int> position) {
    google::protobuf::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
    FirstError ignored;
    Tokenizer tokenizer(&stream, &ignored);
    tokenizer.set_comment_style(Tokenizer::SH_COMMENT_STYLE);
    tokenizer.set_allow_f_after_float(true);
    tokenizer.set_require_space_after_number(false);
    while (tokenizer.Next() && Position(tokenizer.current()) < position) Take(tokenizer.current());
    stopped_at_ = tokenizer.current().text;
    if (stopped_at_ == "-" && tokenizer.Next()) stopped_at_ += tokenizer.current().text;
  }

  const std::string& stopped_at() const { return stopped_at_; }
  const Frame& frame() const { return frames_.back(); }
  bool is_outside_braces() const { return frames_.size() == 1; }

  // Returns the message that has been entered, and has a field `name`, though the innermost one does not; or
  // null.
  const Frame* FindEnclosing(const std::string& name) const {
    for (auto frame = frames_.rbegin(); frame != frames_.rend(); ++frame) {
      if (frame->message->FindFieldByName(name) != nullptr) return &*frame;
    }
    return nullptr;
  }

  // Names of enumerations, true and false that are right but for their case.
  struct Recased {
    std::pair<int, int> position;
    std::string name;
  };
  const std::vector<Recased>& recased() const { return recased_; }

  // Returns "model.layers[3].dense".
  static std::string FieldPath(const Frame& frame) {
    std::string path = absl::StrCat(frame.path, frame.path.empty() ? "" : ".", frame.name);
    if (frame.field && frame.field->is_repeated() && IsMessage(*frame.field)) {
      const auto seen = frame.seen.find(frame.name);
      absl::StrAppend(&path, "[", seen == frame.seen.end() ? 0 : seen->second, "]");
    }
    return path;
  }

  static bool IsMessage(const FieldDescriptor& field) {
    return field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  }

 private:
  static std::pair<int, int> Position(const Tokenizer::Token& token) { return {token.line, token.column}; }

  void Take(const Tokenizer::Token& token) {
    Frame& frame = frames_.back();
    const std::string& text = token.text;
    if (text == "{" || text == "<") return Enter(Position(token));
    if (text == "}" || text == ">") return Leave();
    if (text == ":") {
      frame.colon = true;
    } else if (text == "[" || text == "]") {
      frame.in_list = text == "[";
    } else if (text == "," || text == ";") {
      if (frame.in_list) frame.value.clear();
    } else if (token.type == Tokenizer::TYPE_IDENTIFIER && !frame.AwaitsValue()) {
      Name(token);
    } else {
      if (frame.value.empty()) frame.value_position = Position(token);
      if (frame.field && token.type == Tokenizer::TYPE_IDENTIFIER) NoteCase(*frame.field, token);
      frame.value += text;
    }
  }

  void Name(const Tokenizer::Token& token) {
    Frame& frame = frames_.back();
    frame.name = token.text;
    frame.name_position = Position(token);
    frame.field = frame.message->FindFieldByName(token.text);
    frame.colon = frame.in_list = false;
    frame.value.clear();
  }

  void NoteCase(const FieldDescriptor& field, const Tokenizer::Token& token) {
    const std::string name = NameInAnyCase(field, token.text);
    if (!name.empty() && name != token.text) recased_.push_back({Position(token), name});
  }

  void Enter(std::pair<int, int> brace) {
    Frame& frame = frames_.back();
    const bool known = frame.field && IsMessage(*frame.field);
    frames_.push_back({known ? frame.field->message_type() : frame.message, FieldPath(frame), brace});
  }

  void Leave() {
    if (frames_.size() == 1) return;
    frames_.pop_back();
    Frame& frame = frames_.back();
    ++frame.seen[frame.name];
    frame.value = "{}";
  }

  std::vector<Frame> frames_;
  std::vector<Recased> recased_;
  std::string stopped_at_;
};

bool IsValidName(const FieldDescriptor& field, const std::string& value) {
  if (value.empty() || !absl::ascii_isalpha(value[0])) return true;
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) return field.enum_type()->FindValueByName(value);
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_BOOL) return true;
  return value == "true" || value == "false" || value == "t" || value == "f" || value == "True" ||
         value == "False";
}

struct Explanation {
  std::pair<int, int> position;
  std::string text;
};

// Returns "the brace { of model, in line 3, is open".
std::string OpenBrace(const Frame& frame) {
  return absl::StrCat("the brace { of ", frame.path, ", in line ", frame.brace.first + 1, ", is open");
}

// Describes a field that the innermost message does not have.
std::string DescribeStranger(const Tracer& tracer) {
  const Frame& frame = tracer.frame();
  const Frame* const owner = tracer.FindEnclosing(frame.name);
  if (owner == nullptr) return DescribeUnknownField(*frame.message, frame.name);
  return absl::StrCat(
      "no such field; ", frame.name, " belongs ",
      owner->path.empty() ? std::string("to the job itself") : absl::StrCat("to ", owner->path), ", and ",
      OpenBrace(frame), ": is a } missing?");
}

// Describes a oneof with two members set. In protobuf's message, the second pair of quotes contains the other
// member.
std::string DescribeSecondMember(const FieldDescriptor& field, const std::string& error) {
  const std::vector<std::string> parts = absl::StrSplit(error, '"');
  std::vector<std::string> members;
  for (int i = 0; i < field.containing_oneof()->field_count(); ++i) {
    members.push_back(field.containing_oneof()->field(i)->name());
  }
  return absl::StrCat(parts.size() > 3 ? parts[3] : "another", " is set already; set only one of ",
                      absl::StrJoin(members, ", "));
}

std::string DescribeOtherFormat(absl::string_view format) {
  return absl::StrCat(
      "this looks like ", format,
      "; a job is in protobuf's text format, name: \"x\" model { ... }, as the files in examples/ are");
}

// Returns a place where the text is JSON or YAML; protobuf's own message would name a character.
std::optional<Explanation> FindOtherFormat(const std::string& text) {
  const absl::string_view begin = absl::StripLeadingAsciiWhitespace(text);
  if (absl::StartsWith(begin, "{") || absl::StartsWith(begin, "[") || absl::StartsWith(begin, "\"")) {
    return Explanation{{0, 0}, DescribeOtherFormat("JSON")};
  }
  if (absl::StrContains(text, "{")) return std::nullopt;
  const std::vector<absl::string_view> lines = absl::StrSplit(absl::StripTrailingAsciiWhitespace(text), '\n');
  for (size_t i = 0; i < lines.size(); ++i) {
    const absl::string_view line = absl::StripAsciiWhitespace(lines[i].substr(0, lines[i].find('#')));
    const bool begins_block = absl::EndsWith(line, ":") && i + 1 < lines.size();
    if (begins_block || absl::StartsWith(line, "- ") || line == "---") {
      return Explanation{{static_cast<int>(i), 0}, DescribeOtherFormat("YAML")};
    }
  }
  return std::nullopt;
}

// Replaces names by others of the same length. A tab moves the tokenizer's column to the next multiple of 8.
std::string Replace(const std::string& text, const std::vector<Tracer::Recased>& names) {
  std::string result = text;
  std::pair<int, int> position;
  auto name = names.begin();
  for (size_t i = 0; i < text.size() && name != names.end(); ++i) {
    if (position == name->position) {
      const size_t size = name->name.size();
      if (absl::EqualsIgnoreCase(text.substr(i, size), name->name)) result.replace(i, size, name->name);
      ++name;
    }
    if (text[i] == '\n') {
      position = {position.first + 1, 0};
    } else {
      position.second += text[i] == '\t' ? 8 - position.second % 8 : 1;
    }
  }
  return result;
}

Explanation Explain(const Tracer& tracer, const FirstError& error) {
  const Frame& frame = tracer.frame();
  const std::string& next = tracer.stopped_at();
  if (next.empty() && !frame.AwaitsValue() && !tracer.is_outside_braces()) {
    return {error.position(), absl::StrCat("the text ends, and ", OpenBrace(frame))};
  }
  if (frame.name.empty()) return {error.position(), error.text()};
  const std::string path = absl::StrCat(Tracer::FieldPath(frame), ": ");
  if (!frame.field) return {frame.name_position, absl::StrCat(path, DescribeStranger(tracer))};
  if (absl::StrContains(error.text(), "another member of oneof")) {
    return {error.position(), absl::StrCat(path, DescribeSecondMember(*frame.field, error.text()))};
  }
  if (next == "=") return {error.position(), absl::StrCat(path, "expected a colon, got =")};
  const bool is_message = Tracer::IsMessage(*frame.field);
  const bool needs_brace = is_message && frame.value.empty() && next != "{" && next != "<" && next != ":";
  if (needs_brace || (!is_message && frame.AwaitsValue())) {
    return {error.position(), absl::StrCat(path, DescribeMismatch(*frame.field, frame.value + next, kEnd))};
  }
  if (!IsValidName(*frame.field, frame.value)) {
    return {frame.value_position, absl::StrCat(path, DescribeMismatch(*frame.field, frame.value, kEnd))};
  }
  return {error.position(), absl::StrCat(path, error.text())};
}

bool Parse(const std::string& text, FirstError* error, google::protobuf::Message* message) {
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(error);
  return parser.ParseFromString(text, message);
}

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& path, FileNamedBy named_by) {
  ASSIGN_OR_RETURN(const std::string content, ReadFile(path, named_by));
  ASSIGN_OR_RETURN(const absl::string_view text, Utf8Text(content, path));
  return std::string(text);
}

absl::Status ParseText(const std::string& text, const std::string& source, const std::string& path,
                       google::protobuf::Message* message) {
  FirstError error;
  if (Parse(text, &error, message)) return absl::OkStatus();
  Tracer all(message->GetDescriptor(), path);
  all.Follow(text, {INT_MAX, 0});
  const std::string recased = Replace(text, all.recased());
  if (recased != text) return ParseText(recased, source, path, message);
  Tracer tracer(message->GetDescriptor(), path);
  tracer.Follow(text, error.position());
  const std::optional<Explanation> other = FindOtherFormat(text);
  const auto [position, explanation] = other ? *other : Explain(tracer, error);
  return absl::InvalidArgumentError(
      absl::StrCat(source, ":", position.first + 1, ":", position.second + 1, ": ", explanation));
}

}  // namespace catchment
