// Simulates a job's candidates (simulation/simulation.h): every preset with its own settings, and the job's
// own algorithm. The best few are simulated again with other seeds.
//
// Each trial trains the job's model on its data for at most kMaxOperations. If that allows fewer than
// kMinSteps of each worker, or if this machine lacks the data or the memory, a quadratic function is
// trained instead.
//
// Units: seconds; accuracies are shares. Threads: one; RunTrials uses as many more as there are processors.
#ifndef CATCHMENT_CLI_ADVISE_TRIALS_H_
#define CATCHMENT_CLI_ADVISE_TRIALS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/advise/evidence.h"
#include "cli/report/run_result.h"
#include "proto/job.pb.h"

namespace catchment {

// Candidates that end further than this below the best trial are not recommended.
inline constexpr double kMargin = 0.01;
// Floating-point operations of one trial.
inline constexpr double kMaxOperations = 3e11;
inline constexpr int64_t kMinSteps = 20;
// Limits on the steps of a trial of the quadratic: of each worker, and of all workers together.
inline constexpr int64_t kMaxSteps = 200;
inline constexpr int64_t kMaxQuadraticSteps = 20000;
// Each of the best is tried with so many seeds.
inline constexpr int kSeeds = 3;
inline constexpr size_t kRepeated = 3;

struct Candidate {
  enum Settings { kPreset, kJob, kBounded };
  std::string preset;
  Settings settings = kPreset;
  v1::Job job;  // complete and valid
  float learning_rate = 0;
  std::optional<float> momentum;
};
// Returns "preset", "job" or "bounded".
const char* ToString(Candidate::Settings settings);

struct Trial {
  Candidate candidate;
  std::vector<RunResult> runs;  // by seed, from the job's on; at least one

  bool diverged() const;    // any of them
  double accuracy() const;  // the mean at the end; 0 if a run diverged
  double lowest() const;    // of the runs
  double waiting() const;   // the share of the workers' time that exchanges and other workers take
  // Returns the mean time to this accuracy; a run that did not reach it counts with its whole time. Returns
  // nothing if the mean accuracy at the end is below the target.
  std::optional<double> SecondsTo(double target) const;
};

struct LeftOutPreset {
  std::string preset;
  std::string reason;
};

struct Trials {
  bool quadratic = false;
  std::string model;    // what was trained, in words
  int64_t samples = 0;  // of each run, by all workers
  double target = 0;    // the accuracy to which they are timed: kMargin below the best mean
  // Sorted: first the candidates that may be recommended, by their time to `target`; then the others by their
  // accuracy.
  std::vector<Trial> trials;
  size_t recommended = 0;  // how many of them
  std::vector<LeftOutPreset> left_out;
  // The first was the soonest with every seed.
  bool sure = false;

  // Returns null if it was not tried.
  const Trial* Find(const std::string& preset) const;
};

// The presets that the job's workers support, and the job's settings if they are others: as they are, and
// with the learning rate that is known to train at the expected staleness if that is lower.
std::vector<Candidate> Candidates(const Evidence& evidence, std::vector<LeftOutPreset>* left_out);

// `evidence` has a step. `report` gets a line for each simulation, one at a time, on any thread. Errors:
// InvalidArgument if no preset supports the job; those of Simulate.
absl::StatusOr<Trials> RunTrials(const Evidence& evidence,
                                 const std::function<void(const std::string&)>& report);

// Sorts the trials, and decides which are recommended.
void Judge(Trials* trials);

// Returns the share of their time in which the workers of `job` compute, by the simulation of a few steps of
// a small model with messages as long as those of the job's.
absl::StatusOr<double> ComputingShare(const Evidence& evidence, int servers);

}  // namespace catchment

#endif  // CATCHMENT_CLI_ADVISE_TRIALS_H_
