// Facts that follow from the algorithm of a job: its steps, contributions and updates.
#ifndef CATCHMENT_COMMON_JOB_ALGORITHM_FACTS_H_
#define CATCHMENT_COMMON_JOB_ALGORITHM_FACTS_H_

#include <cstdint>
#include <optional>

#include "absl/status/status.h"
#include "proto/job.pb.h"

namespace catchment {

// The largest number of workers of a job. Their indexes are below it.
inline constexpr uint32_t kMaxWorkers = 10000;

// Returns true if every update is made of a contribution of every worker, so that steps can be planned and a
// run can be repeated. Defaults need not be filled in.
inline bool IsSynchronous(const v1::Consistency& consistency) {
  return consistency.has_synchronous() && consistency.synchronous().backup_workers() == 0;
}

// Returns the number of groups whose members wait for each other: 1 for all workers together, 0 if updates
// are made of contributions in order of arrival.
uint32_t NumGroups(const v1::Consistency& consistency);

// Returns the number of members of each group that an update does not wait for.
uint32_t BackupWorkers(const v1::Consistency& consistency);

// Returns true if contributions are answered when they arrive, and wait for others from any workers.
bool IsBuffered(const v1::Consistency& consistency);

// Returns the number of contributions that make an update while `workers` train; 1 if they are not buffered.
uint32_t BufferedContributions(const v1::Consistency& consistency, uint32_t workers);

// Returns the mean number of contributions in an update while `workers` train, at least 1. Those of backup
// workers do not count.
double ContributionsPerUpdate(const v1::Consistency& consistency, uint32_t workers);

// Returns the number of pushes that a worker may be ahead of the slowest one; nothing if that is any number.
std::optional<uint32_t> StalenessBound(const v1::Consistency& consistency);

// Returns true if servers add up the contributions to a group's update as they arrive, so that they keep one
// vector for all of them; with Job.deterministic in the order of the workers. Otherwise each contribution is
// kept until the update: elastic averaging answers each one, compensation for staleness changes each one, and
// a deterministic job whose minibatches may differ in size must know the samples of all before it adds one.
bool AddsUpContributions(const v1::Job& job);

// Returns true if gradients are corrected by the move of the center since their workers were sent their
// weights. Servers then keep what each worker was sent.
bool CorrectsGradients(const v1::Compensation& compensation);

// Returns the number of steps of one worker from one of its contributions to the next, at least 1 in a job
// whose defaults are filled in. In synchronous mode this number of steps makes a version.
uint32_t PushPeriod(const v1::Contribution& contribution);

// Returns true if workers make steps between a push and the use of its answer
// (PseudoGradient.overlap_steps).
bool Overlaps(const v1::Job& job);

struct Pace {
  // True: all workers take every step together, as planned. False: each worker takes minibatches at its own
  // pace.
  bool synchronous = false;
  uint64_t batch_size = 0;  // of one worker
  uint64_t workers = 0;     // Job.workers
  // Steps of one worker from one of its contributions to the next (PushPeriod).
  uint64_t steps_per_version = 1;
  // `contributions` contributions of single workers, those that come too late for their update included, make
  // `updates` updates of the center. Synchronous mode: one contribution of each worker makes one update.
  uint64_t contributions = 1;
  uint64_t updates = 1;
  // A contribution is made at the start of a period, from the steps before it: the center at version v
  // contains the steps of v - 1 periods.
  bool contributes_first = false;
  // The last steps of a period that not all fragments of the center contain, because they were sent before
  // them (PseudoGradient.fragments). Synchronous mode.
  uint64_t unsent_steps = 0;
  // The samples of an epoch that do not fill a step are joined to the step before it (Job.last_minibatch
  // MERGE).
  bool merges_last = false;
};

// Returns the pace of a job whose defaults are filled in.
Pace PaceOf(const v1::Job& job);

// Returns the samples that an epoch trains with, of the training set's `train_samples`: all of them, or
// without the last minibatches (Job.last_minibatch). At least 1 if train_samples is.
uint64_t SamplesPerEpoch(const v1::Job& job, uint64_t train_samples);

// Returns the samples of one step of the job: of all workers together in synchronous mode, otherwise of one
// worker.
uint64_t SamplesPerStep(const v1::Job& job);

// Returns the steps of an epoch, of which the last may have fewer or more samples than SamplesPerStep. At
// least 1 if train_samples is.
uint64_t StepsPerEpoch(const v1::Job& job, uint64_t train_samples);

// Returns the most samples that a minibatch of one worker can have: batch_size, or twice that if last ones
// are merged.
uint32_t LargestMinibatch(const v1::Job& job);

// The learning rate's scale by the workers that train (proto/job.proto, Optimizer.WorkerScaling):
//   LINEAR:      workers now / Job.workers, at most 2
//   SQUARE_ROOT: its square root
// Source: Goyal et al. 2017, arXiv:1706.02677: an average over k times as many samples takes k times the
// step.
// `active`: members that have work; what the last ones leave behind counts as of one. `workers`: Job.workers.
double WorkerScale(v1::Optimizer::WorkerScaling scaling, uint32_t active, uint32_t workers);

inline constexpr char kTrainingHasDiverged[] = "training has diverged";

// Jobs of programs that make their local steps themselves, with an optimizer of their own (proto/job.proto,
// ExternalModel.local_steps).

// Returns the optimizer whose step is w -= g.
const v1::Optimizer& IdentityOptimizer();

// Returns ok if a worker's step between two exchanges is w -= g, g being what the program reports. `job`
// is complete and valid. InvalidArgument says what to set.
absl::Status CheckLocalSteps(const v1::Job& job);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_ALGORITHM_FACTS_H_
