#include "server/edge/permission.h"

#include <glog/logging.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/net/certificate.h"
#include "common/wire/token.h"

namespace catchment {
namespace {

struct RoleName {
  Roles role;
  absl::string_view name;
};
constexpr RoleName kRoleNames[] = {{kWorkerRole, "worker"},
                                   {kEvaluatorRole, "evaluator"},
                                   {kServerRole, "server"},
                                   {kOperatorRole, "operator"}};

constexpr Roles kMembers = kWorkerRole | kEvaluatorRole;
constexpr Roles kAllRoles = kMembers | kServerRole | kOperatorRole;

// docs/security.md has the same table for readers, and tests/server/edge/permission_test.cc compares them.
constexpr CallRule kCallRules[] = {
    {"catchment.v1.MasterService.GetJob", kAllRoles},
    {"catchment.v1.MasterService.RegisterServer", kServerRole},
    {"catchment.v1.MasterService.Register", kMembers},
    {"catchment.v1.MasterService.Heartbeat", kMembers},
    {"catchment.v1.MasterService.GetLease", kWorkerRole},
    {"catchment.v1.MasterService.Leave", kMembers},
    {"catchment.v1.MasterService.GetEvaluation", kEvaluatorRole},
    {"catchment.v1.MasterService.ReportEvaluation", kEvaluatorRole},
    {"catchment.v1.MasterService.KeepBest", kEvaluatorRole},
    {"catchment.v1.MasterService.SaveWorkerState", kWorkerRole},
    {"catchment.v1.MasterService.LoadWorkerState", kWorkerRole},
    // Members ask whether the job continues.
    {"catchment.v1.MasterService.GetStatus", kMembers | kOperatorRole},
    {"catchment.v1.MasterService.Stop", kOperatorRole},
    {"catchment.v1.ShardService.Train", kWorkerRole},
    // The master reads the final weights.
    {"catchment.v1.ShardService.Snapshot", kEvaluatorRole | kServerRole},
    {"catchment.v1.ShardService.Control", kServerRole},
    {"catchment.v1.StandbyService.Replicate", kServerRole},
    {"catchment.v1.StandbyService.Restore", kServerRole},
    {"grpc.health.v1.Health.Check", kAllRoles},
};

std::string NamesOf(Roles roles) {
  std::vector<absl::string_view> names;
  for (const RoleName& role : kRoleNames) {
    if ((roles & role.role) != 0) names.push_back(role.name);
  }
  return names.empty() ? "none" : absl::StrJoin(names, ", ");
}

}  // namespace

absl::Span<const CallRule> CallRules() { return kCallRules; }

absl::string_view TokenOf(const grpc::ServerContext& context) {
  const auto token = context.client_metadata().find(kTokenMetadata);
  if (token == context.client_metadata().end()) return {};
  return {token->second.data(), token->second.size()};
}

Roles RolesOf(const grpc::ServerContext& context) {
  const std::shared_ptr<const grpc::AuthContext> caller = context.auth_context();
  if (caller == nullptr || !caller->IsPeerAuthenticated()) return kAllRoles;
  Roles roles = 0;
  for (const grpc::string_ref& uri : caller->FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
    for (const RoleName& role : kRoleNames) {
      if (absl::string_view(uri.data(), uri.size()) == absl::StrCat(kRoleUri, role.name)) roles |= role.role;
    }
  }
  return roles;
}

Permission::Permission(absl::string_view method, const std::string* token_key, CallRate* rate)
    : token_key_(token_key), rate_(rate) {
  const auto rule = std::find_if(std::begin(kCallRules), std::end(kCallRules),
                                 [method](const CallRule& each) { return each.method == method; });
  CHECK(rule != std::end(kCallRules)) << method << " is not in the table of server/edge/permission.cc";
  rule_ = *rule;
}

absl::Status Permission::CheckRoles(const grpc::ServerContext& context, Roles roles) const {
  const Roles callers = RolesOf(context);
  if ((callers & roles) != 0) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      rule_.method, " is for the roles ", NamesOf(roles),
      "; the roles in the caller's certificate: ", NamesOf(callers),
      " (subject alternative name URI:", kRoleUri, "NAME; deploy/make_certs.sh makes such certificates)"));
}

absl::Status Permission::CheckToken(const grpc::ServerContext& context, uint64_t incarnation) const {
  CHECK(token_key_ != nullptr) << rule_.method << " was accepted without the key of tokens";
  if (IsTokenOf(*token_key_, incarnation, TokenOf(context))) {
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat("the call does not come from the registration with incarnation ",
                                          incarnation, ": its token (metadata '", kTokenMetadata,
                                          "') is missing, or from another run; register again"));
}

}  // namespace catchment
