// Calls of the master's service and their replies as values (proto/calls.proto).
//
// Threads: functions without state.
#ifndef CATCHMENT_SERVER_CONTROL_CALLS_H_
#define CATCHMENT_SERVER_CONTROL_CALLS_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/calls.pb.h"

namespace catchment {

// Receives the reply to a call, once, when no lock is held.
using Respond = std::function<void(absl::StatusOr<v1::Reply>)>;

// A reply that may leave.
struct ReadyReply {
  Respond respond;
  absl::StatusOr<v1::Reply> reply;
};

// A method of the master's service with one request.
struct MasterMethod {
  const google::protobuf::MethodDescriptor* method;
  const google::protobuf::FieldDescriptor* request;  // of v1::Call
  const google::protobuf::FieldDescriptor* reply;    // of v1::Reply

  const v1::CallRule& rule() const { return request->options().GetExtension(v1::rule); }
};
const std::vector<MasterMethod>& MasterMethods();

// Returns the rule of the call's method.
const v1::CallRule& RuleOf(const v1::Call& call);

// Returns the field of v1::Call or v1::Reply that has messages of a type.
const google::protobuf::FieldDescriptor& FieldWith(const google::protobuf::Descriptor& message,
                                                   const google::protobuf::Descriptor& holder);

// Returns that field of the call or reply, and sets it.
template <typename Message, typename Holder>
Message* MutableIn(Holder* holder) {
  static const google::protobuf::FieldDescriptor& field =
      FieldWith(*Message::descriptor(), *Holder::descriptor());
  return static_cast<Message*>(holder->GetReflection()->MutableMessage(holder, &field));
}

template <typename Request>
v1::Call MakeCall(Request request, std::string address = "") {
  v1::Call call;
  call.set_address(std::move(address));
  *MutableIn<Request>(&call) = std::move(request);
  return call;
}

template <typename Message>
absl::StatusOr<v1::Reply> MakeReply(absl::StatusOr<Message> message) {
  if (!message.ok()) return std::move(message).status();
  v1::Reply reply;
  *MutableIn<Message>(&reply) = *std::move(message);
  return reply;
}

// Returns the message of a reply to a call whose replies have this type.
template <typename Message>
absl::StatusOr<Message> TakeReply(absl::StatusOr<v1::Reply> reply) {
  if (!reply.ok()) return std::move(reply).status();
  return std::move(*MutableIn<Message>(&*reply));
}

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_CALLS_H_
