// The life cycle of an evaluator: when the master asks for it, it scores the test set with a copy of the
// weights.
#ifndef CATCHMENT_WORKER_LOOP_EVALUATOR_H_
#define CATCHMENT_WORKER_LOOP_EVALUATOR_H_

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/growing_pause.h"
#include "common/base/patience.h"
#include "common/metrics/families.h"
#include "worker/loop/session.h"
#include "worker/stop_flag.h"

namespace catchment {

// Threads: Run on one; Stop from any.
class Evaluator {
 public:
  // `clock` outlives it.
  Evaluator(WorkerOptions options, const Clock* clock);

  // Runs until the job is over or Stop is called (OK), or until an error that a retry cannot resolve.
  absl::Status Run();
  void Stop() { stop_.Set(); }
  // Appends the number of evaluations. Threads: any.
  void AddMetrics(MetricFamilies* families) const {
    AddCounter("catchment_evaluations_total", "Evaluations that the master received.",
               static_cast<double>(evaluations_), families);
  }
  // Returns why Run returned OK, after it has.
  const std::string& end() const { return end_; }
  // Returns true if the error of Run is that the attached program failed after its last score.
  bool program_failed() const { return program_failed_; }

 private:
  absl::Status RunMembership(Session* session);
  // Lets the program that scores the weights begin, if there is one.
  absl::Status Join(Session* session);
  absl::Status Answer(Session* session, uint64_t incarnation, bool* over);
  // Returns why the job failed; empty if it has not.
  std::string Leave(const v1::RegisterReply& me, const absl::Status& why);
  // Returns OK while a server that cannot be reached may still return.
  absl::Status TolerateOutage(const absl::Status& status, double patience_seconds);
  // Scores the test set. Ends early, with a partial score, when the evaluator is stopped.
  absl::StatusOr<Score> ScoreTestSet(Session* session, absl::Span<const float> weights);
  // Scores the current weights of the servers, and copies them to *weights. The report is empty if there is
  // no test set.
  absl::StatusOr<v1::EvaluationReport> Evaluate(Session* session, std::vector<float>* weights);

  const WorkerOptions options_;
  const Clock& clock_;
  StopFlag stop_;
  MasterClient master_;
  GrowingPause pauses_;  // between registrations
  std::string end_ = "the job is over";
  bool program_failed_ = false;
  std::optional<Patience> patience_;  // with a server that cannot be reached
  std::atomic<uint64_t> evaluations_ = 0;
  std::atomic<uint64_t> minibatches_ = 0;  // scored
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_LOOP_EVALUATOR_H_
