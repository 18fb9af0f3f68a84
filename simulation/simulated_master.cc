#include "simulation/simulated_master.h"

#include <glog/logging.h>

#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/job_text.h"
#include "common/wire/protocol.h"

namespace catchment {
namespace {

constexpr uint64_t kRunId = 1;
// As in the evaluator.
constexpr double kPollSeconds = 0.1;
// The time that a command and its report take for each member that they list, at the master and at the
// server.
constexpr double kControlSecondsPerMember = 2e-6;

}  // namespace

absl::StatusOr<std::unique_ptr<SimulatedMaster>> SimulatedMaster::Create(Options options,
                                                                         SimulatedServers* servers,
                                                                         SimulatedModel* model,
                                                                         SimulatedNetwork* network,
                                                                         EventQueue* events) {
  ASSIGN_OR_RETURN(std::unique_ptr<Outputs> outputs,
                   Outputs::Open(options.out_dir, [events] { return events->Now(); }));
  ControlLoop::Options control;
  control.run.job = options.job;
  control.run.num_servers = static_cast<int>(servers->size());
  control.run.run_id = kRunId;
  control.tensors = model->tensors();
  control.writes_weights = true;
  control.own_version = [servers] { return servers->front()->shard()->version(); };
  for (const auto& server : *servers) control.parameters.push_back(server->num_parameters());
  ASSIGN_OR_RETURN(std::unique_ptr<ControlLoop> loop, ControlLoop::Create(std::move(control), events));
  return std::unique_ptr<SimulatedMaster>(new SimulatedMaster(
      std::move(options), std::move(loop), std::move(outputs), servers, model, network, events));
}

SimulatedMaster::SimulatedMaster(Options options, std::unique_ptr<ControlLoop> loop,
                                 std::unique_ptr<Outputs> outputs, SimulatedServers* servers,
                                 SimulatedModel* model, SimulatedNetwork* network, EventQueue* events)
    : options_(std::move(options)),
      loop_(std::move(loop)),
      outputs_(std::move(outputs)),
      servers_(*servers),
      model_(*model),
      network_(*network),
      events_(*events) {}

absl::Status SimulatedMaster::Start() {
  RETURN_IF_ERROR(RegisterServers());
  RETURN_IF_ERROR(RegisterEvaluator());
  events_.After(kPollSeconds, [this] { Evaluate(); });
  ScheduleStep(events_.Now());
  return absl::OkStatus();
}

absl::Status SimulatedMaster::RegisterServers() {
  loop_->SetAddress("simulated:0");
  for (uint32_t s = 1; s < servers_.size(); ++s) {
    v1::RegisterServerRequest request;
    request.set_index(s);
    request.set_num_servers(static_cast<uint32_t>(servers_.size()));
    request.set_address(absl::StrCat("simulated:", s));
    request.set_job_fingerprint(JobFingerprint(options_.job));
    request.set_server_instance(s);
    request.set_protocol_version(kProtocolVersion);
    RETURN_IF_ERROR(Ask<v1::RegisterServerReply>(request).status());
  }
  return absl::OkStatus();
}

absl::Status SimulatedMaster::RegisterEvaluator() {
  v1::RegisterRequest request;
  request.set_role(v1::EVALUATOR);
  for (const TensorSpec& tensor : model_.tensors()) {
    v1::TensorInfo* const info = request.add_tensors();
    info->set_name(tensor.name);
    info->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  }
  const absl::StatusOr<v1::RegisterReply> reply = Ask<v1::RegisterReply>(std::move(request));
  if (reply.ok()) evaluator_ = reply->incarnation();
  return reply.status();
}

// ------------------------------------------------------------------------------------------------ calls

void SimulatedMaster::Answer(v1::Call call, Respond respond) {
  if (call.has_register_()) {
    v1::RegisterRequest& request = *call.mutable_register_();
    request.set_run_id(kRunId);
    request.set_protocol_version(kProtocolVersion);
    // Each worker has a machine of its own.
    call.set_address(absl::StrCat(request.host(), " ", request.pid()));
  }
  std::vector<ReadyReply> replies = loop_->Answer(call, std::move(respond));
  WakeIfNeeded();
  Send(std::move(replies));
}

void SimulatedMaster::Send(std::vector<ReadyReply> replies) {
  for (ReadyReply& ready : replies) ready.respond(std::move(ready.reply));
}

void SimulatedMaster::OnStateSaved(uint64_t incarnation, uint64_t checkpoint) {
  loop_->OnStateSaved(incarnation, checkpoint, absl::OkStatus());
  WakeIfNeeded();
}

// ------------------------------------------------------------------------------------------------ steps

void SimulatedMaster::WakeIfNeeded() {
  if (loop_->HasWork()) ScheduleStep(events_.Now());
}

void SimulatedMaster::ScheduleStep(double time) {
  const uint64_t step = ++step_;
  events_.At(time, [this, step] {
    if (step == step_) Step();
  });
}

void SimulatedMaster::Step() {
  if (over()) return CarryOut(loop_->End());
  StopInTime();
  CarryOut(loop_->Step(/*waited=*/false));
  ScheduleStep(loop_->HasWork() ? events_.Now() : loop_->NextStep());
}

void SimulatedMaster::CarryOut(Effects effects) {
  for (const JobEvent& event : effects.events) {
    VLOG(1) << event.text;
    outputs_->NoteEvent(event.text, event.kind, event.worker, event.wall_seconds);
  }
  Send(std::move(effects.replies));
  for (ServerCommand& command : effects.commands) Send(std::move(command));
  for (const CompleteCheckpoint& checkpoint : effects.checkpoints)
    loop_->OnCheckpointWritten(checkpoint, absl::OkStatus());
  const Master& master = loop_->master();
  if (master.leases().total_samples() > 0 &&
      master.leases().done_samples() >= 0.9 * static_cast<double>(master.leases().total_samples()))
    options_.goodput->ComeNearEnd();
  const double now = events_.Now();
  if (effects.measures && (effects.scored || outputs_->MetricsAreDue(master.leases().done_samples(), now))) {
    status_.Update(outputs_->MaybeWriteMetrics(Status(), now));
  }
  if (effects.record) loop_->OnRecordWritten(absl::OkStatus());
  if (!effects.outputs) return;
  const v1::JobStatus status = Status();
  RunFacts facts{.devices = {"simulated: " + model_.description()},
                 .computed_samples = effects.outputs->computed_samples};
  if (const double seconds = status.wall_seconds(); seconds > 0) {
    facts.goodput = options_.goodput->merged_seconds() / (seconds * options_.job.workers());
    facts.uptime = options_.goodput->up_seconds() / seconds;
    facts.busiest_second_bytes = options_.goodput->busiest_second_bytes();
  }
  status_.Update(outputs_->WriteSummary(status, facts));
  loop_->OnOutputsWritten(absl::OkStatus());
}

void SimulatedMaster::StopInTime() {
  if (options_.seconds <= 0 || stop_asked_ ||
      loop_->master().state_machine().phase() != v1::JobStatus::TRAINING)
    return;
  if (loop_->master().Status().wall_seconds() < options_.seconds) return;
  stop_asked_ = true;
  v1::StopRequest stop;
  stop.set_reason(options_.end_reason);
  status_.Update(Ask<v1::StopReply>(std::move(stop)).status());
}

void SimulatedMaster::Send(ServerCommand one) {
  const int lists = 1 + (one.command.rosters_size() > 0) + !one.command.without_statistics();
  const double seconds = kControlSecondsPerMember * lists * loop_->master().members().num_workers();
  const auto command = std::make_shared<const v1::ShardCommand>(std::move(one.command));
  events_.After(seconds, [this, server = one.server, command] {
    // The first server is in the master's process.
    if (server == 0) return Command(0, command);
    network_.SendSmall([this, server, command] { Command(server, command); });
  });
}

void SimulatedMaster::Command(int server, const std::shared_ptr<const v1::ShardCommand>& command) {
  const auto report = std::make_shared<const v1::ShardReport>(servers_[server]->Control(*command));
  if (server == 0) return OnAnswer(server, *command, *report);
  network_.SendSmall([this, server, command, report] { OnAnswer(server, *command, *report); });
}

void SimulatedMaster::OnAnswer(int server, const v1::ShardCommand& command, const v1::ShardReport& report) {
  status_.Update(servers_[server]->status());
  loop_->OnAnswer(server, command, report);
  WakeIfNeeded();
}

v1::JobStatus SimulatedMaster::Status() const {
  v1::JobStatus status = loop_->Status();
  // The simulated model stands for the job's model, which may be larger.
  const double scale = model_.wire_scale();
  status.set_bytes_pushed(std::llround(scale * static_cast<double>(status.bytes_pushed())));
  status.set_bytes_pulled(std::llround(scale * static_cast<double>(status.bytes_pulled())));
  return status;
}

// -------------------------------------------------------------------------------------------- evaluations

void SimulatedMaster::Evaluate() {
  if (over()) return;
  v1::GetEvaluationRequest request;
  request.set_incarnation(evaluator_);
  const absl::StatusOr<v1::GetEvaluationReply> task = Ask<v1::GetEvaluationReply>(request);
  if (!task.ok()) {
    status_.Update(task.status());
    return;
  }
  if (task->stop()) {
    v1::LeaveRequest leave;
    leave.set_role(v1::EVALUATOR);
    leave.set_incarnation(evaluator_);
    Ask<v1::LeaveReply>(leave).IgnoreError();
    return;
  }
  if (task->evaluation() > 0) {
    std::vector<float> weights;
    for (const auto& server : servers_) {
      const std::vector<float> part = server->Weights();
      weights.insert(weights.end(), part.begin(), part.end());
    }
    absl::StatusOr<v1::EvaluationReport> report = model_.Evaluate(weights);
    if (!report.ok()) {
      status_.Update(report.status());
      return;
    }
    report->set_incarnation(evaluator_);
    report->set_evaluation(task->evaluation());
    const auto reply = Ask<v1::ReportEvaluationReply>(*report);
    status_.Update(reply.status());
    // No weights are written, so they need not be sent.
    v1::BestState kept;
    kept.set_evaluation(task->evaluation());
    if (reply.ok() && reply->keep()) loop_->OnBestKept(kept, absl::OkStatus());
    WakeIfNeeded();
  }
  events_.After(kPollSeconds, [this] { Evaluate(); });
}

}  // namespace catchment
