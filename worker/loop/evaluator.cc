#include "worker/loop/evaluator.h"

#include <glog/logging.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/base/not_ready.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/model_file.h"
#include "common/job/data_sources.h"
#include "common/net/snapshot_reader.h"
#include "common/trace/recorder.h"
#include "worker/loop/heartbeat.h"
#include "worker/loop/score_test_set.h"
#include "worker/membership.h"

namespace catchment {
namespace {

constexpr double kPollSeconds = 0.1;

}  // namespace

Evaluator::Evaluator(WorkerOptions options, const Clock* clock)
    : options_(std::move(options)),
      clock_(*clock),
      master_(options_.master, options_.credentials, options_.connect_timeout_seconds, clock, &stop_) {}

absl::Status Evaluator::Run() {
  absl::StatusOr<Session> session = OpenSession(options_, &master_);
  absl::Status status = session.status();
  if (session.ok()) {
    while (true) {
      status = RunMembership(&*session);
      if (stop_.IsSet()) break;
      if (!IsMembershipLost(status)) break;
      if (stop_.Pause(pauses_.Next())) break;
      status = FollowMaster(options_, status, &master_, &session);
      if (!status.ok()) break;
    }
  }
  if (stop_.IsSet()) {
    end_ = "a signal asked this evaluator to end";
    status = absl::OkStatus();
  }
  if (HasMasterEnded(status)) {
    end_ = absl::StrCat("the job is over: ", status.message());
    status = absl::OkStatus();
  }
  if (!session.ok() || session->attached == nullptr) return status;
  const absl::Status program = session->attached->Finish(status);
  program_failed_ = !program.ok() && !stop_.IsSet();
  return program_failed_ ? program : status;
}

absl::Status Evaluator::RunMembership(Session* session) {
  ASSIGN_OR_RETURN(const v1::RegisterReply me,
                   master_.Register(MakeRegisterRequest(*session, v1::EVALUATOR)));
  LOG(INFO) << "evaluator of job '" << session->job.name() << "'";
  NameTracedProcess("evaluator");
  v1::HeartbeatRequest request;
  request.set_role(v1::EVALUATOR);
  request.set_worker(me.worker());
  request.set_incarnation(me.incarnation());
  std::atomic<bool> lost = false;
  Heartbeat heartbeat(request, me.heartbeat_timeout_seconds(), options_.connect_timeout_seconds, &master_,
                      &clock_,
                      {[this] {
                         v1::Progress progress;
                         progress.set_steps(minibatches_);
                         return progress;
                       },
                       [](const std::string&) {}, [&](const absl::Status&) { lost = true; }});
  bool over = false;
  absl::Status status = Join(session);
  while (status.ok() && !over && !lost && !stop_.Pause(kPollSeconds)) {
    status = Answer(session, me.incarnation(), &over);
    if (status.ok()) pauses_.Reset();
  }
  const std::string job_failure = lost ? "" : Leave(me, status);
  RETURN_IF_ERROR(status);
  if (!job_failure.empty()) return absl::FailedPreconditionError("the job has failed: " + job_failure);
  return lost && !over ? MembershipLost("the evaluator's lease ran out") : absl::OkStatus();
}

absl::Status Evaluator::Join(Session* session) {
  if (session->attached == nullptr) return absl::OkStatus();
  absl::Status status = session->attached->AwaitHello();
  return status.ok() ? session->attached->Welcome(0) : status;
}

std::string Evaluator::Leave(const v1::RegisterReply& me, const absl::Status& why) {
  v1::LeaveRequest leave;
  leave.set_role(v1::EVALUATOR);
  leave.set_worker(me.worker());
  leave.set_incarnation(me.incarnation());
  leave.set_failed(!why.ok() && !IsMembershipLost(why) && !stop_.IsSet());
  if (leave.failed()) leave.set_reason(ShortReason(why.message()));
  const absl::StatusOr<v1::LeaveReply> reply = master_.CallOnce(&MasterClient::Stub::Leave, leave);
  return reply.ok() ? reply->job_failed() : "";
}

absl::Status Evaluator::TolerateOutage(const absl::Status& status, double patience_seconds) {
  // A server that begins again cancels the calls in progress.
  if (!IsOfPeer(status) || (!absl::IsUnavailable(status) && !absl::IsCancelled(status))) return status;
  if (!patience_) {
    patience_.emplace(patience_seconds);
    LOG(WARNING) << status.message() << "; trying again, giving up after " << patience_seconds << " s";
  }
  if (IsNotReady(status)) patience_->Succeed();
  if (IsNotReady(status) || !patience_->Fail(clock_.Now())) {
    patience_->Begin(clock_.Now());
    return absl::OkStatus();
  }
  return absl::UnavailableError(absl::StrCat("gave up after ", patience_seconds, " s: ", status.message()));
}

absl::Status Evaluator::Answer(Session* session, uint64_t incarnation, bool* over) {
  v1::GetEvaluationRequest request;
  request.set_incarnation(incarnation);
  ASSIGN_OR_RETURN(const v1::GetEvaluationReply task,
                   master_.Call(&MasterClient::Stub::GetEvaluation, request));
  *over = task.stop();
  if (task.evaluation() == 0 || *over) return absl::OkStatus();
  std::vector<float> weights;
  absl::StatusOr<v1::EvaluationReport> report = Evaluate(session, &weights);
  if (!report.ok()) return TolerateOutage(report.status(), session->job.faults().connect_timeout_seconds());
  patience_.reset();
  report->set_incarnation(incarnation);
  report->set_evaluation(task.evaluation());
  ASSIGN_OR_RETURN(const v1::ReportEvaluationReply reply,
                   master_.Call(&MasterClient::Stub::ReportEvaluation, *report));
  ++evaluations_;
  if (!reply.keep()) return absl::OkStatus();
  const absl::Status kept = master_.KeepBest(incarnation, task.evaluation(), weights);
  LOG_IF(WARNING, !kept.ok()) << "the weights of evaluation " << task.evaluation()
                              << ", the best so far, are not kept: " << kept.message();
  return absl::OkStatus();
}

absl::StatusOr<Score> Evaluator::ScoreTestSet(Session* session, absl::Span<const float> weights) {
  return catchment::ScoreTestSet(session->data, session->job.batch_size(), LoaderThreads(session->job.data()),
                                 weights, session->model.get(), [this] {
                                   ++minibatches_;
                                   return stop_.IsSet();
                                 });
}

absl::StatusOr<v1::EvaluationReport> Evaluator::Evaluate(Session* session, std::vector<float>* weights) {
  // Without test samples, as with synthetic data, there is nothing to score, and the weights are not read.
  if (session->data.test.size() == 0) return v1::EvaluationReport();
  const TraceScope scope("evaluator");
  weights->resize(session->layout.size());
  SnapshotReader reader(session->servers, options_.credentials, session->run_id, &session->layout);
  RETURN_IF_ERROR(reader.Read(absl::MakeSpan(*weights)));
  ASSIGN_OR_RETURN(const Score score, session->attached != nullptr ? session->attached->ScoreTestSet(*weights)
                                                                   : ScoreTestSet(session, *weights));
  if (stop_.IsSet()) return absl::CancelledError("the evaluator was asked to stop");
  const Score& total = score;
  v1::EvaluationReport report;
  report.set_samples(total.samples);
  report.set_correct(total.correct);
  report.set_loss_sum(total.loss_sum);
  for (const Trainable::Statistic& statistic : session->model->statistics()) {
    v1::Statistic* const reported = report.add_statistics();
    reported->set_name(statistic.name);
    reported->mutable_values()->Add(statistic.values.begin(), statistic.values.end());
  }
  RETURN_IF_ERROR(CheckStatistics(session->layout.tensors(), session->attached != nullptr,
                                  absl::MakeConstSpan(report.statistics().data(), report.statistics_size())));
  const double samples = static_cast<double>(std::max<int64_t>(1, total.samples));
  if (session->data.test.target().is_real()) {
    LOG(INFO) << "test loss " << total.loss_sum / samples;
  } else {
    LOG(INFO) << "test accuracy " << static_cast<double>(total.correct) / samples;
  }
  return report;
}

}  // namespace catchment
