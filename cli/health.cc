#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/flags.h"
#include "common/rpc.h"
#include "proto/health.grpc.pb.h"

namespace catchment {
namespace {

namespace health = grpc::health::v1;

constexpr char kUsage[] = R"(catchment health HOST:PORT [flags]

Asks a server's gRPC health service once, and prints SERVING or NOT_SERVING. Names that can be asked for:
  (none)                       the process: SERVING as long as it lives
  catchment.v1.ShardService    the server's shard, and by its index:
  shard-INDEX                  SERVING while the job trains
  catchment.v1.MasterService   the master, on the server with index 0: SERVING while the job trains

Examples:
  catchment health node0:7000
  catchment health node1:7000 --service=shard-1

Flags:
)";

struct Options {
  std::string service;
  double timeout_seconds = 3;
  TlsFiles tls;
};

FlagSet MakeFlags(Options* o) {
  FlagSet flags;
  flags.AddString("service", "NAME", &o->service, "What to ask for. Default: the process.");
  flags.AddSeconds("timeout_seconds", &o->timeout_seconds, "How long the answer may take. Default 3.");
  AddTlsFlags(&o->tls, &flags);
  return flags;
}

absl::StatusOr<health::HealthCheckResponse> Ask(const std::string& address, const Options& options) {
  auto credentials = ClientCredentials(options.tls);
  if (!credentials.ok()) return credentials.status();
  const auto stub = health::Health::NewStub(ConnectForControl(address, *credentials));
  const std::unique_ptr<grpc::ClientContext> context = DeadlineContext(options.timeout_seconds);
  health::HealthCheckRequest request;
  request.set_service(options.service);
  health::HealthCheckResponse response;
  const grpc::Status status = stub->Check(context.get(), request, &response);
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) {
    return absl::NotFoundError(absl::StrCat(address, " knows no service '", options.service,
                                            "': is this the server with that index?"));
  }
  if (!status.ok()) return FromGrpc(status, absl::StrCat("server at ", address));
  return response;
}

}  // namespace

int RunHealth(const std::vector<std::string>& args, std::ostream* out, std::ostream* err) {
  Options options;
  FlagSet flags = MakeFlags(&options);
  const absl::StatusOr<std::vector<std::string>> positional = flags.Parse(args);
  if (!positional.ok()) {
    *err << "catchment health: " << positional.status().message() << '\n';
    return 2;
  }
  if (flags.help()) {
    *out << kUsage << flags.Describe()
         << "\nExit code: 0 for SERVING, 1 for anything else, 2 for a wrong command line.\n";
    return 0;
  }
  if (positional->size() != 1) {
    *err << "catchment health: takes one address, for example: catchment health node0:7000\n";
    return 2;
  }
  const absl::StatusOr<health::HealthCheckResponse> response = Ask(positional->front(), options);
  if (!response.ok()) {
    *err << "catchment health: " << response.status().message() << '\n';
    return 1;
  }
  *out << health::HealthCheckResponse::ServingStatus_Name(response->status()) << '\n';
  return response->status() == health::HealthCheckResponse::SERVING ? 0 : 1;
}

}  // namespace catchment
