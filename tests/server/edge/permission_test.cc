// Every call in every role, over mutual TLS, compared with the table in docs/security.md.
#include "server/edge/permission.h"

#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "common/wire/token.h"
#include "proto/health.pb.h"
#include "proto/master.grpc.pb.h"
#include "server/edge/master_service.h"
#include "server/edge/standby_service.h"
#include "tests/server/host/master_host_fixture.h"

namespace catchment {
namespace {

using testing::HasSubstr;

const std::vector<std::string> kRoles = {"worker", "evaluator", "server", "operator"};

void Shell(const std::string& command) {
  ASSERT_EQ(std::system((command + " >>$TEST_TMPDIR/certificates.log 2>&1").c_str()), 0) << command;
}

// A directory with an authority and the certificates of all roles.
std::string MakeCertificates(const std::string& name) {
  const std::string directory = absl::StrCat(std::getenv("TEST_TMPDIR"), "/", name);
  Shell("bash deploy/make_certs.sh " + directory);
  return directory;
}

TlsFiles CertificateOf(const std::string& directory, const std::string& role) {
  return {directory + "/ca.crt", directory + "/" + role + ".crt", directory + "/" + role + ".key"};
}

// A certificate of the authority in `directory` with these extensions, valid for `days`.
TlsFiles MakeCertificate(const std::string& directory, const std::string& name, const std::string& extensions,
                         int days) {
  const std::string at = directory + "/" + name;
  Shell("openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=test -keyout " + at +
        ".key -out " + at + ".csr");
  std::ofstream(at + ".ext") << extensions;
  Shell(absl::StrCat("openssl x509 -req -in ", at, ".csr -CA ", directory, "/ca.crt -CAkey ", directory,
                     "/ca.key -set_serial 7 -days ", days, " -extfile ", at, ".ext -out ", at, ".crt"));
  return CertificateOf(directory, name);
}

// The table of docs/security.md: the cell of each method and role, "yes", "own" or "-".
std::map<std::string, std::vector<std::string>> DocumentedTable() {
  std::map<std::string, std::vector<std::string>> table;
  std::ifstream page("docs/security.md");
  for (std::string line; std::getline(page, line);) {
    if (!absl::StartsWith(line, "| `MasterService.") && !absl::StartsWith(line, "| `ShardService.") &&
        !absl::StartsWith(line, "| `StandbyService.") && !absl::StartsWith(line, "| `Health.")) {
      continue;
    }
    std::vector<std::string> cells = absl::StrSplit(line, '|');
    for (std::string& cell : cells) absl::StripAsciiWhitespace(&cell);
    const std::string method = absl::StrReplaceAll(cells[1], {{"`", ""}});
    const std::string package = absl::StartsWith(method, "Health") ? "grpc.health.v1." : "catchment.v1.";
    table[package + method] = {cells.begin() + 2, cells.begin() + 2 + kRoles.size()};
  }
  return table;
}

bool HasRole(const std::string& method) {
  return absl::EndsWith(method, ".Register") || absl::EndsWith(method, ".Heartbeat") ||
         absl::EndsWith(method, ".Leave");
}

std::set<std::string> AllMethods() {
  std::set<std::string> methods;
  for (const google::protobuf::FileDescriptor* file :
       {v1::GetJobRequest::descriptor()->file(), v1::Block::descriptor()->file(),
        v1::StandbyPart::descriptor()->file(), grpc::health::v1::HealthCheckRequest::descriptor()->file()}) {
    for (int s = 0; s < file->service_count(); ++s) {
      for (int m = 0; m < file->service(s)->method_count(); ++m) {
        methods.insert(file->service(s)->method(m)->full_name());
      }
    }
  }
  // Health.Watch is not served.
  methods.erase("grpc.health.v1.Health.Watch");
  return methods;
}

// A master and its shard behind mutual TLS.
class PermissionTest : public MasterHostTest {
 protected:
  PermissionTest()
      : certificates_(MakeCertificates(absl::StrCat("ours-", ++clusters_))),
        master_service_(master_.get(), &clock_),
        shard_service_(job_.name(), layout_, hosts_[0]->shard(), claims_[0].get(),
                       [this](const v1::ShardCommand& command) { return hosts_[0]->Control(command, 0); }),
        standby_store_(job_, layout_, 0),
        standby_service_(&standby_store_),
        listener_(*Listener::Open("127.0.0.1:0", *ServerCredentials(CertificateOf(certificates_, "server")),
                                  {&master_service_, &shard_service_, &standby_service_}, {})) {}

  std::shared_ptr<grpc::Channel> ChannelWith(const TlsFiles& tls) {
    return Connect(listener_.address(), *ClientCredentials(tls));
  }

  // Makes the call with an empty request, or one with these bytes.
  grpc::Status Call(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                    const std::string& bytes = "") {
    const size_t dot = method.rfind('.');
    const std::string path = absl::StrCat("/", method.substr(0, dot), "/", method.substr(dot + 1));
    grpc::GenericStub stub(channel);
    const std::unique_ptr<grpc::ClientContext> context = DeadlineContext(60);
    grpc::CompletionQueue queue;
    const grpc::Slice request(bytes);
    grpc::ByteBuffer reply;
    grpc::Status status;
    const auto call = stub.PrepareUnaryCall(context.get(), path, grpc::ByteBuffer(&request, 1), &queue);
    call->StartCall();
    call->Finish(&reply, &status, this);
    void* tag;
    bool ok;
    queue.Next(&tag, &ok);
    return status;
  }

  void ExpectNoConnection(const std::shared_ptr<grpc::Channel>& channel) {
    for (const std::string& method : AllMethods()) {
      const grpc::Status status = Call(channel, method);
      EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE) << method << ": " << status.error_message();
      // GetJob's own answer, before all servers are there.
      EXPECT_THAT(status.error_message(), testing::Not(HasSubstr("has not registered"))) << method;
    }
  }

  static inline int clusters_ = 0;
  const std::string certificates_;
  MasterService master_service_;
  ShardService shard_service_;
  StandbyStore standby_store_;
  StandbyService standby_service_;
  Listener listener_;
};

TEST_F(PermissionTest, EveryMethodHasARowInTheDocument) {
  std::set<std::string> documented, in_code;
  for (const auto& [method, cells] : DocumentedTable()) documented.insert(method);
  for (const auto& [method, roles] : RolesByMethod()) in_code.insert(method);
  EXPECT_EQ(documented, AllMethods());
  EXPECT_EQ(in_code, AllMethods());
}

TEST_F(PermissionTest, RequestsAndRepliesHaveTheSameNumbers) {
  for (const MasterMethod& each : MasterMethods())
    EXPECT_EQ(each.request->number(), each.reply->number()) << each.method->full_name();
}

TEST_F(PermissionTest, EveryCallInEveryRoleIsAsInTheDocument) {
  const auto table = DocumentedTable();
  v1::RegisterRequest as_evaluator;
  as_evaluator.set_role(v1::EVALUATOR);
  const std::string evaluator = as_evaluator.SerializeAsString();
  for (size_t r = 0; r < kRoles.size(); ++r) {
    const auto channel = ChannelWith(CertificateOf(certificates_, kRoles[r]));
    for (const auto& [method, cells] : table) {
      // Register, Heartbeat and Leave have the role in a field with the same number.
      const grpc::Status status =
          Call(channel, method, kRoles[r] == "evaluator" && HasRole(method) ? evaluator : "");
      const std::string what =
          absl::StrCat(kRoles[r], " calls ", method, ": ", status.error_code(), ", ", status.error_message());
      if (cells[r] == "-") {
        EXPECT_EQ(status.error_code(), grpc::PERMISSION_DENIED) << what;
        EXPECT_THAT(status.error_message(), HasSubstr("the roles in the caller's certificate: " + kRoles[r]));
        continue;
      }
      EXPECT_THAT(cells[r], testing::AnyOf("yes", "own")) << what;
      EXPECT_NE(status.error_code(), grpc::PERMISSION_DENIED) << what;
      EXPECT_NE(status.error_code(), grpc::UNIMPLEMENTED) << what;
      // The calls of members that are not about a registration yet, and Train, whose Hello has the token
      // (shard_service_test.cc).
      if (method == "catchment.v1.MasterService.Register" || method == "catchment.v1.ShardService.Train")
        continue;
      if (cells[r] == "own") {
        EXPECT_EQ(status.error_code(), grpc::NOT_FOUND) << what;
        EXPECT_THAT(status.error_message(), HasSubstr("does not come from the registration"));
      } else {
        EXPECT_NE(status.error_code(), grpc::NOT_FOUND) << what;
      }
    }
  }
}

TEST_F(PermissionTest, MembersRegisterInTheRoleOfTheirCertificate) {
  v1::RegisterRequest request = Worker();
  for (const auto& [role, other] :
       {std::pair(v1::WORKER, v1::EVALUATOR), std::pair(v1::EVALUATOR, v1::WORKER)}) {
    const std::string name = role == v1::WORKER ? "worker" : "evaluator";
    const auto stub = v1::MasterService::NewStub(ChannelWith(CertificateOf(certificates_, name)));
    v1::RegisterReply reply;
    request.set_role(other);
    EXPECT_EQ(stub->Register(DeadlineContext(60).get(), request, &reply).error_code(),
              grpc::PERMISSION_DENIED);
    request.set_role(role);
    const grpc::Status status = stub->Register(DeadlineContext(60).get(), request, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(reply.token(), RegistrationToken("", reply.incarnation()));
  }
}

TEST_F(PermissionTest, RegistrationsOfOneAddressAreLimited) {
  const auto stub = v1::MasterService::NewStub(ChannelWith(CertificateOf(certificates_, "worker")));
  const auto member = v1::MasterService::NewStub(ChannelWith(CertificateOf(certificates_, "server")));
  v1::RegisterRequest request;  // of another model
  v1::RegisterReply reply;
  const auto again = [&] { return stub->Register(DeadlineContext(60).get(), request, &reply).error_code(); };
  const auto refused = [&] {
    return member->Register(DeadlineContext(60).get(), request, &reply).error_code();
  };
  EXPECT_EQ(refused(), grpc::PERMISSION_DENIED) << "which does not count";
  for (int i = 0; i < 2000; ++i) ASSERT_EQ(again(), grpc::FAILED_PRECONDITION) << i;
  EXPECT_EQ(again(), grpc::UNAVAILABLE);
  clock_.Advance(0.004);
  EXPECT_EQ(again(), grpc::FAILED_PRECONDITION);
  EXPECT_EQ(again(), grpc::UNAVAILABLE);
  clock_.Advance(1);
  EXPECT_TRUE(stub->Register(DeadlineContext(60).get(), Worker(), &reply).ok());
}

TEST_F(PermissionTest, OneWorkerDoesNotSpeakForAnother) {
  const auto stub = v1::MasterService::NewStub(ChannelWith(CertificateOf(certificates_, "worker")));
  v1::RegisterReply first, second;
  ASSERT_TRUE(stub->Register(DeadlineContext(60).get(), Worker(), &first).ok());
  ASSERT_TRUE(stub->Register(DeadlineContext(60).get(), Worker(), &second).ok());
  const auto leave = [&](const std::string& token) {
    v1::LeaveRequest request;
    request.set_worker(first.worker());
    request.set_incarnation(first.incarnation());
    v1::LeaveReply reply;
    const auto context = DeadlineContext(60);
    context->AddMetadata(kTokenMetadata, token);
    return stub->Leave(context.get(), request, &reply).error_code();
  };
  EXPECT_EQ(leave(second.token()), grpc::NOT_FOUND);
  EXPECT_EQ(leave(""), grpc::NOT_FOUND);
  EXPECT_EQ(leave(first.token() + "x"), grpc::NOT_FOUND);
  EXPECT_EQ(leave(first.token().substr(1)), grpc::NOT_FOUND);
  EXPECT_EQ(master_->Status().workers_size(), 2);
  EXPECT_EQ(leave(first.token()), grpc::OK);
  EXPECT_EQ(master_->Status().workers_size(), 1);
}

TEST_F(PermissionTest, CertificatesWithoutARoleMayMakeNoCall) {
  const auto channel = ChannelWith(
      MakeCertificate(certificates_, "plain", "subjectAltName=URI:catchment:role/workers,DNS:worker\n", 2));
  for (const std::string& method : AllMethods()) {
    const grpc::Status status = Call(channel, method);
    EXPECT_EQ(status.error_code(), grpc::PERMISSION_DENIED) << method << ": " << status.error_message();
    EXPECT_THAT(status.error_message(), HasSubstr("the roles in the caller's certificate: none"));
  }
}

TEST_F(PermissionTest, CertificatesWithSeveralRolesMayMakeTheCallsOfAll) {
  const auto channel = ChannelWith(MakeCertificate(
      certificates_, "both", "subjectAltName=URI:catchment:role/worker,URI:catchment:role/operator\n", 2));
  EXPECT_EQ(Call(channel, "catchment.v1.MasterService.GetStatus").error_code(), grpc::OK);
  EXPECT_EQ(Call(channel, "catchment.v1.MasterService.GetLease").error_code(), grpc::NOT_FOUND);
  EXPECT_EQ(Call(channel, "catchment.v1.ShardService.Control").error_code(), grpc::PERMISSION_DENIED);
}

TEST_F(PermissionTest, StrangersExpiredCertificatesAndPeersWithoutOneAreNotConnected) {
  const std::string theirs = MakeCertificates("theirs");
  const std::string ca = certificates_ + "/ca.crt";
  {
    SCOPED_TRACE("of another authority");
    ExpectNoConnection(ChannelWith({ca, theirs + "/server.crt", theirs + "/server.key"}));
  }
  {
    SCOPED_TRACE("expired");
    ExpectNoConnection(ChannelWith(
        MakeCertificate(certificates_, "expired",
                        "subjectAltName=URI:catchment:role/operator,URI:catchment:role/server\n", -1)));
  }
  {
    SCOPED_TRACE("without a certificate");
    std::ifstream file(ca);
    grpc::SslCredentialsOptions options;
    options.pem_root_certs.assign(std::istreambuf_iterator<char>(file), {});
    ExpectNoConnection(grpc::CreateChannel(listener_.address(), grpc::SslCredentials(options)));
  }
  {
    SCOPED_TRACE("in clear text");
    ExpectNoConnection(grpc::CreateChannel(listener_.address(), grpc::InsecureChannelCredentials()));
  }
}

TEST_F(PermissionTest, OnlyACertificateOfAServerForThisHostIsTakenForAServers) {
  const std::string not_a_server = "does not name the role of a server";
  const std::vector<std::pair<std::string, std::string>> impostors = {
      {"subjectAltName=IP:127.0.0.1,URI:catchment:role/server\nextendedKeyUsage=clientAuth\n", ""},
      {"subjectAltName=IP:127.0.0.2,DNS:node7,URI:catchment:role/server\n", ""},
      {"subjectAltName=IP:127.0.0.1,URI:catchment:role/worker\nextendedKeyUsage=serverAuth,clientAuth\n",
       not_a_server},
      {"subjectAltName=IP:127.0.0.1,URI:catchment:role/evaluator,URI:catchment:role/operator\n",
       not_a_server},
      {"subjectAltName=IP:127.0.0.1,URI:catchment:role/servers,URI:catchment:role/\n", not_a_server},
      {"subjectAltName=IP:127.0.0.1,DNS:catchment:role/server\n", not_a_server},
      {"subjectAltName=IP:127.0.0.1\n", not_a_server}};
  for (const auto& [extensions, reason] : impostors) {
    Listener impostor = *Listener::Open(
        "127.0.0.1:0", *ServerCredentials(MakeCertificate(certificates_, "impostor", extensions, 2)), {}, {});
    for (const std::string& role : kRoles) {
      const auto channel =
          Connect(impostor.address(), *ClientCredentials(CertificateOf(certificates_, role)));
      const grpc::Status status = Call(channel, "grpc.health.v1.Health.Check");
      EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE) << role << " of " << extensions;
      EXPECT_THAT(status.error_message(), HasSubstr(reason)) << role << " of " << extensions;
    }
  }
}

TEST_F(PermissionTest, AServerMayHaveFurtherRoles) {
  Listener server = *Listener::Open(
      "127.0.0.1:0",
      *ServerCredentials(MakeCertificate(certificates_, "further",
                                         "subjectAltName=URI:catchment:role/worker,URI:https://"
                                         "example.org,IP:127.0.0.1,URI:catchment:role/server\n",
                                         2)),
      {}, {});
  const auto channel = Connect(server.address(), *ClientCredentials(CertificateOf(certificates_, "worker")));
  EXPECT_EQ(Call(channel, "grpc.health.v1.Health.Check").error_code(), grpc::OK);
}

// Files that are replaced while the processes run are used for new connections.
TEST_F(PermissionTest, ReplacedFilesAreUsedForNewConnections) {
  const std::string check = "grpc.health.v1.Health.Check";
  const auto before = ChannelWith(CertificateOf(certificates_, "worker"));
  ASSERT_EQ(Call(before, check).error_code(), grpc::OK);
  const std::string next = MakeCertificates("next");
  const auto with_next = [&] { return Call(ChannelWith(CertificateOf(next, "worker")), check).error_code(); };
  EXPECT_EQ(with_next(), grpc::UNAVAILABLE);
  for (const char* file : {"ca.crt", "server.key", "server.crt"}) {
    Shell(absl::StrCat("cp ", next, "/", file, " ", certificates_, "/new && mv ", certificates_, "/new ",
                       certificates_, "/", file));
  }
  while (with_next() != grpc::OK) std::this_thread::yield();
  EXPECT_EQ(Call(before, check).error_code(), grpc::OK) << "a connection that was open stays open";
  EXPECT_EQ(Call(ChannelWith(CertificateOf(certificates_, "worker")), check).error_code(), grpc::UNAVAILABLE)
      << "a key of the authority that was replaced is still good";
}

}  // namespace
}  // namespace catchment
