#include "common/job/text_format.h"

#include <fcntl.h>
#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "common/byte_order_mark.h"

namespace catchment {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::io::Tokenizer;

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

// Protobuf says at which token its parser gave up, and not always what stood there. This follows the text to
// that token and knows the field under way.
class Tracer {
 public:
  Tracer(const Descriptor* message, const std::string& path) { frames_.push_back({message, path}); }

  // Reads the tokens before `position`; afterwards stopped_at() is the text of the token there.
  void Follow(const std::string& text, std::pair<int, int> position) {
    google::protobuf::io::ArrayInputStream stream(text.data(), static_cast<int>(text.size()));
    FirstError ignored;
    Tokenizer tokenizer(&stream, &ignored);
    tokenizer.set_comment_style(Tokenizer::SH_COMMENT_STYLE);
    tokenizer.set_allow_f_after_float(true);
    tokenizer.set_require_space_after_number(false);
    while (tokenizer.Next() && Position(tokenizer.current()) < position) Take(tokenizer.current());
    stopped_at_ = tokenizer.current().text;
  }

  const std::string& stopped_at() const { return stopped_at_; }
  const Frame& frame() const { return frames_.back(); }

  // "model.layers[3].dense"
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
    if (text == "{" || text == "<") return Enter();
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

  void Enter() {
    Frame& frame = frames_.back();
    const bool known = frame.field && IsMessage(*frame.field);
    frames_.push_back({known ? frame.field->message_type() : frame.message, FieldPath(frame)});
  }

  void Leave() {
    if (frames_.size() == 1) return;
    frames_.pop_back();
    Frame& frame = frames_.back();
    ++frame.seen[frame.name];
    frame.value = "{}";
  }

  std::vector<Frame> frames_;
  std::string stopped_at_;
};

bool IsValidName(const FieldDescriptor& field, const std::string& value) {
  if (value.empty() || !absl::ascii_isalpha(value[0])) return true;
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_ENUM) return field.enum_type()->FindValueByName(value);
  if (field.cpp_type() != FieldDescriptor::CPPTYPE_BOOL) return true;
  return value == "true" || value == "false" || value == "t" || value == "f" || value == "True" ||
         value == "False";
}

std::string DescribeMismatch(const FieldDescriptor& field, const std::string& got) {
  return absl::StrCat("expected ", DescribeType(field), ", got ", got.empty() ? "the end of the text" : got);
}

struct Explanation {
  std::pair<int, int> position;
  std::string text;
};

Explanation Explain(const Tracer& tracer, const FirstError& error) {
  const Frame& frame = tracer.frame();
  const std::string& next = tracer.stopped_at();
  if (frame.name.empty()) return {error.position(), error.text()};
  const std::string path = absl::StrCat(Tracer::FieldPath(frame), ": ");
  if (!frame.field) {
    return {frame.name_position, absl::StrCat(path, DescribeUnknownField(*frame.message, frame.name))};
  }
  const bool is_message = Tracer::IsMessage(*frame.field);
  const bool needs_brace = is_message && frame.value.empty() && next != "{" && next != "<" && next != ":";
  if (needs_brace || (!is_message && frame.AwaitsValue())) {
    return {error.position(), absl::StrCat(path, DescribeMismatch(*frame.field, frame.value + next))};
  }
  if (!IsValidName(*frame.field, frame.value)) {
    return {frame.value_position, absl::StrCat(path, DescribeMismatch(*frame.field, frame.value))};
  }
  return {error.position(), absl::StrCat(path, error.text())};
}

}  // namespace

absl::StatusOr<std::string> ReadTextFile(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot open ", path));
  std::string content;
  char buffer[1 << 16];
  ssize_t count;
  while ((count = read(file, buffer, sizeof(buffer))) != 0) {
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) break;
    content.append(buffer, count);
  }
  const int error = errno;
  close(file);
  if (count < 0) return absl::ErrnoToStatus(error, absl::StrCat("cannot read ", path));
  const absl::StatusOr<absl::string_view> text = Utf8Text(content, path);
  if (!text.ok()) return text.status();
  return std::string(*text);
}

absl::Status ParseText(const std::string& text, const std::string& source, const std::string& path,
                       google::protobuf::Message* message) {
  FirstError error;
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (parser.ParseFromString(text, message)) return absl::OkStatus();
  Tracer tracer(message->GetDescriptor(), path);
  tracer.Follow(text, error.position());
  const auto [position, explanation] = Explain(tracer, error);
  return absl::InvalidArgumentError(
      absl::StrCat(source, ":", position.first + 1, ":", position.second + 1, ": ", explanation));
}

}  // namespace catchment
