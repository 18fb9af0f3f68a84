#include "common/job/job_text.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>
#include <google/protobuf/util/message_differencer.h>

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/job/text_format.h"
#include "glog/logging.h"
#include "google/protobuf/descriptor.h"
#include "google/protobuf/unknown_field_set.h"
#include "proto/job.pb.h"

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

namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;

// The fields that had another name in an earlier version; their numbers have not changed.
struct RenamedField {
  const char* message;
  const char* old_name;
  const char* new_name;
};
constexpr RenamedField kRenamedFields[] = {
    {"catchment.v1.Algorithm", "emulated_delay", "consistency { asynchronous { emulated_delay } }"},
    {"catchment.v1.Consistency", "groups",
     "asynchronous {} (for 0), synchronous {} (for 1) or grouped { groups } (for more)"},
    {"catchment.v1.Consistency", "softsync", "n_softsync { n }"},
    {"catchment.v1.Consistency", "spare_workers", "backup_workers, in synchronous {} or grouped {},"},
    {"catchment.v1.Consistency", "staleness_bound", "bounded_staleness { bound }"},
    {"catchment.v1.Faults", "worker_lease_seconds", "heartbeat_timeout_seconds"},
    {"catchment.v1.Optimizer", "trust", "trust_coefficient"},
    {"catchment.v1.Schedule", "rise_share", "pct_start"},
    {"catchment.v1.Schedule", "rise_from", "initial_lr_fraction"},
    {"catchment.v1.Straggler", "times", "slowdown_factor"},
};

template <typename T>
std::string DescribeInteger() {
  return absl::StrCat("a whole number from ", std::numeric_limits<T>::min(), " to ",
                      std::numeric_limits<T>::max());
}

std::string DescribeEnum(const EnumDescriptor& type) {
  std::vector<std::string> names;
  for (int i = 0; i < type.value_count(); ++i) {
    if (!absl::EndsWith(type.value(i)->name(), "UNSET")) names.push_back(type.value(i)->name());
  }
  return absl::StrCat("one of ", absl::StrJoin(names, ", "));
}

// The names that other systems have for a field.
constexpr RenamedField kOtherNames[] = {
    {"catchment.v1.Job", "lr", "optimizer.learning_rate"}, {"catchment.v1.Job", "steps", "updates"},
    {"catchment.v1.Job", "iterations", "updates"},         {"catchment.v1.Layer", "conv", "conv2d"},
    {"catchment.v1.Layer", "convolution", "conv2d"},       {"catchment.v1.Layer", "fc", "dense"},
    {"catchment.v1.Layer", "fully_connected", "dense"},    {"catchment.v1.Layer", "linear", "dense"},
    {"catchment.v1.Optimizer", "lr", "learning_rate"},
};

// The flags with which commands of other systems set a field that has another name or several values here.
constexpr RenamedField kFlagsOfFields[] = {
    {"catchment.v1.Job", "algorithm", "algorithm.preset"},
    {"catchment.v1.Job", "preset", "algorithm.preset"},
    {"catchment.v1.Job", "batch", "batch_size"},
    {"catchment.v1.Job", "batchsize", "batch_size"},
    {"catchment.v1.Job", "bs", "batch_size"},
    {"catchment.v1.Job", "epoch", "epochs"},
    {"catchment.v1.Job", "learning_rate", "optimizer.learning_rate"},
    {"catchment.v1.Job", "local_steps", "algorithm.contribution.pseudo_gradient.local_steps"},
    {"catchment.v1.Job", "max_epochs", "epochs"},
    {"catchment.v1.Job", "max_steps", "updates"},
    {"catchment.v1.Job", "momentum", "optimizer.momentum"},
    {"catchment.v1.Job", "num_epochs", "epochs"},
    {"catchment.v1.Job", "num_train_epochs", "epochs"},
    {"catchment.v1.Job", "optimizer", "optimizer.kind"},
    {"catchment.v1.Job", "schedule", "optimizer.schedule.decay"},
    {"catchment.v1.Job", "standby", "faults.standby"},
    {"catchment.v1.Job", "weight_decay", "optimizer.weight_decay"},
    {"catchment.v1.Job", "wd", "optimizer.weight_decay"},
};

// Returns the paths, from `message`, of fields with this name in the messages nearest to it.
std::vector<std::string> FindDeeper(const Descriptor& message, const std::string& name) {
  std::vector<std::pair<std::string, const Descriptor*>> level = {{"", &message}};
  std::set<const Descriptor*> seen = {&message};
  std::vector<std::string> found;
  while (found.empty() && !level.empty()) {
    std::vector<std::pair<std::string, const Descriptor*>> next;
    for (const auto& [path, type] : level) {
      for (int i = 0; i < type->field_count(); ++i) {
        const Descriptor* const inner = type->field(i)->message_type();
        if (inner == nullptr || !seen.insert(inner).second) continue;
        next.emplace_back(absl::StrCat(path, type->field(i)->name(), "."), inner);
        if (inner->FindFieldByName(name) != nullptr) found.push_back(next.back().first + name);
      }
    }
    level = std::move(next);
  }
  return found;
}

// Returns these paths; none if there are too many to choose from.
std::vector<std::string> FewDeeper(const Descriptor& message, const std::string& name) {
  constexpr size_t kMost = 3;
  const std::vector<std::string> deeper = FindDeeper(message, name);
  return deeper.size() > kMost ? std::vector<std::string>() : deeper;
}

// Returns the entry of a table for a name in a message; null if there is none.
const RenamedField* FindOtherName(absl::Span<const RenamedField> table, const Descriptor& message,
                                  const std::string& name) {
  for (const RenamedField& other : table) {
    if (message.full_name() == other.message && name == other.old_name) return &other;
  }
  return nullptr;
}

// Returns what `name` was probably meant to be; empty if nothing is near.
std::string Suggest(const Descriptor& message, const std::string& name,
                    const std::vector<std::string>& known) {
  if (const RenamedField* other = FindOtherName(kOtherNames, message, name)) return other->new_name;
  const std::vector<std::string> deeper = FewDeeper(message, name);
  return deeper.empty() ? NearestName(name, known) : absl::StrJoin(deeper, " or ");
}

}  // namespace

std::string FieldOfFlag(const std::string& flag) {
  const Descriptor& job = *v1::Job::descriptor();
  if (const RenamedField* known = FindOtherName(kOtherNames, job, flag)) return known->new_name;
  if (const RenamedField* known = FindOtherName(kFlagsOfFields, job, flag)) return known->new_name;
  std::vector<std::string> steps = absl::StrSplit(flag, '.');
  const Descriptor* message = &job;
  for (const std::string& step : steps) {
    const FieldDescriptor* const field = message == nullptr ? nullptr : message->FindFieldByName(step);
    if (field == nullptr) return steps.size() == 1 ? absl::StrJoin(FewDeeper(job, flag), " or ") : "";
    message = field->message_type();
  }
  return message == nullptr ? flag : "";
}

std::string DescribeType(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return DescribeInteger<int32_t>();
    case FieldDescriptor::CPPTYPE_INT64:
      return DescribeInteger<int64_t>();
    case FieldDescriptor::CPPTYPE_UINT32:
      return DescribeInteger<uint32_t>();
    case FieldDescriptor::CPPTYPE_UINT64:
      return DescribeInteger<uint64_t>();
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT:
      return "a number";
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true or false";
    case FieldDescriptor::CPPTYPE_ENUM:
      return DescribeEnum(*field.enum_type());
    case FieldDescriptor::CPPTYPE_STRING:
      return "a text in quotes";
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return "fields in braces, { ... }";
  }
  return field.cpp_type_name();
}

std::string DescribeMismatch(const FieldDescriptor& field, const std::string& got, const char* nothing) {
  const bool is_part = field.full_name() == "catchment.v1.Job.epochs" && absl::StrContains(got, '.');
  return absl::StrCat("expected ", DescribeType(field), ", got ", got.empty() ? nothing : got,
                      is_part ? "; for a part of an epoch set samples instead: samples: 30000" : "");
}

std::string DescribeUnknownField(const Descriptor& message, const std::string& name) {
  for (const RenamedField& renamed : kRenamedFields) {
    if (message.full_name() == renamed.message && name == renamed.old_name) {
      return absl::StrCat("is called ", renamed.new_name, " now");
    }
  }
  std::vector<std::string> known;
  for (int i = 0; i < message.field_count(); ++i) known.push_back(message.field(i)->name());
  if (known.empty()) return "no such field; there are none here, leave it out";
  const std::string nearest = Suggest(message, name, known);
  return absl::StrCat("no such field; ",
                      nearest.empty() ? "known: " : absl::StrCat("did you mean ", nearest, "? ("),
                      absl::StrJoin(known, ", "), nearest.empty() ? "" : ")");
}

}  // namespace catchment
