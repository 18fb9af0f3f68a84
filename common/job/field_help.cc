#include "common/job/field_help.h"

#include <limits>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "common/base/nearest_name.h"
#include "common/job/text_format.h"
#include "proto/job.pb.h"

namespace catchment {
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
