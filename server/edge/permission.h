// Decides which callers may make which calls of a server.
//
// A certificate names the roles of its owner as URIs among its subject alternative names:
// catchment:role/worker, evaluator, server or operator. proto/calls.proto has the roles that may make each
// call of the master, and permission.cc those of other calls. Every call of a listener is checked against
// them before its service sees the call (calls.h). A call that names a registration (its messages have an
// `incarnation`) must also present that registration's token (common/wire/token.h).
//
// Without TLS callers have no certificates: then every role may make every call, and only tokens are checked.
#ifndef CATCHMENT_SERVER_EDGE_PERMISSION_H_
#define CATCHMENT_SERVER_EDGE_PERMISSION_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "server/edge/call_rate.h"

namespace catchment {

// A set of roles: bits by v1::CallRule::Role.
using Roles = uint32_t;
inline constexpr Roles kWorkerRole = 1, kEvaluatorRole = 2, kServerRole = 4, kOperatorRole = 8;

// Returns the roles that may call each method: "catchment.v1.MasterService.Stop".
const std::map<std::string, Roles>& RolesByMethod();

// Returns the token in the call's metadata; empty if there is none.
absl::string_view TokenOf(const grpc::ServerContext& context);

// Returns the roles in the caller's certificate; all roles if the connection has no certificates.
Roles RolesOf(const grpc::ServerContext& context);

// The check of one method's calls.
//
// Threads: immutable. Errors: PermissionDenied, with the roles of both sides; Unavailable beyond the rate;
// NotFound for a wrong token, the same as for a member that was lost, so that a worker whose registration
// ended with an earlier run registers again.
class Permission {
 public:
  // A method without roles is a bug, and ends the process. `token_key` (Run.token_key) outlives the
  // permission; it may be null if no message of the method names a registration. `rate`, which limits the
  // calls of one peer, outlives it, too; null: no limit.
  explicit Permission(const std::string& method, const std::string* token_key = nullptr,
                      CallRate* rate = nullptr);

  // Checks a call by its request, or by a message of its stream.
  absl::Status Check(const grpc::ServerContext& context, const google::protobuf::Message& request) const;
  // Checks a call before its first message has arrived.
  absl::Status Check(const grpc::ServerContext& context, std::nullptr_t) const {
    return CheckRoles(context, roles_);
  }

 private:
  absl::Status CheckRoles(const grpc::ServerContext& context, Roles roles) const;
  absl::Status CheckToken(const grpc::ServerContext& context, uint64_t incarnation) const;

  const google::protobuf::MethodDescriptor* method_;
  Roles roles_ = 0;
  // Fields of its messages; null: they have none.
  const google::protobuf::FieldDescriptor* role_;
  const google::protobuf::FieldDescriptor* incarnation_;
  const std::string* token_key_;
  CallRate* rate_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_PERMISSION_H_
