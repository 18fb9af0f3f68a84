#include "common/job/job_text.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/job/text_format.h"
#include "glog/logging.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/unknown_field_set.h"

namespace catchment {
namespace {

using google::protobuf::Message;
using google::protobuf::util::MessageDifferencer;

// Returns the message on one line, in braces.
std::string Brief(const Message& message) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string text;
  CHECK(printer.PrintToString(message, &text));
  absl::StripAsciiWhitespace(&text);
  return absl::StrCat("{ ", text, text.empty() ? "}" : " }");
}

void CompareModels(const v1::Model& saved, const v1::Model& now, std::vector<std::string>* lines) {
  for (int i = 0; i < std::min(saved.layers_size(), now.layers_size()); ++i) {
    if (MessageDifferencer::Equals(saved.layers(i), now.layers(i))) continue;
    lines->push_back(absl::StrCat("model.layers[", i, "]: saved ", Brief(saved.layers(i)), ", now ",
                                  Brief(now.layers(i))));
  }
  if (saved.layers_size() != now.layers_size()) {
    lines->push_back(
        absl::StrCat("model.layers: saved ", saved.layers_size(), " layers, now ", now.layers_size()));
  }
  if (!MessageDifferencer::Equals(saved.synthetic(), now.synthetic())) {
    lines->push_back(
        absl::StrCat("model.synthetic: saved ", Brief(saved.synthetic()), ", now ", Brief(now.synthetic())));
  }
  v1::ExternalModel of_now = now.external();
  of_now.set_local_steps(saved.external().local_steps());
  if (!MessageDifferencer::Equals(saved.external(), of_now)) {
    lines->push_back("model.external: the saved job's tensors have other names or shapes than this job's");
  }
}

// Returns the data without their place, and without the number of threads that read them.
v1::Data WithoutPlace(v1::Data data) {
  if (data.has_mnist()) data.mutable_mnist()->clear_directory();
  if (data.has_table()) data.mutable_table()->clear_directory();
  if (data.has_image_folder()) data.mutable_image_folder()->clear_directory();
  data.clear_loader_threads();
  return data;
}

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
    RETURN_IF_ERROR(status);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<v1::Job> LoadJob(const std::string& path, const std::vector<std::string>& overrides,
                                FileNamedBy named_by) {
  const auto text = ReadTextFile(path, named_by);
  if (!text.ok()) {
    return absl::Status(text.status().code(), absl::StrCat("the job file: ", text.status().message()));
  }
  if (absl::EndsWith(path, ".py") || absl::StartsWith(*text, "#!")) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": is a program, not a job: give it as --program=\"",
        absl::StartsWith(*text, "#!") ? "" : "python ", path,
        "\" to `catchment train`, or to `catchment validate --write=FILE`, which writes its job"));
  }
  v1::Job job;
  RETURN_IF_ERROR(ParseText(*text, path, "", &job));
  RETURN_IF_ERROR(ApplyOverrides(overrides, &job));
  return job;
}

std::string JobText(const v1::Job& job) {
  std::string text;
  CHECK(google::protobuf::TextFormat::PrintToString(job, &text));
  return text;
}

uint64_t JobFingerprint(const v1::Job& job) {
  v1::Job placeless = job;
  *placeless.mutable_data() = WithoutPlace(job.data());
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    CHECK(placeless.SerializeToCodedStream(&coded));
  }
  uint64_t hash = bytes.size();
  for (char c : bytes) hash = Derive(hash, static_cast<uint8_t>(c));
  return hash;
}

std::string DescribeResumeConflict(const v1::Job& saved, const v1::Job& now) {
  std::vector<std::string> lines;
  CompareModels(saved.model(), now.model(), &lines);
  const v1::Data saved_data = WithoutPlace(saved.data());
  const v1::Data now_data = WithoutPlace(now.data());
  if (!MessageDifferencer::Equals(saved_data, now_data)) {
    lines.push_back(absl::StrCat("data: saved ", Brief(saved_data), ", now ", Brief(now_data)));
  }
  if (saved.seed() != now.seed()) {
    lines.push_back(absl::StrCat("seed: saved ", saved.seed(), ", now ", now.seed(),
                                 "; the order of the samples follows from it"));
  }
  return absl::StrJoin(lines, "\n");
}

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
    RETURN_IF_ERROR(CheckField(message, field));
  }
  return absl::OkStatus();
}

}  // namespace catchment
