#include "worker/evaluating.h"

#include <glog/logging.h>

#include <algorithm>
#include <atomic>

#include "common/snapshot_reader.h"
#include "worker/heartbeat.h"

namespace catchment {
namespace {

constexpr double kPollSeconds = 0.1;

}  // namespace

Evaluating::Evaluating(WorkerOptions options, const Clock* clock)
    : options_(std::move(options)),
      clock_(*clock),
      master_(options_.master, options_.credentials, options_.connect_timeout_seconds, clock, &stop_) {}

absl::Status Evaluating::Run() {
  absl::StatusOr<Session> session = OpenSession(options_, &master_);
  absl::Status status = session.status();
  if (session.ok()) {
    do {
      status = RunMembership(&*session);
    } while (absl::IsNotFound(status) && !stop_.IsSet());
  }
  return stop_.IsSet() ? absl::OkStatus() : status;
}

absl::Status Evaluating::RunMembership(Session* session) {
  const absl::StatusOr<v1::RegisterReply> me =
      master_.Call(&MasterClient::Stub::Register, MakeRegisterRequest(*session, v1::EVALUATOR));
  if (!me.ok()) return me.status();
  LOG(INFO) << "evaluator of job '" << session->job.name() << "'";
  v1::HeartbeatRequest request;
  request.set_role(v1::EVALUATOR);
  request.set_incarnation(me->incarnation());
  std::atomic<bool> lost = false;
  Heartbeat heartbeat(request, me->lease_seconds(), options_.connect_timeout_seconds, &master_, &clock_,
                      {[] { return v1::Progress(); }, [](const std::string&) {},
                       [&](const absl::Status&) { lost = true; }});
  bool over = false;
  absl::Status status;
  while (status.ok() && !over && !lost && !stop_.Pause(kPollSeconds)) {
    status = Answer(session, me->incarnation(), &over);
  }
  if (!lost) Leave(me->incarnation(), status);
  if (!status.ok()) return status;
  return lost && !over ? absl::NotFoundError("the evaluator's lease ran out") : absl::OkStatus();
}

void Evaluating::Leave(uint64_t incarnation, const absl::Status& why) {
  v1::LeaveRequest leave;
  leave.set_role(v1::EVALUATOR);
  leave.set_incarnation(incarnation);
  leave.set_failed(!why.ok() && !stop_.IsSet());
  if (leave.failed()) leave.set_reason(std::string(why.message()));
  master_.CallOnce(&MasterClient::Stub::Leave, leave).status().IgnoreError();
}

absl::Status Evaluating::Forgive(const absl::Status& status, double patience_seconds) {
  if (!absl::IsUnavailable(status)) return status;
  const double now = clock_.Now();
  if (!unreachable_since_.has_value()) {
    unreachable_since_ = now;
    LOG(WARNING) << status.message() << "; trying again, giving up after " << patience_seconds << " s";
  }
  return now - *unreachable_since_ >= patience_seconds ? status : absl::OkStatus();
}

absl::Status Evaluating::Answer(Session* session, uint64_t incarnation, bool* over) {
  v1::GetEvaluationRequest request;
  request.set_incarnation(incarnation);
  const absl::StatusOr<v1::GetEvaluationReply> task =
      master_.Call(&MasterClient::Stub::GetEvaluation, request);
  if (!task.ok()) return task.status();
  *over = task->stop();
  if (task->evaluation() == 0 || *over) return absl::OkStatus();
  absl::StatusOr<v1::EvaluationReport> report = Evaluate(session);
  if (!report.ok()) return Forgive(report.status(), session->job.faults().connect_timeout_seconds());
  unreachable_since_.reset();
  report->set_incarnation(incarnation);
  report->set_evaluation(task->evaluation());
  return master_.Call(&MasterClient::Stub::ReportEvaluation, *report).status();
}

absl::StatusOr<v1::EvaluationReport> Evaluating::Evaluate(Session* session) {
  // Synthetic samples: there is nothing to say of the weights, so they need not come.
  if (session->data.test.size() == 0) return v1::EvaluationReport();
  std::vector<float> weights(session->layout.size());
  SnapshotReader reader(session->servers, options_.credentials, &session->layout);
  if (absl::Status status = reader.Read(absl::MakeSpan(weights)); !status.ok()) return status;
  const Dataset& test = session->data.test;
  const int64_t batch_size = session->job.batch_size();
  const int64_t sample_size = test.input_shape().size();
  std::vector<float> inputs(batch_size * sample_size);
  std::vector<int32_t> labels(batch_size);
  Score total;
  for (int64_t begin = 0; begin < test.size() && !stop_.IsSet(); begin += batch_size) {
    const int64_t n = std::min(batch_size, test.size() - begin);
    for (int64_t i = 0; i < n; ++i) {
      test.CopyInput(begin + i, inputs.data() + i * sample_size);
      labels[i] = test.label(begin + i);
    }
    total += session->model->Evaluate(weights,
                                      {inputs.data(), labels.data(), nullptr, static_cast<int>(n)});
  }
  if (stop_.IsSet()) return absl::CancelledError("the evaluator was told to stop");
  v1::EvaluationReport report;
  report.set_samples(total.samples);
  report.set_correct(total.correct);
  report.set_loss_sum(total.loss_sum);
  LOG(INFO) << "test accuracy " << static_cast<double>(total.correct) / std::max<int64_t>(1, total.samples);
  return report;
}

}  // namespace catchment
