#include "simulation/simulated_master.h"

#include <glog/logging.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

namespace catchment {
namespace {

// As in MasterHost.
constexpr double kRoundSeconds = 0.1;
constexpr double kShortRoundSeconds = 0.01;
// As in the evaluator.
constexpr double kPollSeconds = 0.1;
// The time that a command and its report take for each member that they list, at the master and at the server.
constexpr double kControlSecondsPerMember = 2e-6;

}  // namespace

absl::StatusOr<std::unique_ptr<SimulatedMaster>> SimulatedMaster::Create(Options options,
                                                                         SimulatedServers* servers,
                                                                         SimulatedModel* model,
                                                                         SimulatedNetwork* network,
                                                                         EventQueue* events) {
  absl::StatusOr<std::unique_ptr<Outputs>> outputs =
      Outputs::Open(options.out_dir, [events] { return events->Now(); });
  if (!outputs.ok()) return outputs.status();
  absl::StatusOr<std::unique_ptr<Master>> master =
      Master::Create(options.job, model->tensors(), static_cast<int>(servers->size()), events, std::nullopt);
  if (!master.ok()) return master.status();
  return std::unique_ptr<SimulatedMaster>(new SimulatedMaster(
      std::move(options), *std::move(master), *std::move(outputs), servers, model, network, events));
}

SimulatedMaster::SimulatedMaster(Options options, std::unique_ptr<Master> master,
                                 std::unique_ptr<Outputs> outputs, SimulatedServers* servers,
                                 SimulatedModel* model, SimulatedNetwork* network, EventQueue* events)
    : options_(std::move(options)),
      master_(std::move(master)),
      outputs_(std::move(outputs)),
      servers_(*servers),
      model_(*model),
      network_(*network),
      events_(*events),
      schedule_(static_cast<int>(servers->size())) {}

absl::Status SimulatedMaster::Start() {
  v1::RegisterRequest request;
  request.set_role(v1::EVALUATOR);
  for (const TensorSpec& tensor : model_.tensors()) {
    v1::TensorInfo* const info = request.add_tensors();
    info->set_name(tensor.name);
    info->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  }
  const absl::StatusOr<v1::RegisterReply> reply = master_->Register(request);
  if (!reply.ok()) return reply.status();
  evaluator_ = reply->incarnation();
  events_.After(kPollSeconds, [this] { Evaluate(); });
  ScheduleRound(events_.Now(), /*tick=*/true);
  return absl::OkStatus();
}

// ------------------------------------------------------------------------------------------------ calls

absl::StatusOr<v1::RegisterReply> SimulatedMaster::Register(const v1::RegisterRequest& request) {
  absl::StatusOr<v1::RegisterReply> reply = master_->Register(request);
  WakeIfNeeded();
  return reply;
}

absl::StatusOr<v1::HeartbeatReply> SimulatedMaster::Heartbeat(const v1::HeartbeatRequest& request) {
  absl::StatusOr<v1::HeartbeatReply> reply = master_->Heartbeat(request);
  WakeIfNeeded();
  return reply;
}

v1::LeaveReply SimulatedMaster::Leave(const v1::LeaveRequest& request) {
  v1::LeaveReply reply = master_->Leave(request);
  WakeIfNeeded();
  return reply;
}

void SimulatedMaster::OnStateSaved(uint64_t incarnation, uint64_t checkpoint) {
  master_->OnStateSaved(incarnation, checkpoint, absl::OkStatus());
  WakeIfNeeded();
}

void SimulatedMaster::AwaitLease(const v1::GetLeaseRequest& request, LeaseWaiters::Respond respond) {
  const double seconds = std::min(request.wait_seconds(), master_->LongestLeaseWait());
  absl::StatusOr<v1::Lease> lease = master_->GetLease(request);
  if (lease.ok()) lease->set_total_samples(master_->total_samples());
  const bool waits = seconds > 0 && lease.ok() && lease->state() == v1::Lease::WAIT && !lease->flush() &&
                     lease->save_state() == 0 && !over_ && master_->MayWaitForLease(request);
  std::optional<LeaseWaiters::Answer> answer;
  if (waits) {
    answer = waiters_.Add({request, events_.Now() + seconds, *std::move(lease), std::move(respond)},
                          master_->lease_conditions());
  } else {
    answer = LeaseWaiters::Answer{std::move(respond), std::move(lease)};
  }
  WakeIfNeeded();
  if (answer) answer->respond(std::move(answer->lease));
}

LeaseWaiters::Ask SimulatedMaster::AskAgain() {
  return [this](const v1::GetLeaseRequest& request) {
    absl::StatusOr<v1::Lease> lease = master_->GetLeaseAgain(request);
    if (lease.ok()) lease->set_total_samples(master_->total_samples());
    return lease;
  };
}

// ------------------------------------------------------------------------------------------------ rounds

CommandSchedule::Wanted SimulatedMaster::Wanted() const {
  const v1::ShardCommand command = master_->Command(/*rosters=*/false);
  return {command.generation(), command.checkpoint(), command.stop(), master_->phase()};
}

bool SimulatedMaster::HasWork() const {
  if (answered_ || waiters_.NeedReview(master_->lease_conditions())) return true;
  const CommandSchedule::Wanted wanted = Wanted();
  for (int s = 0; s < static_cast<int>(servers_.size()); ++s) {
    if (stopped_.count(s) == 0 && schedule_.IsDueAtOnce(s, wanted)) return true;
  }
  return false;
}

void SimulatedMaster::WakeIfNeeded() {
  if (!over_ && HasWork()) ScheduleRound(events_.Now(), /*tick=*/false);
}

// A round that was added later replaces it.
void SimulatedMaster::ScheduleRound(double time, bool tick) {
  const uint64_t round = ++round_;
  events_.At(time, [this, round, tick] {
    if (round == round_ && !over_) Round(tick);
  });
}

void SimulatedMaster::Round(bool tick) {
  if (tick) schedule_.Tick();
  answered_ = false;
  StopInTime();
  master_->Tick();
  for (const std::string& event : master_->TakeEvents()) VLOG(1) << event;
  for (LeaseWaiters::Answer& answer :
       waiters_.Review(master_->lease_conditions(), events_.Now(), AskAgain())) {
    answer.respond(std::move(answer.lease));
  }
  SendCommands();
  for (const CompleteCheckpoint& checkpoint : master_->TakeCompleteCheckpoints()) {
    master_->OnCheckpointRecorded(checkpoint.number, absl::OkStatus());
  }
  WriteOutputs();
  if (Wanted().stop && stopped_.size() == servers_.size()) {
    over_ = true;
    for (LeaseWaiters::Answer& answer : waiters_.TakeAll(AskAgain())) answer.respond(std::move(answer.lease));
    return;
  }
  const double wait = master_->awaits_reports() ? kShortRoundSeconds : kRoundSeconds;
  HasWork() ? ScheduleRound(events_.Now(), /*tick=*/false)
            : ScheduleRound(events_.Now() + wait, /*tick=*/true);
}

void SimulatedMaster::StopInTime() {
  if (options_.seconds <= 0 || stop_asked_ || master_->phase() != v1::JobStatus::TRAINING) return;
  if (master_->Status().wall_seconds() < options_.seconds) return;
  stop_asked_ = true;
  master_->Stop(options_.end_reason);
}

void SimulatedMaster::SendCommands() {
  const CommandSchedule::Wanted wanted = Wanted();
  for (int s = 0; s < static_cast<int>(servers_.size()); ++s) {
    if (stopped_.count(s) > 0) continue;
    const auto content = schedule_.Begin(s, wanted, master_->num_workers());
    if (!content) continue;
    auto command = std::make_shared<v1::ShardCommand>(master_->Command(content->rosters));
    command->set_without_statistics(!content->statistics);
    const int lists = 1 + content->rosters + content->statistics;
    const double seconds = kControlSecondsPerMember * lists * master_->num_workers();
    events_.After(seconds, [this, s, command = std::move(command)] {
      // The first server is in the master's process.
      if (s == 0) return Command(0, command);
      network_.SendSmall([this, s, command] { Command(s, command); });
    });
  }
}

void SimulatedMaster::Command(int server, const std::shared_ptr<const v1::ShardCommand>& command) {
  const auto report = std::make_shared<const v1::ShardReport>(servers_[server]->Control(*command));
  if (server == 0) return OnAnswer(server, *command, *report);
  network_.SendSmall([this, server, command, report] { OnAnswer(server, *command, *report); });
}

void SimulatedMaster::OnAnswer(int server, const v1::ShardCommand& command, const v1::ShardReport& report) {
  schedule_.End(server, &report);
  if (command.stop()) stopped_.insert(server);
  status_.Update(servers_[server]->status());
  status_.Update(master_->OnShardReport(report));
  answered_ |= master_->phase() != v1::JobStatus::TRAINING;
  WakeIfNeeded();
}

// ------------------------------------------------------------------------------------------------ outputs

v1::JobStatus SimulatedMaster::Status() const {
  v1::JobStatus status = master_->Status();
  // Of the job's model.
  const double scale = model_.wire_scale();
  status.set_bytes_pushed(std::llround(scale * static_cast<double>(status.bytes_pushed())));
  status.set_bytes_pulled(std::llround(scale * static_cast<double>(status.bytes_pulled())));
  for (const auto& server : servers_) {
    int64_t parameters = 0;
    for (int b = 0; b < server->shard()->num_blocks(); ++b)
      parameters += server->shard()->block_range(b).size();
    status.add_servers()->set_parameters(parameters);
  }
  return status;
}

void SimulatedMaster::WriteOutputs() {
  if (std::exchange(scored_, false) || outputs_->MetricsAreDue(master_->done_samples(), events_.Now())) {
    status_.Update(outputs_->MaybeWriteMetrics(Status(), events_.Now()));
  }
  if (outputs_written_ || !master_->ended()) return;
  outputs_written_ = true;
  status_.Update(outputs_->WriteSummary(options_.job, Status(),
                                        {.servers = static_cast<int>(servers_.size()),
                                         .devices = {"simulated: " + model_.description()},
                                         .computed_samples = master_->computed_samples()}));
  master_->OnOutputsWritten();
}

void SimulatedMaster::Evaluate() {
  if (over_) return;
  v1::GetEvaluationRequest request;
  request.set_incarnation(evaluator_);
  const absl::StatusOr<v1::GetEvaluationReply> task = master_->GetEvaluation(request);
  if (!task.ok()) {
    status_.Update(task.status());
    return;
  }
  if (task->stop()) {
    v1::LeaveRequest leave;
    leave.set_role(v1::EVALUATOR);
    leave.set_incarnation(evaluator_);
    Leave(leave);
    return;
  }
  if (task->evaluation() > 0) {
    std::vector<float> weights;
    for (const auto& server : servers_) {
      const std::vector<float> part = server->Weights();
      weights.insert(weights.end(), part.begin(), part.end());
    }
    v1::EvaluationReport report = model_.Evaluate(weights);
    report.set_incarnation(evaluator_);
    report.set_evaluation(task->evaluation());
    const absl::StatusOr<v1::ReportEvaluationReply> reply = master_->ReportEvaluation(report);
    status_.Update(reply.status());
    // No weights are written, so they need not be sent.
    if (reply.ok() && reply->keep()) master_->OnBestKept(task->evaluation(), absl::OkStatus());
    scored_ = true;
    WakeIfNeeded();
  }
  events_.After(kPollSeconds, [this] { Evaluate(); });
}

}  // namespace catchment
