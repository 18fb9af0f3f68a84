#include "server/control/calls.h"

#include <glog/logging.h>

namespace catchment {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;

const std::vector<MasterMethod>& MasterMethods() {
  static const auto* const methods = [] {
    auto* const all = new std::vector<MasterMethod>();
    const auto& service = *v1::GetJobRequest::descriptor()->file()->FindServiceByName("MasterService");
    for (int i = 0; i < service.method_count(); ++i) {
      const google::protobuf::MethodDescriptor& method = *service.method(i);
      if (method.client_streaming()) continue;
      all->push_back({&method, &FieldWith(*method.input_type(), *v1::Call::descriptor()),
                      &FieldWith(*method.output_type(), *v1::Reply::descriptor())});
    }
    return all;
  }();
  return *methods;
}

const v1::CallRule& RuleOf(const v1::Call& call) {
  const FieldDescriptor* const field = v1::Call::descriptor()->FindFieldByNumber(call.request_case());
  return field == nullptr ? v1::CallRule::default_instance() : field->options().GetExtension(v1::rule);
}

const FieldDescriptor& FieldWith(const Descriptor& message, const Descriptor& holder) {
  for (int i = 0; i < holder.field_count(); ++i) {
    if (holder.field(i)->message_type() == &message) return *holder.field(i);
  }
  LOG(FATAL) << holder.full_name() << " has no field for " << message.full_name();
}

}  // namespace catchment
