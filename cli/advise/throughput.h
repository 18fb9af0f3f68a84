// How fast a job trains with some number of workers and servers, in closed form.
//
//   k T       computing between two contributions of a worker: k steps of a mean time T
//   E         an exchange that waits for no other: a block's way through the worker's link, the server's link and the
//             server's processor, and every further block at the pace of the slowest of them
//   V         what a worker waits for it: two latencies, and what computing does not hide. A block leaves when the
//             backward pass has finished its layers, so that all of it but the share `exposed`, and but the way of the
//             last block, can overlap with a step:
//               V = 2 latency + max(exposed E, way of a block, E - (1 - exposed) T)
//   D         a server's time for one contribution: blocks on it, times the slowest of its link and its processor
//
// In order of arrival, p workers are the customers of a closed queueing network with one station of fixed service time
// D (mean value analysis with Schweitzer's approximation and half a service for the contribution in service; Reiser
// 1979, "A queueing network analysis of computer communication networks with window flow control"):
//   R = D (1 + (p - 1)/p (Q - U/2)),   Q = sum of R over all cycles,   U = D times the contributions a second
// In groups, an update takes the expected time until all members but backup_workers have computed, an order statistic
// of k steps, and then V. A server answers the members one after another, D apart, so that they begin their steps one
// after another: what that adds to the order statistic is added to E.
//
//   efficiency = contributions in updates a second / sum over workers of 1 / (k T of this worker)
//
// Left out: the processors of workers, workers that are lost, reading data, the master. All servers have an even share
// of the weights. A staleness bound makes workers as fast as the slowest one.
//
// Units: seconds, bytes. Threads: pure functions of immutable objects.
#ifndef CATCHMENT_CLI_ADVISE_THROUGHPUT_H_
#define CATCHMENT_CLI_ADVISE_THROUGHPUT_H_

#include <cstdint>
#include <map>
#include <vector>

#include "proto/job.pb.h"
#include "simulation/models.h"

namespace catchment {

// What the workers of a job send, and whom they wait for.
struct Load {
  int64_t steps = 1;     // of a worker between two contributions
  double sent = 0;       // payload of one contribution, to all servers
  double received = 0;   // payload of its answers
  int64_t blocks = 1;    // of the weights on a single server
  double exposed = 1;    // the share of an exchange that cannot overlap with computing
  int groups = 0;        // whose members wait for each other; 0: nobody waits
  int backup = 0;        // members of a group that an update does not wait for
  bool bounded = false;  // the fastest workers wait for the slowest at last
};
// `job` has all defaults. `parameters`: of its model. `exposed` applies to gradients only; other contributions are sent
// as a whole.
Load LoadOf(const v1::Job& job, int64_t parameters, double exposed);

// What takes most of the time in which a worker does not compute.
enum class Limit { kOtherWorkers, kRoundTrip, kWorkerLink, kServerLink, kServerProcessor };
// Returns "waiting for other workers".
const char* ToString(Limit limit);

struct Prediction {
  double efficiency = 0;
  double contributions_per_second = 0;  // in updates
  double exchange = 0;                  // V, of one contribution, with queueing
  double others = 0;  // waiting for other workers, for one contribution; 0 in order of arrival
  Limit limit = Limit::kRoundTrip;
};

class ThroughputModel {
 public:
  // `slow`: the factors by which single workers' steps take longer.
  ThroughputModel(const Load& load, const Distribution& step, std::map<uint32_t, double> slow,
                  const NetworkModel& network);

  // `workers` and `servers` are at least 1.
  Prediction Predict(int workers, int servers) const;

  // Returns the largest number of workers up to kMostWorkers with at least this efficiency; 0 if there is none.
  int MostWorkers(int servers, double efficiency) const;
  static constexpr int kMostWorkers = 4096;

 private:
  // A contribution's way through one of the servers.
  struct Way {
    double trip = 0;         // of one block
    double slowest = 0;      // the time of the slowest of the stages for a block
    double link = 0;         // the time of the link for a block
    double per_server = 1;   // blocks on a server
    double blocks = 1;       // on all of them
    bool processor = false;  // the processor is the slowest stage
    double service() const { return per_server * slowest; }  // D
  };
  Way WayOf(int servers) const;
  double Exchange(const Way& way) const;                  // E
  double Visible(const Way& way, double exchange) const;  // V
  double Factor(int worker) const;
  // Returns the expected time until all of a group but `backup` members have computed, if they begin `apart` seconds
  // after one another.
  double ExpectedWait(const std::vector<double>& factors, int backup, double apart) const;
  Prediction PredictGroups(int workers, const Way& way) const;
  Prediction PredictArrivals(int workers, const Way& way) const;
  Limit LimitOf(const Way& way, int workers, double others, double exchange) const;

  const Load load_;
  const double step_;  // T
  const std::map<uint32_t, double> slow_;
  const NetworkModel network_;
  std::vector<double> computing_;  // times of `load.steps` steps, sorted
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_ADVISE_THROUGHPUT_H_
