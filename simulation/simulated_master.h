// The master of a simulation: carries out the effects of the production control loop
// (server/control/control_loop.h) in virtual time. It sends commands to the simulated servers over the
// network, scores the weights, and writes the metrics and the summary.
#ifndef CATCHMENT_SIMULATION_SIMULATED_MASTER_H_
#define CATCHMENT_SIMULATION_SIMULATED_MASTER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/master.pb.h"
#include "server/control/calls.h"
#include "server/control/control_loop.h"
#include "server/outputs/outputs.h"
#include "simulation/event_queue.h"
#include "simulation/network.h"
#include "simulation/simulated_model.h"
#include "simulation/simulated_parameters.h"

namespace catchment {

class SimulatedMaster {
 public:
  struct Options {
    v1::Job job;
    std::string out_dir;
    double seconds = 0;          // ends training after this time; 0: at the job's budget
    std::string end_reason;      // why it then ended
    Goodput* goodput = nullptr;  // outlives the master
  };
  // All pointers outlive the master.
  static absl::StatusOr<std::unique_ptr<SimulatedMaster>> Create(Options options, SimulatedServers* servers,
                                                                 SimulatedModel* model,
                                                                 SimulatedNetwork* network,
                                                                 EventQueue* events);
  // Registers the servers and the evaluator, and begins the steps.
  absl::Status Start();

  // Answers the call of a worker, which arrives now: `respond` is called once with the reply, now or, to a
  // call that waits for a lease, when there is one.
  void Answer(v1::Call call, Respond respond);
  // Returns the reply to a call that does not wait.
  template <typename ReplyMessage, typename Request>
  absl::StatusOr<ReplyMessage> Ask(Request request) {
    absl::StatusOr<v1::Reply> reply;
    Answer(MakeCall(std::move(request)),
           [&reply](absl::StatusOr<v1::Reply> made) { reply = std::move(made); });
    return TakeReply<ReplyMessage>(std::move(reply));
  }
  void OnStateSaved(uint64_t incarnation, uint64_t checkpoint);

  // Returns true when the job has ended and its outputs are written.
  bool over() const { return loop_->over(); }
  // Returns the first error of the servers, or of writing outputs.
  const absl::Status& status() const { return status_; }
  v1::JobStatus Status() const;

 private:
  SimulatedMaster(Options options, std::unique_ptr<ControlLoop> loop, std::unique_ptr<Outputs> outputs,
                  SimulatedServers* servers, SimulatedModel* model, SimulatedNetwork* network,
                  EventQueue* events);

  absl::Status RegisterServers();
  absl::Status RegisterEvaluator();
  // Adds a step at this time if there is work that cannot wait for the next one.
  void WakeIfNeeded();
  // Adds a step, in place of the one that was added before.
  void ScheduleStep(double time);
  void Step();
  void CarryOut(Effects effects);
  void Send(std::vector<ReadyReply> replies);
  void Send(ServerCommand command);
  void Command(int server, const std::shared_ptr<const v1::ShardCommand>& command);
  void OnAnswer(int server, const v1::ShardCommand& command, const v1::ShardReport& report);
  void StopInTime();
  // Scores the weights if an evaluation is due, and looks again later.
  void Evaluate();

  const Options options_;
  const std::unique_ptr<ControlLoop> loop_;
  const std::unique_ptr<Outputs> outputs_;
  SimulatedServers& servers_;
  SimulatedModel& model_;
  SimulatedNetwork& network_;
  EventQueue& events_;
  uint64_t evaluator_ = 0;  // incarnation; 0: it has left
  uint64_t step_ = 0;       // the last step that was added
  bool stop_asked_ = false;
  absl::Status status_;
};

}  // namespace catchment

#endif  // CATCHMENT_SIMULATION_SIMULATED_MASTER_H_
