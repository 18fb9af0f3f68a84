// The part of the master that handles evaluations: requests, scores, and the weights of the best one.
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "common/checkpoint/model_file.h"
#include "server/master/master.h"

namespace catchment {

absl::StatusOr<v1::GetEvaluationReply> Master::GetEvaluation(const v1::GetEvaluationRequest& request) {
  absl::StatusOr<Member*> member = membership_.RenewEvaluator(request.incarnation(), clock_->Now());
  Advance();
  if (state_machine_.ended()) {
    v1::GetEvaluationReply over;
    over.set_stop(true);
    return over;
  }
  if (!member.ok()) return member.status();
  // An evaluator that asks for the next evaluation has sent the weights of the last one, or has given up.
  if (best_awaited_from_ == request.incarnation()) best_awaited_from_ = 0;
  return evaluations_.Current(
      {ledger_ == nullptr ? 0 : ledger_->done_samples(), state_machine_.trained_seconds(clock_->Now())});
}

absl::StatusOr<v1::ReportEvaluationReply> Master::ReportEvaluation(const v1::EvaluationReport& report) {
  absl::StatusOr<Member*> member = membership_.RenewEvaluator(report.incarnation(), clock_->Now());
  if (!member.ok()) return member.status();
  if (absl::Status status =
          CheckStatistics(tensors_, job_.model().has_external(),
                          absl::MakeConstSpan(report.statistics().data(), report.statistics_size()));
      !status.ok()) {
    return status;
  }
  if (evaluations_.Report(report)) {
    FollowPlateau();
    RecordScore();
  }
  v1::ReportEvaluationReply reply;
  // A repeated report gets the same answer.
  reply.set_keep(best_wanted_ > 0 && report.evaluation() == best_wanted_);
  if (reply.keep()) best_awaited_from_ = report.incarnation();
  Advance();
  return reply;
}

void Master::RecordScore() {
  const v1::EvaluationReport& report = evaluations_.last();
  const double samples = static_cast<double>(report.samples());
  v1::BestState score;
  score.set_evaluation(report.evaluation());
  score.set_loss(report.loss_sum() / samples);
  score.set_accuracy(static_cast<double>(report.correct()) / samples);
  score.set_samples(evaluations_.last_moment().samples);
  // The file may have the weights of a run that was lost, which are better than all of this run.
  const bool best = early_stopping_.Observe(score) && early_stopping_.IsBetter(score, kept_);
  if (best && job_.evaluation().keep_best()) best_wanted_ = score.evaluation();
  EndIfEnough();
}

void Master::EndIfEnough() {
  if (!early_stopping_.enough().empty()) state_machine_.EndEarly(early_stopping_.enough());
}

absl::StatusOr<v1::BestState> Master::BestWanted(uint64_t incarnation, uint64_t evaluation) {
  absl::StatusOr<Member*> member = membership_.RenewEvaluator(incarnation, clock_->Now());
  if (!member.ok()) return member.status();
  if (best_wanted_ > 0 && evaluation == best_wanted_) return early_stopping_.state();
  const std::string wanted = best_wanted_ > 0 ? absl::StrCat("those of evaluation ", best_wanted_) : "none";
  const std::string refusal =
      absl::StrCat("the weights of evaluation ", evaluation, " are refused: expected ", wanted);
  AddOfMember(absl::StrCat((*member)->name(), ": ", refusal));
  return absl::FailedPreconditionError(refusal);
}

void Master::OnBestKept(uint64_t evaluation, const absl::Status& status) {
  if (!status.ok()) {
    AddOfMember(absl::StrCat("the weights of evaluation ", evaluation, " were not saved: ", status.message(),
                             "; those of the previous best evaluation, if any, are kept"));
  }
  if (evaluation == best_wanted_) {
    best_awaited_from_ = 0;
    if (status.ok()) {
      best_wanted_ = 0;
      kept_ = early_stopping_.state();
    }
  }
  Advance();
}

void Master::FollowPlateau() {
  const v1::EvaluationReport& report = evaluations_.last();
  if (!plateau_ || !plateau_->Observe(report.loss_sum() / static_cast<double>(report.samples()))) return;
  events_.Add(absl::StrCat("the test loss has not fallen below ", plateau_->state().best(), " for ",
                           job_.optimizer().schedule().patience() + 1,
                           " evaluations: the learning rate is now multiplied by ", plateau_->factor()));
}

}  // namespace catchment
