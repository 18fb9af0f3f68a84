#include "cli/job_control.h"

#include <google/protobuf/message.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/text.h"

namespace catchment {
namespace {

// The timeout of a call. It is short, since the caller does nothing else meanwhile.
constexpr double kCallSeconds = 3;

// Escapes the control characters in all strings, which come from all members of the job.
void EscapeStrings(google::protobuf::Message* message) {
  const google::protobuf::Reflection& values = *message->GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  values.ListFields(*message, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    const int count = field->is_repeated() ? values.FieldSize(*message, field) : 1;
    for (int i = 0; i < count; ++i) {
      if (field->cpp_type() == google::protobuf::FieldDescriptor::CPPTYPE_MESSAGE) {
        EscapeStrings(field->is_repeated() ? values.MutableRepeatedMessage(message, field, i)
                                           : values.MutableMessage(message, field));
      } else if (field->type() != google::protobuf::FieldDescriptor::TYPE_STRING) {
        break;
      } else if (field->is_repeated()) {
        values.SetRepeatedString(message, field, i, OneLine(values.GetRepeatedString(*message, field, i)));
      } else {
        values.SetString(message, field, OneLine(values.GetString(*message, field)));
      }
    }
  }
}

absl::Status Escaped(const absl::Status& status) {
  return absl::Status(status.code(), EscapeControls(status.message()));
}

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
  if (!result.ok()) return Escaped(FromGrpc(result, absl::StrCat("master at ", address_)));
  EscapeStrings(&status);
  return status;
}

absl::Status JobControl::Stop(const std::string& reason) {
  if (stub_ == nullptr) return absl::UnavailableError("disconnected");
  v1::StopRequest request;
  request.set_reason(reason);
  v1::StopReply reply;
  const std::unique_ptr<grpc::ClientContext> context = DeadlineContext(kCallSeconds);
  return Escaped(FromGrpc(stub_->Stop(context.get(), request, &reply), absl::StrCat("master at ", address_)));
}

}  // namespace catchment
