// The rules by which Advise (advice.h) derives warnings from the status of a job, with their bounds.
//
// Threads: pure functions of the status. Units: seconds; shares are fractions.
#ifndef CATCHMENT_CLI_LIVE_ADVICE_RULES_H_
#define CATCHMENT_CLI_LIVE_ADVICE_RULES_H_

#include <string>
#include <vector>

#include "cli/live/advice.h"
#include "common/base/text.h"
#include "common/measures/work_rates.h"
#include "proto/job.pb.h"
#include "proto/master.pb.h"

namespace catchment {

// A worker is judged only after this time and this number of steps. Its first steps, with cold caches and
// the choice of kernels, then weigh little, and an interruption of one second is a tenth of the time.
inline constexpr double kWarmUpSeconds = 10;
inline constexpr double kWarmUpSteps = 50;
// The number of pushes before their staleness or outcomes are judged: the standard error of a share is below
// 0.04.
inline constexpr double kEnoughPushes = 200;

// A worker of a synchronous job that takes twice the time of the others costs as much as the loss of half of
// them.
inline constexpr double kStragglerTimes = 2;
// The expected mean is an upper bound (see ExpectedStaleness). An excess of one half, and of one version for
// jobs with few workers, is not explained by fluctuations.
inline constexpr double kStalenessTimes = 1.5;
inline constexpr double kStalenessMore = 1;
// A share of the workers' time. Computing during it would be worth half as many additional workers.
inline constexpr double kServersShare = 1.0 / 3;
// A share of the workers' time. Minibatches are read ahead, so any wait means that reading is slower than
// computing; below this bound it costs little.
inline constexpr double kDataShare = 0.2;
// A share of the lease. Heartbeats are sent at least every quarter of it: at half, two are missing.
inline constexpr double kHeartbeatShare = 0.5;
// Shards report ten times a second, and at least every 5 s; an older report indicates a problem.
inline constexpr double kShardBehindSeconds = 10;
// Relative to an even share: a contribution is in flight until the largest shard has received it.
inline constexpr double kShardTimes = 1.5;
// The transfer of a smaller shard takes less than a millisecond on any network, so its size does not matter.
inline constexpr double kLargeShardParameters = 1 << 20;
// Without backup workers only contributions that are in flight when a worker is declared lost should be late.
inline constexpr double kLateShare = 0.01;
// With backup workers some contributions are late by design. If most of one worker's are, its work is wasted.
inline constexpr double kLateShareOfOne = 0.5;
// With a staleness limit, more than this share says that it is below the usual staleness.
inline constexpr double kLateShareWithLimit = 0.25;
// The same with a quorum, whose calls bring nearly all contributions in time.
inline constexpr double kLateShareWithQuorum = 0.1;
// An evaluator reads its data before it joins.
inline constexpr double kEvaluatorSeconds = 30;
// A multiple of checkpoint.every_updates or every_seconds, and a lower bound in seconds for jobs that save
// very often.
inline constexpr double kCheckpointTimes = 2;
inline constexpr double kCheckpointSeconds = 60;
// Scores of a test set of 1000 samples vary by about 2 % by chance.
inline constexpr double kTestLossTimes = 1.05;
inline constexpr uint64_t kEvaluationsSinceBest = 3;

// Returns "33 %" or "0.5 %".
inline std::string Share(double share) { return Short(100 * share, 2) + " %"; }
inline std::string Times(double times) { return Short(times, 3); }

inline const v1::Consistency& ConsistencyOf(const v1::JobStatus& status) {
  return status.settings().algorithm().consistency();
}

// Returns true if every update waits for all workers of a group.
bool AllWait(const v1::JobStatus& status);

// Returns the field with the number of steps between two messages of a worker; empty if there is none.
std::string PeriodField(const v1::JobStatus& status);

// A worker of `status` with its work.
struct WarmedUpWorker {
  const v1::WorkerStatus* worker;
  Work work;
};

// Returns the workers that have trained long enough to be judged.
std::vector<WarmedUpWorker> WarmedUpWorkers(const v1::JobStatus& status);

// Each appends the warnings of its kind.
// worker_advice.cc:
void FindStragglers(const v1::JobStatus& status, std::vector<Warning>* warnings);
void FindWaits(const v1::JobStatus& status, std::vector<Warning>* warnings);
void FindSilentWorkers(const v1::JobStatus& status, std::vector<Warning>* warnings);
void FindNoProgress(const v1::JobStatus& status, std::vector<Warning>* warnings);
void FindMissingWorkers(const v1::JobStatus& status, std::vector<Warning>* warnings);
// contribution_advice.cc:
void FindStaleness(const v1::JobStatus& status, std::vector<Warning>* warnings);
void FindNonFinite(const v1::JobStatus& status, std::vector<Warning>* warnings);
void FindLate(const v1::JobStatus& status, std::vector<Warning>* warnings);
// server_advice.cc:
void FindShardsBehind(const v1::JobStatus& status, std::vector<Warning>* warnings);
void FindLargeShards(const v1::JobStatus& status, std::vector<Warning>* warnings);
void FindCheckpoints(const v1::JobStatus& status, std::vector<Warning>* warnings);

}  // namespace catchment

#endif  // CATCHMENT_CLI_LIVE_ADVICE_RULES_H_
