// An evaluator's whole life: whenever the master asks for it, score the test set with a copy of the weights.
#ifndef CATCHMENT_WORKER_EVALUATING_H_
#define CATCHMENT_WORKER_EVALUATING_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/clock.h"
#include "common/growing_pause.h"
#include "worker/session.h"
#include "worker/stop_flag.h"

namespace catchment {

// Threads: Run on one; Stop from any.
class Evaluating {
 public:
  // `clock` outlives it.
  Evaluating(WorkerOptions options, const Clock* clock);

  // Runs until the job is over or Stop is called (ok), or until an error that trying again cannot fix.
  absl::Status Run();
  void Stop() { stop_.Set(); }

 private:
  absl::Status RunMembership(Session* session);
  // Lets a program that scores the weights begin.
  absl::Status Join(Session* session);
  absl::Status Answer(Session* session, uint64_t incarnation, bool* over);
  // Returns why the job failed; empty where it has not.
  std::string Leave(uint64_t incarnation, const absl::Status& why);
  // Ok while a server that is not to be reached may still come back.
  absl::Status TolerateOutage(const absl::Status& status, double patience_seconds);
  // Ends early, with a part of the score, when the evaluator is told to stop.
  Score ScoreTestSet(Session* session, absl::Span<const float> weights);
  // Of the servers' weights now, which *weights has then; empty where there is nothing to score them with.
  absl::StatusOr<v1::EvaluationReport> Evaluate(Session* session, std::vector<float>* weights);

  const WorkerOptions options_;
  const Clock& clock_;
  StopFlag stop_;
  MasterClient master_;
  GrowingPause pauses_;  // between registrations
  std::optional<double> unreachable_since_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_EVALUATING_H_
