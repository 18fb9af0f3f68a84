// Writes docs/job_reference.md to standard output, from proto/job.proto's comments:
//   bazel run //docs:make_job_reference > docs/job_reference.md
// One section for each message with fields, and for each enum of the file. Sections follow the fields that
// lead to them, from Job on; one that several lead to comes with the shortest path.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <deque>
#include <fstream>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/job/text_format.h"
#include "docs/comment_markdown.h"

namespace catchment {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::EnumValueDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using google::protobuf::OneofDescriptor;
using google::protobuf::SourceLocation;

constexpr char kHead[] = R"(# Job reference

<!-- Made by //docs:make_job_reference from proto/job.proto. Change the comments there, then:
     bazel run //docs:make_job_reference > docs/job_reference.md -->

)";

constexpr char kHowToRead[] = R"(A field with a value is written `name: value`, one with fields of its own
`name { ... }`, and a list by repeating it: `layers { ... } layers { ... }`. `--set PATH=VALUE` of the
command changes any of them by its path, as `--set optimizer.learning_rate=0.02`. The other pages explain what
belongs together:
[algorithms](algorithms/README.md), [optimizers](algorithms/optimizers.md), [models and data](models.md),
[codecs](codecs.md), [operating](operating.md).

)";

std::string Anchor(const std::string& name) { return "#" + absl::AsciiStrToLower(name); }

// A section of the page: a message or an enum, and the fields that lead to it.
struct Section {
  const Descriptor* message = nullptr;
  const EnumDescriptor* values = nullptr;
  std::vector<std::string> paths;  // the first one is the shortest
  std::vector<Section*> children;  // in the order of the fields that lead to them first

  const std::string& name() const { return message != nullptr ? message->name() : values->name(); }
};

class JobReference {
 public:
  // `file` has its source locations.
  explicit JobReference(const FileDescriptor& file) : file_(file), job_(*file.FindMessageTypeByName("Job")) {
    FindSections();
    words_.link = [this](const std::string& word) { return Link(word); };
    for (const Section& section : sections_) AddCode(section);
  }

  std::string Page() {
    out_ = kHead;
    SourceLocation location;
    // The file's own comment is that of its line `syntax`.
    if (file_.GetSourceLocation({google::protobuf::FileDescriptorProto::kSyntaxFieldNumber}, &location)) {
      AppendComment(location, "");
    }
    out_ += kHowToRead;
    AppendContents(sections_.front(), "");
    AppendSection(sections_.front(), "##");
    while (absl::EndsWith(out_, "\n\n")) out_.pop_back();
    return out_;
  }

 private:
  // ------------------------------------------------------------------------------------------- what there is

  void FindSections() {
    sections_.push_back({&job_});
    by_name_[job_.name()] = &sections_.front();
    // Breadth first, so that the first path to a section is the shortest. A deque's elements stay where they
    // are.
    for (size_t i = 0; i < sections_.size(); ++i) {
      const Descriptor* message = sections_[i].message;
      for (int f = 0; message != nullptr && f < message->field_count(); ++f) {
        FindBehind(*message->field(f), &sections_[i]);
      }
    }
  }

  void FindBehind(const FieldDescriptor& field, Section* from) {
    const Descriptor* message = field.message_type();
    const EnumDescriptor* values = field.enum_type();
    if (values != nullptr && values->containing_type() != nullptr) values = nullptr;  // is shown at its field
    if ((message == nullptr || message->field_count() == 0) && values == nullptr) return;
    const std::string path =
        from->paths.empty() ? field.name() : absl::StrCat(from->paths.front(), ".", field.name());
    Section*& section = by_name_[message != nullptr ? message->name() : values->name()];
    if (section == nullptr) {
      section = &sections_.emplace_back(Section{message, values});
      from->children.push_back(section);
    }
    section->paths.push_back(path);
  }

  void AddCode(const Section& section) {
    const auto add = [this](const EnumDescriptor& values) {
      for (int i = 0; i < values.value_count(); ++i) {
        const std::string& name = values.value(i)->name();
        if (name.find_first_of("0123456789") != std::string::npos) words_.code.insert(name);
      }
    };
    if (section.values != nullptr) add(*section.values);
    if (section.message == nullptr) return;
    for (int i = 0; i < section.message->enum_type_count(); ++i) add(*section.message->enum_type(i));
  }

  // The section that says most about a field.
  std::string SectionOf(const FieldDescriptor& field) const {
    const Descriptor* message = field.message_type();
    if (message != nullptr && by_name_.count(message->name()) > 0) return Anchor(message->name());
    return Anchor(field.containing_type()->name());
  }

  // "optimizer.schedule", also from within algorithm ("contribution.elastic") or with its message's name
  // ("Job.optimizer"); single words lead nowhere, but for the names of sections of two words
  // ("DelayCompensation").
  std::string Link(const std::string& word) const {
    const std::vector<std::string> names = absl::StrSplit(word, '.');
    if (names.size() == 1) {
      const bool two_words = word.find_first_of("ABCDEFGHIJKLMNOPQRSTUVWXYZ", 1) != std::string::npos;
      return two_words && by_name_.count(word) > 0 ? Anchor(word) : "";
    }
    if (by_name_.count(names[0]) > 0) {
      const Descriptor* message = by_name_.at(names[0])->message;
      return message == nullptr ? "" : Follow(*message, names, 1);
    }
    const std::string from_job = Follow(job_, names, 0);
    return !from_job.empty() ? from_job : Follow(*by_name_.at("Algorithm")->message, names, 0);
  }

  std::string Follow(const Descriptor& message, const std::vector<std::string>& names, size_t i) const {
    const FieldDescriptor* field = message.FindFieldByName(names[i]);
    if (field == nullptr) return "";
    if (i + 1 == names.size()) return SectionOf(*field);
    return field->message_type() == nullptr ? "" : Follow(*field->message_type(), names, i + 1);
  }

  // ----------------------------------------------------------------------------------------- what is written

  void AppendContents(const Section& section, const std::string& indent) {
    absl::StrAppend(&out_, indent, "- [", section.name(), "](", Anchor(section.name()), ")",
                    section.paths.empty() ? "" : absl::StrCat(": `", section.paths.front(), "`"), "\n");
    for (const Section* child : section.children) AppendContents(*child, indent + "  ");
    if (indent.empty()) out_ += "\n";
  }

  void AppendSection(const Section& section, const std::string& heading) {
    absl::StrAppend(&out_, heading, " ", section.name(), "\n\n");
    if (!section.paths.empty()) {
      absl::StrAppend(&out_, "In a job: `", absl::StrJoin(section.paths, "`, `"), "`\n\n");
    }
    if (section.message != nullptr) {
      AppendComment(LocationOf(*section.message), "");
      AppendFields(*section.message);
    } else {
      AppendComment(LocationOf(*section.values), "");
      AppendValues(*section.values, "");
    }
    out_ += "\n";
    for (const Section* child : section.children) AppendSection(*child, section.paths.empty() ? "##" : "###");
  }

  void AppendFields(const Descriptor& message) {
    const OneofDescriptor* open = nullptr;
    for (int i = 0; i < message.field_count(); ++i) {
      const FieldDescriptor& field = *message.field(i);
      const OneofDescriptor* oneof = field.real_containing_oneof();
      if (oneof != nullptr && oneof != open) {
        out_ += "- **One of these.**";
        AppendComment(LocationOf(*oneof), "  ", " ");
      }
      open = oneof;
      AppendField(field, oneof == nullptr ? "" : "  ");
    }
  }

  void AppendField(const FieldDescriptor& field, const std::string& indent) {
    const Descriptor* message = field.message_type();
    const bool empty = message != nullptr && message->field_count() == 0;
    const std::string behind = indent + "  ";
    absl::StrAppend(&out_, indent, "- **`", field.name(),
                    empty                ? " {}"
                    : message != nullptr ? " { ... }"
                                         : "",
                    "`**", empty ? "" : ", " + Type(field));
    std::string before = ": ";
    if (empty) before = AppendComment(LocationOf(*message), behind, before) ? " " : before;
    const EnumDescriptor* values = field.enum_type();
    const bool nested = values != nullptr && values->containing_type() != nullptr;
    const bool list = nested && listed_.insert(values).second;
    const bool said = AppendComment(LocationOf(field), behind, before);
    if (list) AppendValues(*values, behind);
    // Two fields may share the first one's comment.
    const bool single = message == nullptr && (values == nullptr || (nested && !list));
    if (!said && single && field.index() > 0) {
      out_.insert(
          out_.size() - 1,
          absl::StrCat(": see `", field.containing_type()->field(field.index() - 1)->name(), "` above"));
    }
  }

  std::string Type(const FieldDescriptor& field) {
    std::string type;
    switch (field.cpp_type()) {
      case FieldDescriptor::CPPTYPE_UINT32:
      case FieldDescriptor::CPPTYPE_UINT64:
        type = "a whole number";
        break;
      case FieldDescriptor::CPPTYPE_MESSAGE:
        type = SectionLink(field.message_type()->name());
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        type = EnumType(*field.enum_type());
        break;
      default:
        type = DescribeType(field);
    }
    return field.is_repeated() ? type + ", any number of times" : type;
  }

  std::string EnumType(const EnumDescriptor& values) {
    if (values.containing_type() == nullptr) return "one of " + SectionLink(values.name());
    return listed_.count(&values) == 0 ? "one of those below" : "one of those above";
  }

  static std::string SectionLink(const std::string& name) {
    return absl::StrCat("[", name, "](", Anchor(name), ")");
  }

  void AppendValues(const EnumDescriptor& values, const std::string& indent) {
    for (int i = 0; i < values.value_count(); ++i) {
      const EnumValueDescriptor& value = *values.value(i);
      const bool unset = absl::EndsWith(value.name(), "UNSET");
      absl::StrAppend(&out_, indent, unset ? "- left out" : absl::StrCat("- `", value.name(), "`"));
      AppendComment(LocationOf(value), indent + "  ", ": ");
    }
  }

  template <typename T>
  static SourceLocation LocationOf(const T& what) {
    SourceLocation location;
    what.GetSourceLocation(&location);
    return location;
  }

  // Leading and trailing comment; the latter is a sentence at the end of the former.
  std::vector<std::string> Parts(const SourceLocation& location) const {
    std::vector<std::string> parts = CommentMarkdown(location.leading_comments, words_);
    for (std::string& part : CommentMarkdown(location.trailing_comments, words_)) {
      if (parts.empty() || absl::StartsWith(parts.back(), "```")) {
        parts.push_back(std::move(part));
        continue;
      }
      part[0] = absl::ascii_toupper(part[0]);
      absl::StrAppend(&parts.back(), " ", part, absl::EndsWith(part, ".") ? "" : ".");
    }
    return parts;
  }

  // In a list's item, `before` is not empty: it joins the first paragraph to the existing text; the line ends
  // in any case. Returns whether there was any comment.
  bool AppendComment(const SourceLocation& location, const std::string& indent,
                     const std::string& before = "") {
    const std::vector<std::string> parts = Parts(location);
    if (before.empty()) {
      for (const std::string& part : parts) absl::StrAppend(&out_, part, "\n\n");
      return !parts.empty();
    }
    if (!parts.empty() && absl::EndsWith(out_, "\n")) out_.pop_back();
    for (size_t i = 0; i < parts.size(); ++i) {
      const bool block = absl::StartsWith(parts[i], "```");
      if (i == 0 && !block) {
        out_ += before;
      } else {
        absl::StrAppend(&out_, i == 0 && before[0] == ':' ? ":" : "", "\n\n", indent);
      }
      out_ += absl::StrReplaceAll(parts[i], {{"\n", "\n" + indent}});
    }
    if (!absl::EndsWith(out_, "\n")) out_ += "\n";
    return !parts.empty();
  }

  const FileDescriptor& file_;
  const Descriptor& job_;
  std::deque<Section> sections_;
  std::map<std::string, Section*> by_name_;
  CommentWords words_;
  std::set<const EnumDescriptor*> listed_;
  std::string out_;
};

// `path`: what `protoc --include_source_info --descriptor_set_out` wrote of proto/job.proto.
int Run(const std::string& path) {
  google::protobuf::FileDescriptorSet set;
  std::ifstream in(path, std::ios::binary);
  if (!in || !set.ParseFromIstream(&in) || set.file_size() != 1) {
    std::cerr << path << ": not the descriptor of one .proto\n";
    return 1;
  }
  google::protobuf::DescriptorPool pool;
  std::cout << JobReference(*pool.BuildFile(set.file(0))).Page();
  return 0;
}

}  // namespace
}  // namespace catchment

int main(int argc, char** argv) { return catchment::Run(argc > 1 ? argv[1] : "docs/job.descriptor"); }
