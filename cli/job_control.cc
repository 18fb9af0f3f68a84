#include "cli/job_control.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace catchment {
namespace {

// The timeout of a call. It is short, since the caller does nothing else meanwhile.
constexpr double kCallSeconds = 3;

}  // namespace

absl::StatusOr<JobControl> JobControl::Create(const std::string& address, const TlsFiles& tls) {
  absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> credentials = ClientCredentials(tls);
  if (!credentials.ok()) return credentials.status();
  return JobControl(address, v1::MasterService::NewStub(ConnectForControl(address, *credentials)));
}

absl::StatusOr<v1::JobStatus> JobControl::GetStatus(double again_in_seconds) {
  if (stub_ == nullptr) return absl::UnavailableError("disconnected");
  v1::GetStatusRequest request;
  request.set_again_in_seconds(again_in_seconds);
  v1::JobStatus status;
  const std::unique_ptr<grpc::ClientContext> context = DeadlineContext(kCallSeconds);
  const grpc::Status result = stub_->GetStatus(context.get(), request, &status);
  if (!result.ok()) return FromGrpc(result, absl::StrCat("master at ", address_));
  return status;
}

absl::Status JobControl::Stop(const std::string& reason) {
  if (stub_ == nullptr) return absl::UnavailableError("disconnected");
  v1::StopRequest request;
  request.set_reason(reason);
  v1::StopReply reply;
  const std::unique_ptr<grpc::ClientContext> context = DeadlineContext(kCallSeconds);
  return FromGrpc(stub_->Stop(context.get(), request, &reply), absl::StrCat("master at ", address_));
}

}  // namespace catchment
