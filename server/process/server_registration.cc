#include "server/process/server_registration.h"

#include <glog/logging.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/not_ready.h"
#include "common/base/patience.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/energy/meter.h"
#include "common/trace/recorder.h"

namespace catchment {
namespace {

constexpr double kInterval = 1;
constexpr double kRetryInterval = 0.5;  // after a call that the master did not answer
constexpr double kCallSeconds = 5;
constexpr double kReportSeconds = 3;
constexpr size_t kMaxFailureBytes = 1024;
// The time for which a server that must end waits for a master that does not answer.
constexpr double kLeaveSeconds = 20;
constexpr char kNeverReached[] =
    "; check the master's address, and that either both sides have --certs (or --tls_ca, --tls_cert and "
    "--tls_key) of the same authority or neither has";

}  // namespace

ServerRegistration::ServerRegistration(const std::string& master,
                                       const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                                       v1::RegisterServerRequest request, const RunClaim* claim,
                                       double give_up_seconds, const Clock* clock, Callbacks callbacks)
    : master_(master),
      stub_(v1::MasterService::NewStub(ConnectForControl(master, credentials))),
      claim_(*claim),
      give_up_seconds_(give_up_seconds),
      clock_(*clock),
      callbacks_(std::move(callbacks)),
      request_(std::move(request)),
      thread_([this] { Run(); }) {}

ServerRegistration::~ServerRegistration() {
  {
    MutexLock lock(&mu_);
    ending_ = true;
    changed_.Notify();
  }
  thread_.join();
}

void ServerRegistration::Leave(const std::string& why) {
  MutexLock lock(&mu_);
  request_.set_leaving(true);
  request_.set_failure(why);
  wake_now_ = true;
  changed_.Notify();
}

void ServerRegistration::Report(const std::string& master,
                                const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                                v1::RegisterServerRequest request, const absl::Status& failure) {
  request.set_failure(ShortLine(failure.message(), kMaxFailureBytes));
  v1::RegisterServerReply reply;
  const std::unique_ptr<grpc::ClientContext> context = DeadlineContext(kReportSeconds);
  context->set_wait_for_ready(true);
  const auto stub = v1::MasterService::NewStub(ConnectForControl(master, credentials));
  const grpc::Status status = stub->RegisterServer(context.get(), request, &reply);
  LOG_IF(WARNING, !status.ok()) << "the master at " << master
                                << " was not told why this server ends: " << status.error_message();
}

absl::StatusOr<v1::RegisterServerReply> ServerRegistration::Register(v1::RegisterServerRequest request) {
  const v1::Run run = claim_.run();
  if (run.id() != 0) {
    *request.mutable_run() = run;
    request.mutable_run()->clear_token_key();  // the master has it
  }
  request.set_version(callbacks_.version());
  *request.mutable_energy() = HostEnergy().Read();
  if (callbacks_.epoch) request.set_epoch(callbacks_.epoch());
  v1::RegisterServerReply reply;
  const std::unique_ptr<grpc::ClientContext> context = DeadlineContext(kCallSeconds);
  const double sent = clock_.Now();
  RETURN_IF_ERROR(FromGrpc(stub_->RegisterServer(context.get(), request, &reply), "master at " + master_));
  RecordMasterTime(sent, reply.master_time());
  if (reply.run_id() == 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        "master at ", master_, ": it does not report the job's run: use binaries of the same release"));
  }
  if (!reply.ended().empty() || reply.go_back() || run.id() == 0 || run.id() == reply.run_id()) return reply;
  return absl::FailedPreconditionError(absl::StrCat("master at ", master_,
                                                    ": it has started another "
                                                    "run, but this server belongs to ",
                                                    Describe(run), ": restart the server"));
}

void ServerRegistration::Run() {
  Patience patience(give_up_seconds_);
  bool reached = false;
  while (true) {
    v1::RegisterServerRequest request;
    {
      MutexLock lock(&mu_);
      if (ending_) return;
      wake_now_ = false;
      request = request_;
    }
    if (request.leaving()) patience.ShortenTo(kLeaveSeconds);
    patience.Begin(clock_.Now(), kCallSeconds);
    const absl::StatusOr<v1::RegisterServerReply> reply = Register(std::move(request));
    const absl::Status& status = reply.status();
    if (reply.ok() && !reply->ended().empty()) {
      callbacks_.on_ended(reply->ended());
      return;
    }
    if (reply.ok() && (reply->go_back() || !reply->restore_from().empty())) {
      callbacks_.on_begin_again(*reply);
      return;
    }
    if (status.ok()) {
      patience.Succeed();
      reached = true;
      if (callbacks_.on_registered) callbacks_.on_registered(*reply);
    } else if (absl::IsFailedPrecondition(status) || absl::IsPermissionDenied(status)) {
      callbacks_.on_failed(status);
      return;
    } else if (IsNotReady(status)) {
      patience.Succeed();
      LOG(INFO) << status.message();
    } else if (patience.Fail(clock_.Now())) {
      callbacks_.on_failed(absl::UnavailableError(absl::StrCat(
          "gave up after ", patience.seconds(), " s: ", status.message(), reached ? "" : kNeverReached)));
      return;
    } else {
      LOG(WARNING) << status.message() << "; trying again in " << kRetryInterval << " s, giving up after "
                   << patience.seconds() << " s";
    }
    const double pause = status.ok() ? kInterval : kRetryInterval;
    patience.Begin(clock_.Now(), pause);
    MutexLock lock(&mu_);
    changed_.WaitFor(&mu_, pause, [this] { return ending_ || wake_now_; });
  }
}

}  // namespace catchment
