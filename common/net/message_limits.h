// Checks the fields of the messages that a server receives, and of the reports with which servers answer the
// master's commands, against the limits that they state as options (proto/limits.proto). Blocks of the Train
// stream have their own checks (common/wire/block_frame.h, server/shard/shard.h).
#ifndef CATCHMENT_COMMON_NET_MESSAGE_LIMITS_H_
#define CATCHMENT_COMMON_NET_MESSAGE_LIMITS_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include "absl/status/status.h"
#include "proto/limits.pb.h"

namespace catchment {

// Returns what the field may contain; no kind is set for a field with the limit ANY, or without one.
const v1::Limit& LimitOf(const google::protobuf::FieldDescriptor& field);

// Returns InvalidArgument, which names the field, its value and the limit, if a field of the message, or of a
// message in it, is outside its limit.
absl::Status CheckLimits(const google::protobuf::Message& message);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_NET_MESSAGE_LIMITS_H_
