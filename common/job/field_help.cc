#include "common/job/field_help.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace catchment {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;

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

// Insertions, deletions and substitutions from a to b (Levenshtein 1966).
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substituted = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::string DescribeType(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32: return DescribeInteger<int32_t>();
    case FieldDescriptor::CPPTYPE_INT64: return DescribeInteger<int64_t>();
    case FieldDescriptor::CPPTYPE_UINT32: return DescribeInteger<uint32_t>();
    case FieldDescriptor::CPPTYPE_UINT64: return DescribeInteger<uint64_t>();
    case FieldDescriptor::CPPTYPE_DOUBLE:
    case FieldDescriptor::CPPTYPE_FLOAT: return "a number";
    case FieldDescriptor::CPPTYPE_BOOL: return "true or false";
    case FieldDescriptor::CPPTYPE_ENUM: return DescribeEnum(*field.enum_type());
    case FieldDescriptor::CPPTYPE_STRING: return "a text in quotes";
    case FieldDescriptor::CPPTYPE_MESSAGE: return "fields in braces, { ... }";
  }
  return field.cpp_type_name();
}

std::string DescribeUnknownField(const Descriptor& message, const std::string& name) {
  std::vector<std::string> known;
  for (int i = 0; i < message.field_count(); ++i) known.push_back(message.field(i)->name());
  if (known.empty()) return "no such field; there are none here, leave it out";
  const std::string nearest = NearestName(name, known);
  return absl::StrCat("no such field; ",
                      nearest.empty() ? "known: " : absl::StrCat("did you mean ", nearest, "? ("),
                      absl::StrJoin(known, ", "), nearest.empty() ? "" : ")");
}

std::string NearestName(const std::string& name, const std::vector<std::string>& candidates) {
  const std::string wanted = absl::AsciiStrToLower(name);
  size_t best = std::max<size_t>(2, name.size() / 2) + 1;
  std::string nearest;
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(wanted, absl::AsciiStrToLower(candidate));
    if (distance >= best || distance >= candidate.size()) continue;
    best = distance;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace catchment
