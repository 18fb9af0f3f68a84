// The master's evaluations: what evaluators are asked for, what they find, and whose weights are kept.
#include "absl/strings/str_cat.h"
#include "server/master/master.h"

namespace catchment {

absl::StatusOr<v1::GetEvaluationReply> Master::GetEvaluation(const v1::GetEvaluationRequest& request) {
  absl::StatusOr<Member*> member = membership_.HearEvaluator(request.incarnation(), clock_->Now());
  Advance();
  if (course_.ended()) {
    v1::GetEvaluationReply over;
    over.set_stop(true);
    return over;
  }
  if (!member.ok()) return member.status();
  // Who asks for the next has sent the last one's weights, or has given up.
  if (best_awaited_from_ == request.incarnation()) best_awaited_from_ = 0;
  return evaluations_.Current(
      {ledger_ == nullptr ? 0 : ledger_->done_samples(), course_.trained_seconds(clock_->Now())});
}

absl::StatusOr<v1::ReportEvaluationReply> Master::ReportEvaluation(const v1::EvaluationReport& report) {
  absl::StatusOr<Member*> member = membership_.HearEvaluator(report.incarnation(), clock_->Now());
  if (!member.ok()) return member.status();
  if (evaluations_.Report(report)) {
    FollowPlateau();
    WeighScore();
  }
  v1::ReportEvaluationReply reply;
  // The same when the report is repeated.
  reply.set_keep(best_wanted_ > 0 && report.evaluation() == best_wanted_);
  if (reply.keep()) best_awaited_from_ = report.incarnation();
  Advance();
  return reply;
}

void Master::WeighScore() {
  const v1::EvaluationReport& report = evaluations_.last();
  const double samples = static_cast<double>(report.samples());
  v1::BestState score;
  score.set_evaluation(report.evaluation());
  score.set_loss(report.loss_sum() / samples);
  score.set_accuracy(static_cast<double>(report.correct()) / samples);
  score.set_samples(evaluations_.last_moment().samples);
  if (early_stopping_.Observe(score) && job_.evaluation().keep_best()) best_wanted_ = score.evaluation();
  if (!early_stopping_.enough().empty()) course_.EndEarly(early_stopping_.enough());
}

absl::StatusOr<v1::BestState> Master::BestWanted(uint64_t incarnation, uint64_t evaluation) {
  absl::StatusOr<Member*> member = membership_.HearEvaluator(incarnation, clock_->Now());
  if (!member.ok()) return member.status();
  if (best_wanted_ > 0 && evaluation == best_wanted_) return early_stopping_.state();
  const std::string wanted = best_wanted_ > 0 ? absl::StrCat("those of evaluation ", best_wanted_) : "none";
  const std::string refusal =
      absl::StrCat("the weights of evaluation ", evaluation, " are refused: wanted are ", wanted);
  events_.Add(absl::StrCat((*member)->name(), ": ", refusal));
  return absl::FailedPreconditionError(refusal);
}

void Master::OnBestKept(uint64_t evaluation, const absl::Status& status) {
  if (!status.ok()) {
    events_.Add(absl::StrCat("the weights of evaluation ", evaluation, " are not kept: ", status.message(),
                             "; those of the best one before, if any, stay"));
  }
  if (evaluation == best_wanted_) {
    best_awaited_from_ = 0;
    if (status.ok()) best_wanted_ = 0;
  }
  Advance();
}

void Master::FollowPlateau() {
  const v1::EvaluationReport& report = evaluations_.last();
  if (!plateau_ || !plateau_->Observe(report.loss_sum() / static_cast<double>(report.samples()))) return;
  events_.Add(absl::StrCat("the test loss has not fallen from ", plateau_->state().best(), " for ",
                           job_.optimizer().schedule().patience() + 1, " evaluations: the learning rate is ",
                           plateau_->factor(), " of the job's from now on"));
}

}  // namespace catchment
