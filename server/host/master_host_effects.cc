// The part of the master's host that carries out the effects of its control loop.
#include <glog/logging.h>

#include <utility>

#include "common/checkpoint/manifest.h"
#include "common/program/log_format.h"
#include "server/host/final_outputs.h"
#include "server/host/master_host.h"

namespace catchment {

void MasterHost::CarryOut(Effects effects) {
  for (const JobEvent& event : effects.events) {
    const v1::RunRecord record = this->record();
    LogEvent(
        "event",
        {{"recoveries", record.recoveries()}, {"updates_computed_again", record.updates_computed_again()}},
        event.text);
    outputs_->NoteEvent(event.text, event.kind, event.worker, event.wall_seconds);
  }
  if (effects.standby) local_.NameStandby(*effects.standby, options_.run_id);
  if (log_ != nullptr) log_->Flush();
  Reply(std::move(effects.replies));
  Send(std::move(effects.commands));
  for (CompleteCheckpoint& checkpoint : effects.checkpoints) {
    const absl::Status status = RecordCheckpoint(options_.checkpoint_dir, options_, layout_, checkpoint);
    LOG_IF(ERROR, !status.ok()) << "checkpoint " << checkpoint.number << ": " << status.message();
    Call<&ControlLoop::OnCheckpointWritten>(std::move(checkpoint), status);
  }
  if (effects.measures) WriteMetrics(effects.scored);
  if (effects.record) WriteRecord(*effects.record);
  if (!effects.outputs) return;
  AddEnergy(&effects.outputs->status);
  const absl::Status status = WriteFinalOutputs(options_,
                                                {.checkpoint_dir = options_.checkpoint_dir,
                                                 .credentials = options_.credentials,
                                                 .local = local_.shard()},
                                                layout_, *effects.outputs, outputs_.get());
  Call<&ControlLoop::OnOutputsWritten>(status);
}

void MasterHost::Send(std::vector<ServerCommand> commands) {
  for (ServerCommand& one : commands) {
    if (one.server == 0) continue;
    commander_->Send(
        StubOf(one), std::move(one.command), one.answer_seconds,
        [this, server = one.server](const v1::ShardCommand& command, absl::StatusOr<v1::ShardReport> answer) {
          OnAnswer(server, command, answer);
        });
  }
  // The local shard executes its command after those of the others have been sent.
  for (const ServerCommand& one : commands) {
    if (one.server == 0) CommandLocal(one);
  }
}

v1::ShardService::Stub* MasterHost::StubOf(const ServerCommand& command) {
  Peer& peer = peers_[command.server];
  if (peer.address != command.address) {
    peer.address = command.address;
    peer.stub = v1::ShardService::NewStub(ConnectForControl(peer.address, options_.credentials));
  }
  return peer.stub.get();
}

void MasterHost::CommandLocal(const ServerCommand& one) {
  v1::ShardReport report = local_.Control(one.command, clock_.Now());
  StandbyLog* const log = local_.log();
  if (log == nullptr || one.command.stop()) return OnAnswer(0, one.command, std::move(report));
  log->Flush();
  // As with other servers, the report waits for the standby.
  const auto wait = log->Await(log->last(), [this, command = one.command, report](bool acknowledged) {
    if (acknowledged) OnAnswer(0, command, report);
  });
  if (wait == StandbyLog::Wait::kAcknowledged) OnAnswer(0, one.command, std::move(report));
}

void MasterHost::OnAnswer(int server, const v1::ShardCommand& command,
                          const absl::StatusOr<v1::ShardReport>& answer) {
  Call<&ControlLoop::OnAnswer>(server, command, answer);
}

void MasterHost::WriteMetrics(bool scored) {
  const double now = clock_.Now();
  v1::JobStatus job;
  {
    MutexLock lock(&mu_);
    const uint64_t samples = loop_->now().master().leases().done_samples();
    if (!scored && !progress_log_.IsDue(samples, now) && !outputs_->MetricsAreDue(samples, now)) return;
    job = loop_->now().Status();
  }
  AddEnergy(&job);
  for (const ProgressLog::Entry& entry : progress_log_.Entries(job, scored, now))
    LogEvent(entry.event, JobMetrics(job), entry.line);
  const absl::Status status = outputs_->MaybeWriteMetrics(job, now);
  LOG_IF_EVERY_N(ERROR, !status.ok(), 100) << status.message();
}

void MasterHost::WriteRecord(const v1::RunRecord& record) {
  const absl::Status status = WriteRunRecord(options_.checkpoint_dir, record);
  const double pause = Call<&ControlLoop::OnRecordWritten>(status);
  LOG_IF(ERROR, !status.ok()) << "cannot write the record of the job: " << status.message()
                              << "; trying again in " << pause << " s";
}

}  // namespace catchment
