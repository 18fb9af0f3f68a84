#include "worker/loop/trainer.h"

#include <glog/logging.h>

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/energy/meter.h"
#include "common/net/snapshot_reader.h"
#include "common/trace/recorder.h"
#include "worker/loop/heartbeat.h"
#include "worker/membership.h"

namespace catchment {
namespace {

constexpr double kLookSeconds = 0.1;

// Adds to an error of a server that cannot be reached what the user can do.
absl::Status WithAdvice(const absl::Status& status) {
  if (!absl::IsUnavailable(status)) return status;
  return absl::UnavailableError(absl::StrCat(status.message(),
                                             "; if a server has ended, start all processes again with "
                                             "--resume to continue from the last checkpoint"));
}

}  // namespace

Trainer::Trainer(WorkerOptions options, const Clock* clock)
    : options_(std::move(options)),
      clock_(*clock),
      master_(options_.master, options_.credentials, options_.connect_timeout_seconds, clock, &stop_) {}

Trainer::~Trainer() {
  finished_.Set();
  if (watchdog_.joinable()) watchdog_.join();
}

void Trainer::Stop() {
  {
    MutexLock lock(&mu_);
    signalled_.Set();
  }
  EndTraining();
}

void Trainer::EndTraining() {
  MutexLock lock(&mu_);
  stop_.Set();
  if (current_ != nullptr) current_->End();
  if (!watchdog_.joinable()) watchdog_ = std::thread([this] { WatchEnd(); });
}

bool Trainer::MayTrainAgain() {
  MutexLock lock(&mu_);
  if (signalled_.IsSet()) return false;
  stop_.Clear();
  return true;
}

void Trainer::WatchEnd() {
  while (!finished_.Pause(kLookSeconds)) {
    MutexLock lock(&mu_);
    if (current_ != nullptr && stop_.IsSet()) current_->EndStalled();
  }
}

void Trainer::SetCurrent(TrainingSession* training) {
  MutexLock lock(&mu_);
  if (current_ != nullptr) progress_ = current_->progress();
  current_ = training;
  if (training != nullptr && stop_.IsSet()) training->End();
}

void Trainer::AddMetrics(MetricFamilies* families) {
  MutexLock lock(&mu_);
  AddWorker(current_ != nullptr ? current_->progress() : progress_, families);
}

absl::Status Trainer::Run() {
  absl::StatusOr<Session> session = OpenSession(options_, &master_);
  absl::Status status = session.status();
  while (session.ok()) {
    status = RunSession(&*session);
    if (!MayTrainAgain()) break;
    if (!IsMembershipLost(status)) break;
    if (stop_.Pause(pauses_.Next())) break;
    status = FollowMaster(options_, status, &master_, &session);
    if (!status.ok()) break;
  }
  finished_.Set();
  end_ = DescribeEnd(status, session.ok() ? &*session : nullptr);
  const bool failed = !signalled_.IsSet() && !status.ok() && !HasMasterEnded(status);
  const absl::Status job = job_failure_.empty() ? absl::OkStatus() : JobFailed();
  const absl::Status end = failed ? status : job;
  if (!session.ok() || session->attached == nullptr) return end;
  const absl::Status program = session->attached->Finish(end);
  // A program that is told to end together with its worker may end as it likes.
  program_failed_ = !program.ok() && !signalled_.IsSet();
  LOG_IF(WARNING, !program.ok() && !program_failed_) << program.message();
  return program_failed_ ? program : end;
}

std::string Trainer::DescribeEnd(const absl::Status& status, const Session* session) {
  if (signalled_.IsSet()) return "a signal asked this worker to end";
  if (HasMasterEnded(status)) return absl::StrCat("the job is over: ", status.message());
  if (session != nullptr && session->attached != nullptr && session->attached->left())
    return std::string(session->attached->status().message());
  MutexLock lock(&mu_);
  return ended_by_master_.empty() ? "this worker's part in the job is done"
                                  : absl::StrCat("the master ended the job: ", ended_by_master_);
}

absl::Status Trainer::JobFailed() const {
  return absl::FailedPreconditionError("the job has failed: " + job_failure_);
}

absl::Status Trainer::RunSession(Session* session) {
  ASSIGN_OR_RETURN(const v1::RegisterReply me, master_.Register(MakeRegisterRequest(*session, v1::WORKER)));
  LOG(INFO) << "worker " << me.worker() << ", incarnation " << me.incarnation() << ", of job '"
            << session->job.name() << "', device: " << session->model->device();
  NameTracedProcess(absl::StrCat("worker ", me.worker()));
  NameTracedThread("training");
  if (absl::Status status = Join(me, session); !status.ok()) {
    return Leave(me, v1::Progress(), status, session);
  }
  if (absl::StrContains(session->model->device(), "cuda")) HostEnergy().CountGpus();
  TrainingSession training(me, options_, &clock_, session, &master_);
  SetCurrent(&training);
  const absl::Status status = RunWithHeartbeat(me, &training);
  SetCurrent(nullptr);
  const v1::Progress progress = training.progress();
  // A worker that has trained was not refused.
  if (progress.steps() > 0) pauses_.Reset();
  const absl::Status lost = IsMembershipLost(status) ? status : training.lost();
  if (!lost.ok() && !IsMembershipLost(lost)) return lost;
  if (session->attached != nullptr && session->attached->left()) {
    LOG(INFO) << session->attached->status().message();
    return Leave(me, progress, absl::OkStatus(), session);
  }
  if (lost.ok() || stop_.IsSet()) return Leave(me, progress, WithAdvice(status), session);
  // If a server refused the worker, it is still a member at the master.
  if (!absl::IsNotFound(lost)) LeaveToRegisterAgain(me, progress, lost);
  if (!job_failure_.empty()) return JobFailed();
  return MembershipLost(absl::StrCat("the membership was lost: ", lost.message()));
}

absl::Status Trainer::Join(const v1::RegisterReply& me, Session* session) {
  if (session->attached == nullptr) return absl::OkStatus();
  session->attached->SkipPlanned();
  return session->attached->Welcome(me.worker());
}

absl::Status Trainer::RunWithHeartbeat(const v1::RegisterReply& me, TrainingSession* training) {
  v1::HeartbeatRequest request;
  request.set_worker(me.worker());
  request.set_incarnation(me.incarnation());
  const auto on_stop = [this](const std::string& reason) {
    LOG(INFO) << "the master ends the job: " << reason;
    {
      MutexLock lock(&mu_);
      ended_by_master_ = reason;
    }
    EndTraining();
  };
  Heartbeat heartbeat(request, me.heartbeat_timeout_seconds(), options_.connect_timeout_seconds, &master_,
                      &clock_,
                      {[training] { return training->progress(); }, on_stop,
                       [training](const absl::Status& why) { training->EndLost(why); }});
  return training->Run();
}

v1::LeaveRequest Trainer::MakeLeaveRequest(const v1::RegisterReply& me, const v1::Progress& progress) const {
  v1::LeaveRequest request;
  request.set_worker(me.worker());
  request.set_incarnation(me.incarnation());
  *request.mutable_progress() = progress;
  return request;
}

void Trainer::LeaveToRegisterAgain(const v1::RegisterReply& me, const v1::Progress& progress,
                                   const absl::Status& why) {
  v1::LeaveRequest request = MakeLeaveRequest(me, progress);
  request.set_reason(ShortReason(absl::StrCat("it registers again, for ", why.message())));
  SendLeave(request, "registers again");
}

absl::Status Trainer::Leave(const v1::RegisterReply& me, const v1::Progress& progress,
                            const absl::Status& why, Session* session) {
  v1::LeaveRequest request = MakeLeaveRequest(me, progress);
  const bool stopped = stop_.IsSet();
  const bool left = session->attached != nullptr && session->attached->left();
  if (!why.ok() && !stopped) request.set_reason(ShortReason(why.message()));
  if (why.ok() && left) request.set_reason(ShortReason(session->attached->status().message()));
  if (why.ok() && stopped) request.set_reason("asked to stop");
  request.set_failed(!why.ok() && !stopped);
  if (!request.failed() && !signalled_.IsSet()) return AwaitRecord(std::move(request), session);
  SendLeave(request, "leaves");
  return why;
}

absl::Status Trainer::AwaitRecord(v1::LeaveRequest request, Session* session) {
  request.set_stays(true);
  // The master that ended the training may have ended, too, if this took long.
  bool goes_on = !stop_.IsSet();
  bool said = false, read = false;
  while (true) {
    const absl::StatusOr<v1::LeaveReply> reply =
        goes_on ? master_.Call(&MasterClient::Stub::Leave, request, &signalled_)
                : master_.CallOnce(&MasterClient::Stub::Leave, request);
    if (absl::IsNotFound(reply.status())) {
      return MembershipLost(absl::StrCat("the job went back before its last checkpoint was written: ",
                                         reply.status().message()));
    }
    if (HasMasterEnded(reply.status())) {
      if (goes_on) return reply.status();
      // The master may begin another run.
      goes_on = true;
      continue;
    }
    if (!reply.ok()) {
      LOG(WARNING) << "could not learn whether the last checkpoint was written: " << reply.status().message();
      return absl::OkStatus();
    }
    job_failure_ = reply->job_failed();
    if (reply->again_in_seconds() <= 0) return absl::OkStatus();
    if (reply->weights_are_final() && !std::exchange(read, true)) ReadResult(session);
    LOG_IF(INFO, !std::exchange(said, true))
        << "this worker is done, and stays until the last checkpoint is written";
    goes_on = true;
    if (signalled_.Pause(reply->again_in_seconds())) {
      request.set_stays(false);
      SendLeave(request, "ends");
      return absl::OkStatus();
    }
  }
}

void Trainer::ReadResult(Session* session) {
  if (session->attached == nullptr) return;
  SnapshotReader reader(session->servers, options_.credentials, session->run_id, &session->layout);
  const absl::Status status =
      session->attached->SetResult([&](absl::Span<float> weights) { return reader.Read(weights); });
  LOG_IF(WARNING, !status.ok())
      << "the program's model keeps the weights of its last step, because the job's "
         "final weights could not be read: "
      << status.message();
}

void Trainer::SendLeave(const v1::LeaveRequest& request, const std::string& what) {
  const absl::StatusOr<v1::LeaveReply> reply = master_.CallOnce(&MasterClient::Stub::Leave, request);
  LOG_IF(WARNING, !reply.ok()) << "could not inform the master that this worker " << what << ": "
                               << reply.status().message();
  if (reply.ok()) job_failure_ = reply->job_failed();
}

}  // namespace catchment
