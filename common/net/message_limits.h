// Limits on the fields of the messages that a server receives, and of the reports with which servers answer
// the master's
// commands: the largest number, the longest text, the longest list. Blocks of the Train stream have their own
// checks (common/wire/block_frame.h, server/shard/shard.h).
#ifndef CATCHMENT_COMMON_NET_MESSAGE_LIMITS_H_
#define CATCHMENT_COMMON_NET_MESSAGE_LIMITS_H_

#include <google/protobuf/message.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace catchment {

struct FieldLimit {
  enum Kind {
    kAny,     // all values
    kNumber,  // from 0 to `most`; no NaN
    kLine,    // at most `most` bytes that are one line (OneLine in common/base/text.h)
    kText,    // at most `most` bytes
    kFile,    // the name of a file in a directory
    kCount,   // at most `most` elements of a repeated field
  };
  absl::string_view field;  // "RegisterRequest.host"
  Kind kind = kAny;
  double most = 0;
};

// Returns the limits of all fields of all requests and of ShardReport, and of the messages in them.
absl::Span<const FieldLimit> FieldLimits();

// Returns InvalidArgument, which names the field, its value and the limit, if a field of the message, or of a
// message in it, is outside its limit.
absl::Status CheckLimits(const google::protobuf::Message& message);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_NET_MESSAGE_LIMITS_H_
