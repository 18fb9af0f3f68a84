// The master of a simulation: the production Master with the rounds of MasterHost (server/master/master_host.h) in virtual
// time. It sends commands to the servers over the network, answers workers that wait for a lease, scores the weights, and
// writes the metrics and the summary.
#ifndef CATCHMENT_SIMULATION_SIMULATED_MASTER_H_
#define CATCHMENT_SIMULATION_SIMULATED_MASTER_H_

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/master.pb.h"
#include "server/master/command_schedule.h"
#include "server/master/lease_waiters.h"
#include "server/master/master.h"
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
    double seconds = 0;      // ends training after this time; 0: at the job's budget
    std::string end_reason;  // why it then ended
  };
  // All pointers outlive the master.
  static absl::StatusOr<std::unique_ptr<SimulatedMaster>> Create(Options options, SimulatedServers* servers,
                                                                 SimulatedModel* model,
                                                                 SimulatedNetwork* network,
                                                                 EventQueue* events);
  // Begins the rounds, and registers the evaluator.
  absl::Status Start();

  // The calls of workers. They arrive now, and are answered now.
  absl::StatusOr<v1::RegisterReply> Register(const v1::RegisterRequest& request);
  absl::StatusOr<v1::HeartbeatReply> Heartbeat(const v1::HeartbeatRequest& request);
  // Calls `respond` once with the lease: now, or when there is one.
  void AwaitLease(const v1::GetLeaseRequest& request, LeaseWaiters::Respond respond);
  v1::LeaveReply Leave(const v1::LeaveRequest& request);
  void OnStateSaved(uint64_t incarnation, uint64_t checkpoint);

  // Returns true when the job has ended and its outputs are written.
  bool over() const { return over_; }
  // Returns the first error of the servers, or of writing outputs.
  const absl::Status& status() const { return status_; }
  v1::JobStatus Status() const;

 private:
  SimulatedMaster(Options options, std::unique_ptr<Master> master, std::unique_ptr<Outputs> outputs,
                  SimulatedServers* servers, SimulatedModel* model, SimulatedNetwork* network,
                  EventQueue* events);

  CommandSchedule::Wanted Wanted() const;
  bool HasWork() const;
  // Adds a round at this time if there is work that cannot wait for the next one.
  void WakeIfNeeded();
  void ScheduleRound(double time, bool tick);
  void Round(bool tick);
  void SendCommands();
  void Command(int server, const std::shared_ptr<const v1::ShardCommand>& command);
  void OnAnswer(int server, const v1::ShardCommand& command, const v1::ShardReport& report);
  void StopInTime();
  void WriteOutputs();
  // Scores the weights if an evaluation is due, and looks again later.
  void Evaluate();
  LeaseWaiters::Ask AskAgain();

  const Options options_;
  const std::unique_ptr<Master> master_;
  const std::unique_ptr<Outputs> outputs_;
  SimulatedServers& servers_;
  SimulatedModel& model_;
  SimulatedNetwork& network_;
  EventQueue& events_;
  CommandSchedule schedule_;
  LeaseWaiters waiters_;
  uint64_t evaluator_ = 0;  // incarnation; 0: it has left
  uint64_t round_ = 0;      // of the last round that was added
  std::set<int> stopped_;
  bool answered_ = false;  // a server has answered since the last round
  bool scored_ = false;    // an evaluation has been reported since metrics were written
  bool stop_asked_ = false;
  bool outputs_written_ = false;
  bool over_ = false;
  absl::Status status_;
};

}  // namespace catchment

#endif  // CATCHMENT_SIMULATION_SIMULATED_MASTER_H_
