#include "server/edge/permission.h"

#include <glog/logging.h>

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/net/certificate.h"
#include "common/wire/token.h"
#include "server/control/calls.h"

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

constexpr Roles kAllRoles = kWorkerRole | kEvaluatorRole | kServerRole | kOperatorRole;

std::string NamesOf(Roles roles) {
  std::vector<absl::string_view> names;
  for (const RoleName& role : kRoleNames) {
    if ((roles & role.role) != 0) names.push_back(role.name);
  }
  return names.empty() ? "none" : absl::StrJoin(names, ", ");
}

}  // namespace

// docs/security.md has the same table for readers, and tests/server/edge/permission_test.cc compares them.
const std::map<std::string, Roles>& RolesByMethod() {
  static const auto* const roles = [] {
    auto* const all =
        new std::map<std::string, Roles>{{"catchment.v1.MasterService.KeepBest", kEvaluatorRole},
                                         {"catchment.v1.ShardService.Train", kWorkerRole},
                                         // The master reads the final weights.
                                         {"catchment.v1.ShardService.Snapshot", kEvaluatorRole | kServerRole},
                                         {"catchment.v1.ShardService.Control", kServerRole},
                                         {"catchment.v1.StandbyService.Replicate", kServerRole},
                                         {"catchment.v1.StandbyService.Restore", kServerRole},
                                         {"grpc.health.v1.Health.Check", kAllRoles}};
    for (const MasterMethod& each : MasterMethods())
      for (const int role : each.rule().roles()) (*all)[each.method->full_name()] |= Roles{1} << role;
    return all;
  }();
  return *roles;
}

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

Permission::Permission(const std::string& method, const std::string* token_key, CallRate* rate)
    : method_(google::protobuf::DescriptorPool::generated_pool()->FindMethodByName(method)),
      token_key_(token_key),
      rate_(rate) {
  const auto roles = RolesByMethod().find(method);
  CHECK(method_ != nullptr && roles != RolesByMethod().end()) << method << " is not in the tables of roles";
  roles_ = roles->second;
  role_ = method_->input_type()->FindFieldByName("role");
  incarnation_ = method_->input_type()->FindFieldByName("incarnation");
}

absl::Status Permission::Check(const grpc::ServerContext& context,
                               const google::protobuf::Message& request) const {
  const google::protobuf::Reflection& fields = *request.GetReflection();
  Roles roles = roles_;
  if (role_ != nullptr)
    roles &= fields.GetEnumValue(request, role_) == v1::EVALUATOR ? kEvaluatorRole : kWorkerRole;
  RETURN_IF_ERROR(CheckRoles(context, roles));
  if (rate_ != nullptr) RETURN_IF_ERROR(rate_->Take(context.peer()));
  if (incarnation_ == nullptr) return absl::OkStatus();
  return CheckToken(context, fields.GetUInt64(request, incarnation_));
}

absl::Status Permission::CheckRoles(const grpc::ServerContext& context, Roles roles) const {
  const Roles callers = RolesOf(context);
  if ((callers & roles) != 0) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      method_->full_name(), " is for the roles ", NamesOf(roles),
      "; the roles in the caller's certificate: ", NamesOf(callers),
      " (subject alternative name URI:", kRoleUri, "NAME; deploy/make_certs.sh makes such certificates)"));
}

absl::Status Permission::CheckToken(const grpc::ServerContext& context, uint64_t incarnation) const {
  CHECK(token_key_ != nullptr) << method_->full_name() << " was accepted without the key of tokens";
  if (IsTokenOf(*token_key_, incarnation, TokenOf(context))) {
    return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat("the call does not come from the registration with incarnation ",
                                          incarnation, ": its token (metadata '", kTokenMetadata,
                                          "') is missing, or from another run; register again"));
}

}  // namespace catchment
