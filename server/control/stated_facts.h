// The facts of a member that somebody else knows: the master has assigned them, or the job states them. The
// options of the fields in proto/ name the owner of each (Owner in proto/limits.proto), and every check of a
// member's message is made from them.
//
// Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_CONTROL_STATED_FACTS_H_
#define CATCHMENT_SERVER_CONTROL_STATED_FACTS_H_

#include <google/protobuf/message.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "proto/limits.pb.h"
#include "server/control/membership.h"

namespace catchment {

class StatedFacts {
 public:
  // `member`: its name, for errors.
  explicit StatedFacts(std::string member) : member_(std::move(member)) {}
  // Sets the worker's index, its leases, and the steps and samples that they assign.
  explicit StatedFacts(const Member& worker);

  // Sets the number that the owner knows.
  StatedFacts& Set(v1::Owner::Name owner, uint64_t number);

  // Returns InvalidArgument, which names the member, the field, its value and the owner's number, if a field
  // of the message, or of a single message in it, contradicts its owner. A field whose owner's number is not
  // set is not checked.
  absl::Status Check(const google::protobuf::Message& stated) const;

 private:
  std::string member_;
  std::map<v1::Owner::Name, uint64_t> numbers_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_STATED_FACTS_H_
