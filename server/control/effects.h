// The effects that the control loop (control_loop.h) asks of its surroundings: real ones
// (server/host/master_host.h), or those of a simulation (simulation/simulated_master.h).
#ifndef CATCHMENT_SERVER_CONTROL_EFFECTS_H_
#define CATCHMENT_SERVER_CONTROL_EFFECTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/checkpoint.pb.h"
#include "proto/master.pb.h"
#include "proto/wire.pb.h"
#include "server/control/calls.h"
#include "server/control/event_log.h"
#include "server/control/job_checkpoints.h"

namespace catchment {

// A command for a server. ControlLoop::OnAnswer is called once with the answer.
struct ServerCommand {
  int server = 0;  // 0: the shard of the master's own process
  std::string address;
  v1::ShardCommand command;
  double answer_seconds = 0;
};

// The outputs of a job that has ended. ControlLoop::OnOutputsWritten is called when they are
// written.
struct FinalOutputs {
  v1::JobStatus status;
  std::vector<std::string> devices;
  std::vector<std::string> servers;  // addresses
  bool has_weights = false;          // the servers have final weights
  uint64_t computed_samples = 0;
  std::optional<uint64_t> best_evaluation;  // whose weights were saved
  std::vector<v1::Statistic> statistics;    // of batch_norm, with the final weights
};

// They are carried out in this order.
struct Effects {
  std::vector<JobEvent> events;  // for the log, and for the metrics
  std::optional<v1::ShardCommand::Standby>
      standby;  // that the master's own shard must know before its commands
  std::vector<ReadyReply> replies;
  std::vector<ServerCommand> commands;
  std::vector<CompleteCheckpoint> checkpoints;  // manifests to write; then ControlLoop::OnCheckpointWritten
  bool scored = false;                          // there is a new score: metrics are due
  bool measures = false;                        // metrics are written, if they are due
  std::optional<v1::RunRecord> record;          // to write; then ControlLoop::OnRecordWritten
  std::optional<FinalOutputs> outputs;          // to write; then ControlLoop::OnOutputsWritten
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_EFFECTS_H_
