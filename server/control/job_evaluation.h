// The evaluations of a job: which one is due, what their scores decide (early stopping, the learning rate's
// factor in schedule PLATEAU), and of which evaluation the weights are kept.
//
// Threads: not thread-safe. Errors: InvalidArgument for scores that no correct evaluator reports.
#ifndef CATCHMENT_SERVER_CONTROL_JOB_EVALUATION_H_
#define CATCHMENT_SERVER_CONTROL_JOB_EVALUATION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/job/parameter_layout.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/master.pb.h"
#include "proto/master_image.pb.h"
#include "server/control/early_stopping.h"
#include "server/control/evaluations.h"
#include "server/control/event_log.h"
#include "server/control/job_members.h"
#include "server/control/membership.h"
#include "server/control/plateau.h"
#include "server/control/progress_watch.h"

namespace catchment {

class JobEvaluation {
 public:
  // All references and pointers must outlive this object. `from`: of a resumed job, otherwise empty.
  JobEvaluation(const v1::Job& job, const std::vector<TensorSpec>& tensors, const v1::MasterState& from,
                JobMembers* members, EventLog* events, const Clock* clock);

  // Notes that `epochs` epochs have been trained.
  void Observe(double epochs) { evaluations_.Observe(epochs); }
  // Makes the final evaluation due, because the weights are final.
  void DemandFinal() { evaluations_.DemandFinal(); }

  // Returns the evaluation that the evaluator, which asks for one, works on from now on, if any. It will read
  // the weights at `now`; nothing: no evaluation may begin.
  v1::GetEvaluationReply Next(const std::optional<Evaluations::Moment>& now, Member* evaluator);
  absl::StatusOr<v1::ReportEvaluationReply> Report(const v1::EvaluationReport& report, Member* evaluator);
  // Returns, for people, why training may end after the last evaluation; empty if it continues.
  const std::string& enough() const { return early_stopping_.enough(); }
  // Returns the number of the newest evaluation with a score; 0: there is none.
  uint64_t newest() const { return evaluations_.last().evaluation(); }
  bool final_done() const { return evaluations_.final_done(); }
  // Returns the factor of the learning rate; nothing without schedule PLATEAU.
  std::optional<double> plateau_factor() const;

  // Returns the score of an evaluation whose weights the evaluator `incarnation` wants to send. NotFound if
  // it is not a member; FailedPrecondition if the weights are not, or no longer, wanted.
  absl::StatusOr<v1::BestState> BestWanted(uint64_t incarnation, uint64_t evaluation);
  // Sets the score of the weights in the file of the best ones, which an earlier run of the job has written.
  // It has no effect on when training ends: that continues from the checkpoint's history.
  void SetKept(const v1::BestState& score) { kept_ = score; }
  // Notes whether the weights of the best evaluation were saved.
  void OnBestKept(uint64_t evaluation, const absl::Status& status);
  // Returns the incarnation of the evaluator that was asked for the best weights; 0: none.
  uint64_t best_awaited_from() const { return best_awaited_from_; }

  // An evaluator has work to do: it asks for evaluations and scores them.
  ProgressWatch::Work WorkOf(const Member& evaluator) const;

  void Fill(v1::JobStatus* status) const;
  void Fill(v1::MasterState* state) const;
  void Save(v1::MasterImage* image) const;
  void Restore(const v1::MasterImage& image);

 private:
  // Returns InvalidArgument for a score that no test set of the job can have.
  absl::Status CheckScore(const v1::EvaluationReport& report, const Member& evaluator) const;
  void FollowPlateau();
  void RecordScore();
  bool IsWanted(const v1::BestState& score) const;

  const v1::Job& job_;
  const std::vector<TensorSpec>& tensors_;
  JobMembers* const members_;
  EventLog* const events_;
  const Clock* const clock_;

  Evaluations evaluations_;
  double longest_evaluation_ = 0;   // seconds
  std::optional<Plateau> plateau_;  // with schedule PLATEAU only
  EarlyStopping early_stopping_;
  v1::BestState kept_;         // the score of the weights in the file; no evaluation: there is none
  v1::BestState best_wanted_;  // the score of the weights that are to replace them; no evaluation: none
  uint64_t best_awaited_from_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_JOB_EVALUATION_H_
