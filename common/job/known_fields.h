// Whether this build knows all that a message says: protobuf keeps a field that it does not know, and code
// ignores it.
#ifndef CATCHMENT_COMMON_JOB_KNOWN_FIELDS_H_
#define CATCHMENT_COMMON_JOB_KNOWN_FIELDS_H_

#include "absl/status/status.h"
#include "google/protobuf/message.h"

namespace catchment {

// Returns FailedPrecondition, naming message and field, for the first field, or value of an enumeration, in
// `message` and all messages in it that this build does not know.
absl::Status CheckFieldsKnown(const google::protobuf::Message& message);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_KNOWN_FIELDS_H_
