// A worker of a simulation: the production step loop (worker/loop/step_loop.h) with leases from the master
// and minibatches ahead, in virtual time.
//
// A pass takes a random time, a third of it forward and two thirds backward, evenly over the layers as in
// SyntheticModel (worker/model/synthetic_model.h). Its gradient is computed when the forward pass has all
// weights.
#ifndef CATCHMENT_SIMULATION_SIMULATED_WORKER_H_
#define CATCHMENT_SIMULATION_SIMULATED_WORKER_H_

#include <cstdint>
#include <deque>
#include <memory>

#include "absl/status/status.h"
#include "common/base/random.h"
#include "common/job/parameter_layout.h"
#include "proto/job.pb.h"
#include "simulation/models.h"
#include "simulation/network.h"
#include "simulation/process.h"
#include "simulation/simulated_master.h"
#include "simulation/simulated_model.h"
#include "simulation/simulated_parameters.h"
#include "worker/algorithms/algorithm.h"
#include "worker/loop/lease_source.h"

namespace catchment {

// The objects that all workers of a simulation share. It owns none of them.
struct SimulatedCluster {
  const v1::Job* job = nullptr;
  const ParameterLayout* layout = nullptr;
  SimulatedModel* model = nullptr;
  SimulatedServers* servers = nullptr;
  SimulatedMaster* master = nullptr;
  SimulatedNetwork* network = nullptr;
  EventQueue* events = nullptr;
  Distribution step;
  Distribution start;     // in addition, of the first step after a registration
  double slow_steps = 0;  // their share, and the factor of their time
  double slow_step_factor = 1;
  FailureModel failures;
  Goodput* goodput = nullptr;
};

class SimulatedWorker {
 public:
  // `cluster` outlives the worker. Workers with the same index and seed have the same step times.
  SimulatedWorker(const SimulatedCluster* cluster, uint32_t index);
  ~SimulatedWorker();

  void Start();
  // Lets the worker end without waiting for anything.
  void Cancel();
  bool ended() const { return trainer_.ended() && loader_.ended(); }
  // Returns the error that ended the worker; OK: none.
  const absl::Status& status() const { return status_; }

 private:
  class Session;

  void Train();
  void Load();
  absl::Status RunSession();
  void Fail(uint64_t incarnation);
  void ScheduleFailure();
  double StepSeconds();
  double StartSeconds();

  const uint32_t index_;
  const SimulatedCluster& cluster_;
  EventQueue& events_;
  Random random_;
  Random starts_;
  Random failures_;
  Port port_;
  SimulatedProcess trainer_;
  SimulatedProcess loader_;
  std::unique_ptr<Session> session_;
  bool cancelled_ = false;
  bool over_ = false;  // the trainer has ended
  absl::Status status_;
};

}  // namespace catchment

#endif  // CATCHMENT_SIMULATION_SIMULATED_WORKER_H_
