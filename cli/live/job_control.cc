#include "cli/live/job_control.h"

#include <google/protobuf/message.h>
#include <grpcpp/grpcpp.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/not_ready.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/base/thread_limit.h"
#include "common/net/address.h"
#include "common/program/command_line.h"

namespace catchment {
namespace {

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

// A call whose end the calling thread awaits by itself. Where gRPC could not start its threads, nobody else
// would end the call at its deadline, and the caller would not look at signals any more.
template <typename Reply>
struct OpenCall {
  explicit OpenCall(double seconds) : context(DeadlineContext(seconds)) {}

  // Returns false if the call has not ended at its deadline, or soon afterwards. It then must outlive gRPC.
  bool HasEnded() {
    void* tag = nullptr;
    bool ok = false;
    const auto last = context->deadline() + std::chrono::seconds(1);
    return queue.AsyncNext(&tag, &ok, last) == grpc::CompletionQueue::GOT_EVENT;
  }

  const std::unique_ptr<grpc::ClientContext> context;
  grpc::CompletionQueue queue;
  grpc::Status status;
  Reply reply;
  std::unique_ptr<grpc::ClientAsyncResponseReader<Reply>> reader;
};

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
  const absl::StatusOr<MasterPlace> place = ReadMasterPlace(run);
  return place.ok() && !absl::StartsWith(place->address, "unix:");
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

absl::StatusOr<MasterPlace> PlaceOfMaster(const MasterFlags& flags) {
  if (!IsRunDirectory(flags.master)) return MasterPlace{flags.master};
  absl::StatusOr<MasterPlace> place = ReadMasterPlace(flags.master);
  if (absl::IsNotFound(place.status())) {
    return absl::NotFoundError(
        absl::StrCat(flags.master, ": no master uses this --out (no file ", flags.master,
                     "/master.address): give the --out of a running job's master, or its HOST:PORT"));
  }
  RETURN_IF_ERROR(place.status());
  RETURN_IF_ERROR(CheckSecure(place->address, flags.tls, flags.insecure));
  return place;
}

bool HasEnded(const v1::JobStatus& status) {
  return status.phase() == v1::JobStatus::DONE || status.phase() == v1::JobStatus::STOPPED ||
         status.phase() == v1::JobStatus::FAILED;
}

absl::StatusOr<JobControl> JobControl::Create(const std::string& address, const TlsFiles& tls) {
  return Create(MasterFlags{.master = address, .tls = tls, .insecure = true});
}

absl::StatusOr<JobControl> JobControl::Create(const MasterFlags& flags) {
  ASSIGN_OR_RETURN(MasterPlace place, PlaceOfMaster(flags));
  ASSIGN_OR_RETURN(std::shared_ptr<grpc::ChannelCredentials> credentials, ClientCredentials(flags.tls));
  auto stub = v1::MasterService::NewStub(ConnectForControl(place.address, credentials));
  JobControl control(std::move(place), std::move(stub));
  if (IsRunDirectory(flags.master)) control.directory_ = flags.master;
  return control;
}

template <typename Request, typename Reply>
absl::StatusOr<Reply> JobControl::Call(Method<Request, Reply> method, const Request& request) {
  if (stub_ == nullptr) return absl::UnavailableError("disconnected");
  const std::string who = absl::StrCat("master at ", address());
  auto call = std::make_unique<OpenCall<Reply>>(kMasterCallSeconds);
  call->reader = (stub_.get()->*method)(call->context.get(), request, &call->queue);
  call->reader->Finish(&call->reply, &call->status, /*tag=*/nullptr);
  if (!call->HasEnded()) {
    call.release()->context->TryCancel();
    return absl::DeadlineExceededError(absl::StrCat(
        who, ": the call has not ended in time, as happens where gRPC could not start its threads: ",
        kThreadsRemedy));
  }
  const absl::Status status = FromGrpc(call->status, who);
  const std::string message = EscapeControls(status.message());
  RETURN_IF_ERROR(IsNotReady(status) ? NotReady(message) : absl::Status(status.code(), message));
  EscapeStrings(&call->reply);
  return std::move(call->reply);
}

absl::StatusOr<v1::JobStatus> JobControl::GetStatus(double again_in_seconds) {
  v1::GetStatusRequest request;
  request.set_again_in_seconds(again_in_seconds);
  absl::StatusOr<v1::JobStatus> status = Call(&v1::MasterService::Stub::AsyncGetStatus, request);
  if (status.ok()) RETURN_IF_ERROR(CheckRun(*status));
  return status;
}

absl::Status JobControl::CheckRun(const v1::JobStatus& status) {
  if (directory_.empty() || status.run_id() == place_.run_id) return absl::OkStatus();
  const absl::StatusOr<MasterPlace> now = ReadMasterPlace(directory_);
  if (now.ok() && now->address == place_.address) place_.run_id = now->run_id;
  return CheckSameRun(directory_, place_, status.run_id(), status.job());
}

absl::StatusOr<v1::GetJobReply> JobControl::GetJob() {
  return Call(&v1::MasterService::Stub::AsyncGetJob, v1::GetJobRequest());
}

absl::Status JobControl::Stop(const std::string& reason, bool now) {
  // An earlier version's master would not compare the run.
  if (!directory_.empty()) RETURN_IF_ERROR(GetStatus().status());
  v1::StopRequest request;
  request.set_reason(reason);
  request.set_now(now);
  request.set_run_id(directory_.empty() ? 0 : place_.run_id);
  return Call(&v1::MasterService::Stub::AsyncStop, request).status();
}

}  // namespace catchment
