#include "cli/watch/job_control.h"

#include <google/protobuf/message.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/checkpoint/master_address.h"
#include "common/net/address.h"
#include "common/program/security_flags.h"

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

constexpr char kMasterVariable[] = "CATCHMENT_MASTER";

bool HasTls(const TlsFiles& tls) {
  return !tls.certs.empty() || !tls.ca.empty() || !tls.cert.empty() || !tls.key.empty();
}

// Returns the directories of a run that have an operator's certificate: DIR/certs, as deploy/make_certs.sh
// fills it, and DIR/certs.JOBID of a Slurm job, each perhaps with a directory for each role.
std::vector<std::string> CertificateDirectories(const std::string& run) {
  std::vector<std::string> found;
  std::error_code error;
  for (const std::filesystem::directory_entry& entry : std::filesystem::directory_iterator(run, error)) {
    const std::string name = entry.path().filename().string();
    if (name != "certs" && !absl::StartsWith(name, "certs.")) continue;
    for (const std::string& path : {entry.path().string() + "/operator", entry.path().string()})
      if (std::filesystem::exists(path + "/operator.crt", error)) found.push_back(path);
  }
  return found;
}

// Returns the newest of them, since those of an earlier job may be left; empty if there is none.
std::string NewestCertificates(const std::string& run) {
  const auto age = [](const std::string& directory) {
    std::error_code error;
    return std::filesystem::last_write_time(directory + "/operator.crt", error);
  };
  std::string newest;
  for (const std::string& directory : CertificateDirectories(run)) {
    if (newest.empty() || age(directory) > age(newest)) newest = directory;
  }
  return newest;
}

// Returns true if the master of a run is reached over a network.
bool IsReachedOverNetwork(const std::string& run) {
  const absl::StatusOr<std::string> address = ReadMasterAddress(run);
  return address.ok() && !absl::StartsWith(*address, "unix:");
}

}  // namespace

void AddMasterFlags(MasterFlags* flags, CommandLine* line) {
  const char* const given = std::getenv(kMasterVariable);
  flags->master = given == nullptr ? "" : given;
  line->argument = {"HOST:PORT|DIR", "node0:7000", &flags->master,
                    [flags] { return !flags->master.empty(); }};
  AddSecurityFlags(&flags->tls, &flags->insecure, &line->flags);
}

void FindCertificates(MasterFlags* flags) {
  if (flags->insecure || HasTls(flags->tls) || !IsRunDirectory(flags->master)) return;
  if (IsReachedOverNetwork(flags->master)) flags->tls.certs = NewestCertificates(flags->master);
}

absl::Status CheckMasterFlags(MasterFlags* flags) {
  FindCertificates(flags);
  FillTlsFiles("operator", &flags->tls);
  RETURN_IF_ERROR(ClientCredentials(flags->tls).status());
  if (IsRunDirectory(flags->master)) return absl::OkStatus();
  if (!absl::StrContains(flags->master, ':')) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", flags->master,
                     "' is neither a directory, the --out of a run, nor HOST:PORT, for example node0:7000"));
  }
  RETURN_IF_ERROR(TidyAddress(&flags->master));
  return CheckSecure(flags->master, flags->tls, flags->insecure);
}

bool IsRunDirectory(const std::string& master) {
  std::error_code error;
  return std::filesystem::is_directory(master, error);
}

absl::StatusOr<std::string> AddressOfMaster(const MasterFlags& flags) {
  if (!IsRunDirectory(flags.master)) return flags.master;
  absl::StatusOr<std::string> address = ReadMasterAddress(flags.master);
  if (absl::IsNotFound(address.status())) {
    return absl::NotFoundError(
        absl::StrCat(flags.master, ": no master uses this --out (no file ", flags.master,
                     "/master.address): give the --out of a running job's master, or its HOST:PORT"));
  }
  RETURN_IF_ERROR(address.status());
  RETURN_IF_ERROR(CheckSecure(*address, flags.tls, flags.insecure));
  return address;
}

bool HasEnded(const v1::JobStatus& status) {
  return status.phase() == v1::JobStatus::DONE || status.phase() == v1::JobStatus::STOPPED ||
         status.phase() == v1::JobStatus::FAILED;
}

absl::StatusOr<JobControl> JobControl::Create(const std::string& address, const TlsFiles& tls) {
  ASSIGN_OR_RETURN(std::shared_ptr<grpc::ChannelCredentials> credentials, ClientCredentials(tls));
  return JobControl(address, v1::MasterService::NewStub(ConnectForControl(address, credentials)));
}

template <typename Request, typename Reply>
absl::StatusOr<Reply> JobControl::Call(Method<Request, Reply> method, const Request& request) {
  if (stub_ == nullptr) return absl::UnavailableError("disconnected");
  Reply reply;
  const std::unique_ptr<grpc::ClientContext> context = DeadlineContext(kCallSeconds);
  const absl::Status status =
      FromGrpc((stub_.get()->*method)(context.get(), request, &reply), absl::StrCat("master at ", address_));
  RETURN_IF_ERROR(absl::Status(status.code(), EscapeControls(status.message())));
  EscapeStrings(&reply);
  return reply;
}

absl::StatusOr<v1::JobStatus> JobControl::GetStatus(double again_in_seconds) {
  v1::GetStatusRequest request;
  request.set_again_in_seconds(again_in_seconds);
  return Call(&v1::MasterService::Stub::GetStatus, request);
}

absl::StatusOr<v1::GetJobReply> JobControl::GetJob() {
  return Call(&v1::MasterService::Stub::GetJob, v1::GetJobRequest());
}

absl::Status JobControl::Stop(const std::string& reason, bool now) {
  v1::StopRequest request;
  request.set_reason(reason);
  request.set_now(now);
  return Call(&v1::MasterService::Stub::Stop, request).status();
}

}  // namespace catchment
