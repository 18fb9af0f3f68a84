#include "server/control/stated_facts.h"

#include <google/protobuf/descriptor.h>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

using google::protobuf::FieldDescriptor;

const v1::Owner& Words(v1::Owner::Name owner) {
  return v1::Owner::Name_descriptor()->FindValueByNumber(owner)->options().GetExtension(v1::known);
}

uint64_t NumberIn(const google::protobuf::Message& message, const FieldDescriptor& field) {
  const google::protobuf::Reflection& values = *message.GetReflection();
  return field.cpp_type() == FieldDescriptor::CPPTYPE_UINT32 ? values.GetUInt32(message, &field)
                                                             : values.GetUInt64(message, &field);
}

}  // namespace

StatedFacts::StatedFacts(const Member& worker) : StatedFacts(worker.name()) {
  Set(v1::Owner::WORKER_INDEX, worker.index);
  Set(v1::Owner::LAST_LEASE, worker.lease.number());
  Set(v1::Owner::GRANTED_STEPS, worker.granted_steps);
  Set(v1::Owner::GRANTED_SAMPLES, worker.granted_samples);
}

StatedFacts& StatedFacts::Set(v1::Owner::Name owner, uint64_t number) {
  numbers_[owner] = number;
  return *this;
}

absl::Status StatedFacts::Check(const google::protobuf::Message& stated) const {
  const google::protobuf::Descriptor& type = *stated.GetDescriptor();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.is_repeated()) continue;
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      if (!stated.GetReflection()->HasField(stated, &field)) continue;
      RETURN_IF_ERROR(Check(stated.GetReflection()->GetMessage(stated, &field)));
      continue;
    }
    const v1::Owner::Name owner = field.options().GetExtension(v1::owner);
    const auto known = numbers_.find(owner);
    if (known == numbers_.end()) continue;
    const v1::Owner& words = Words(owner);
    const uint64_t number = NumberIn(stated, field);
    if (words.equals().empty() ? number <= known->second : number == known->second) continue;
    return absl::InvalidArgumentError(absl::StrCat(member_, " reports ", type.name(), ".", field.name(), " ",
                                                   number, ", but ", words.equals(), words.at_most(), " ",
                                                   known->second));
  }
  return absl::OkStatus();
}

}  // namespace catchment
