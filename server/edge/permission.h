// Decides which callers may make which calls of a server.
//
// A certificate names the roles of its owner as URIs among its subject alternative names:
// catchment:role/worker, evaluator, server or operator. The table in permission.cc has the roles that may
// make each call, and every call of a listener is checked against it before its service sees the call
// (calls.h). A call that names a registration (its messages have an `incarnation`) must also present that
// registration's token (common/wire/token.h).
//
// Without TLS callers have no certificates: then every role may make every call, and only tokens are checked.
#ifndef CATCHMENT_SERVER_EDGE_PERMISSION_H_
#define CATCHMENT_SERVER_EDGE_PERMISSION_H_

#include <grpcpp/grpcpp.h>

#include <concepts>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "proto/master.pb.h"
#include "server/edge/call_rate.h"

namespace catchment {

// A set of roles, one bit each.
using Roles = uint32_t;
inline constexpr Roles kWorkerRole = 1, kEvaluatorRole = 2, kServerRole = 4, kOperatorRole = 8;

struct CallRule {
  absl::string_view method;  // "catchment.v1.MasterService.Stop"
  Roles roles = 0;           // that may make the call
};

// Returns the rules of all methods.
absl::Span<const CallRule> CallRules();

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
  // A method that is not in the table is a bug, and ends the process. `token_key` (Run.token_key) outlives
  // the permission; it may be null if no message of the method names a registration. `rate`, which limits the
  // calls of one peer, outlives it, too; null: no limit.
  explicit Permission(absl::string_view method, const std::string* token_key = nullptr,
                      CallRate* rate = nullptr);

  template <typename Request>
  absl::Status Check(const grpc::ServerContext& context, const Request& request) const {
    Roles roles = rule_.roles;
    if constexpr (requires {
                    { request.role() } -> std::same_as<v1::Role>;
                  }) {
      roles &= request.role() == v1::EVALUATOR ? kEvaluatorRole : kWorkerRole;
    }
    RETURN_IF_ERROR(CheckRoles(context, roles));
    if (rate_ != nullptr) {
      RETURN_IF_ERROR(rate_->Take(context.peer()));
    }
    if constexpr (requires {
                    { request.incarnation() } -> std::same_as<uint64_t>;
                  }) {
      return CheckToken(context, request.incarnation());
    }
    return absl::OkStatus();
  }

 private:
  absl::Status CheckRoles(const grpc::ServerContext& context, Roles roles) const;
  absl::Status CheckToken(const grpc::ServerContext& context, uint64_t incarnation) const;

  CallRule rule_;
  const std::string* token_key_;
  CallRate* rate_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_PERMISSION_H_
