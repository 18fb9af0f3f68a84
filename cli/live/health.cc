#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cli/live/commands.h"
#include "cli/live/job_control.h"
#include "common/base/status_macros.h"
#include "common/net/rpc.h"
#include "common/program/command_line.h"
#include "proto/health.grpc.pb.h"

namespace catchment {
namespace {

namespace health = grpc::health::v1;

constexpr char kUsage[] = R"(catchment health HOST:PORT|DIR [flags]

Queries the gRPC health service of a server once, and prints SERVING or NOT_SERVING. DIR, the --out of a run,
stands for its master. Names of services:
  (none)                       the process: SERVING as long as it runs
  catchment.v1.ShardService    the server's shard, and by its index:
  shard-INDEX                  SERVING while the job trains
  catchment.v1.MasterService   the master, on the server with index 0: SERVING while the job trains

Examples:
  catchment health node0:7000
  catchment health node1:7000 --service=shard-1
)";

constexpr char kNotes[] = "\nExit code: 0: SERVING; 1: anything else; 2: wrong command line.\n";

struct Options {
  MasterFlags server;
  std::string service;
  double timeout_seconds = 3;
};

CommandLine MakeCommandLine(Options* o) {
  CommandLine line{.name = "catchment health", .usage = kUsage, .notes = kNotes};
  line.flags.AddString("service", "NAME", &o->service, "Name of the service. Default: the process.");
  line.flags.AddSeconds("timeout_seconds", &o->timeout_seconds, "Time limit for the answer. Default 3.");
  AddMasterFlags(&o->server, &line);
  line.check = [o] { return CheckMasterFlags(&o->server); };
  return line;
}

absl::StatusOr<int> Ask(const Options& options, std::ostream* out) {
  ASSIGN_OR_RETURN(JobControl master, JobControl::Create(options.server));
  if (IsRunDirectory(options.server.master)) RETURN_IF_ERROR(master.GetStatus().status());
  const std::string& address = master.address();
  ASSIGN_OR_RETURN(auto credentials, ClientCredentials(options.server.tls));
  const auto stub = health::Health::NewStub(ConnectForControl(address, credentials));
  const std::unique_ptr<grpc::ClientContext> context = DeadlineContext(options.timeout_seconds);
  health::HealthCheckRequest request;
  request.set_service(options.service);
  health::HealthCheckResponse response;
  const grpc::Status status = stub->Check(context.get(), request, &response);
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) {
    return absl::NotFoundError(absl::StrCat(address, " knows no service '", options.service,
                                            "': does this server have that index?"));
  }
  if (!status.ok()) return FromGrpc(status, absl::StrCat("server at ", address));
  *out << health::HealthCheckResponse::ServingStatus_Name(response.status()) << '\n';
  return response.status() == health::HealthCheckResponse::SERVING ? 0 : kExitFailed;
}

}  // namespace

int RunHealth(const std::vector<std::string>& args, const Streams& streams) {
  Options options;
  CommandLine line = MakeCommandLine(&options);
  return RunCommandLine(&line, args, streams.out, streams.err, [&] { return Ask(options, streams.out); });
}

}  // namespace catchment
