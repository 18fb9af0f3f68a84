#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/job/text_format.h"
#include "common/nearest_name.h"

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
  for (int i = 0; i < type.value_count(); ++i) names.push_back(type.value(i)->name());
  return absl::StrCat("one of ", absl::StrJoin(names, ", "));
}

}  // namespace

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

std::string DescribeUnknownField(const Descriptor& message, const std::string& name) {
  for (const RenamedField& renamed : kRenamedFields) {
    if (message.full_name() == renamed.message && name == renamed.old_name) {
      return absl::StrCat("is called ", renamed.new_name, " now");
    }
  }
  std::vector<std::string> known;
  for (int i = 0; i < message.field_count(); ++i) known.push_back(message.field(i)->name());
  if (known.empty()) return "no such field; there are none here, leave it out";
  const std::string nearest = NearestName(name, known);
  return absl::StrCat("no such field; ",
                      nearest.empty() ? "known: " : absl::StrCat("did you mean ", nearest, "? ("),
                      absl::StrJoin(known, ", "), nearest.empty() ? "" : ")");
}

}  // namespace catchment
