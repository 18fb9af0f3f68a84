#include "server/control/job_evaluation.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/model_file.h"
#include "common/job/data_sources.h"
#include "server/control/stated_facts.h"

namespace catchment {
namespace {

// Returns the number of test samples that the job's file states; 0: an evaluator counts them.
uint64_t StatedTestSamples(const v1::Job& job) {
  if (job.data().source_case() == v1::Data::SOURCE_NOT_SET) return 0;
  const DataShape data = ShapeOf(job.data());
  return data.counted ? 0 : static_cast<uint64_t>(data.test_samples);
}

}  // namespace

JobEvaluation::JobEvaluation(const v1::Job& job, const std::vector<TensorSpec>& tensors,
                             const v1::MasterState& from, JobMembers* members, EventLog* events,
                             const Clock* clock)
    : job_(job),
      tensors_(tensors),
      members_(members),
      events_(events),
      clock_(clock),
      evaluations_(job.evaluation().every_epochs(), from.next_evaluation()),
      early_stopping_(job.evaluation(), from.best(), from.last_score()) {
  const v1::Schedule& schedule = job.optimizer().schedule();
  if (schedule.decay() == v1::Schedule::PLATEAU) plateau_.emplace(schedule, from.plateau());
}

v1::GetEvaluationReply JobEvaluation::Next(const std::optional<Evaluations::Moment>& now, Member* evaluator) {
  ++evaluator->evaluation_calls;
  evaluator->evaluates_since.reset();
  // An evaluator that asks for the next evaluation has sent the weights of the last one, or has given up.
  if (best_awaited_from_ == evaluator->incarnation) best_awaited_from_ = 0;
  if (!now) return v1::GetEvaluationReply();
  v1::GetEvaluationReply reply = evaluations_.Current(*now);
  if (reply.evaluation() > 0) evaluator->evaluates_since = clock_->Now();
  return reply;
}

absl::StatusOr<v1::ReportEvaluationReply> JobEvaluation::Report(const v1::EvaluationReport& report,
                                                                Member* evaluator) {
  RETURN_IF_ERROR(CheckStatistics(tensors_, job_.model().has_external(),
                                  absl::MakeConstSpan(report.statistics().data(), report.statistics_size())));
  if (absl::Status status = CheckScore(report, *evaluator); !status.ok()) {
    events_->AddOfMember(status.message(), clock_->Now());
    return status;
  }
  ++evaluator->evaluation_calls;
  if (const std::optional<double> since = std::exchange(evaluator->evaluates_since, std::nullopt))
    longest_evaluation_ = std::max(longest_evaluation_, clock_->Now() - *since);
  if (evaluations_.Report(report)) {
    FollowPlateau();
    RecordScore();
  }
  v1::ReportEvaluationReply reply;
  // A repeated report gets the same answer.
  reply.set_keep(best_wanted_.evaluation() > 0 && report.evaluation() == best_wanted_.evaluation());
  if (reply.keep()) best_awaited_from_ = report.incarnation();
  return reply;
}

std::optional<double> JobEvaluation::plateau_factor() const {
  return plateau_ ? std::optional(plateau_->factor()) : std::nullopt;
}

absl::Status JobEvaluation::CheckScore(const v1::EvaluationReport& report, const Member& evaluator) const {
  StatedFacts facts(evaluator.name());
  facts.Set(v1::Owner::SCORED_SAMPLES, report.samples());
  // An attached program may score as many as it likes, with any loss.
  const bool scores_all = !job_.model().has_external() && report.samples() > 0;
  const uint64_t stated = StatedTestSamples(job_);
  const uint64_t known = stated > 0 ? stated : evaluations_.last().samples();
  if (scores_all && known > 0) facts.Set(v1::Owner::TEST_SAMPLES, known);
  RETURN_IF_ERROR(facts.Check(report));
  if (!scores_all || !(report.loss_sum() < 0)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(evaluator.name(), " reports EvaluationReport.loss_sum ",
                                                 report.loss_sum(),
                                                 ", and the losses of this model are not negative"));
}

ProgressWatch::Work JobEvaluation::WorkOf(const Member& evaluator) const {
  ProgressWatch::Work work;
  // The calls with the weights of the best evaluation have a limit of their own.
  work.to_do = evaluator.incarnation != best_awaited_from_;
  work.trains = false;
  work.reported = evaluator.evaluation_calls + evaluator.progress.steps();
  work.mean_step_seconds = longest_evaluation_;
  work.process = evaluator.process();
  return work;
}

void JobEvaluation::RecordScore() {
  const v1::EvaluationReport& report = evaluations_.last();
  const double samples = static_cast<double>(report.samples());
  v1::BestState score;
  score.set_evaluation(report.evaluation());
  score.set_loss(report.loss_sum() / samples);
  score.set_accuracy(static_cast<double>(report.correct()) / samples);
  score.set_samples(evaluations_.last_moment().samples);
  early_stopping_.Observe(score);
  if (job_.evaluation().keep_best() && IsWanted(score)) best_wanted_ = score;
}

bool JobEvaluation::IsWanted(const v1::BestState& score) const {
  // The file may have the weights of a run that was lost, which are better than all of this run. If those of
  // the best evaluation could not be saved, any that are better than the file's are wanted.
  const bool best_is_kept = !early_stopping_.IsBetter(early_stopping_.state(), kept_);
  const bool better_are_awaited = best_awaited_from_ != 0 && !early_stopping_.IsBetter(score, best_wanted_);
  return !best_is_kept && !better_are_awaited && early_stopping_.IsBetter(score, kept_);
}

absl::StatusOr<v1::BestState> JobEvaluation::BestWanted(uint64_t incarnation, uint64_t evaluation) {
  ASSIGN_OR_RETURN(const Member* const evaluator, members_->RenewEvaluator(incarnation));
  const uint64_t expected = best_wanted_.evaluation();
  if (expected > 0 && evaluation == expected) return best_wanted_;
  const std::string wanted = expected > 0 ? absl::StrCat("those of evaluation ", expected) : "none";
  const std::string refusal =
      absl::StrCat("the weights of evaluation ", evaluation, " are refused: expected ", wanted);
  events_->AddOfMember(absl::StrCat(evaluator->name(), ": ", refusal), clock_->Now());
  return absl::FailedPreconditionError(refusal);
}

void JobEvaluation::OnBestKept(uint64_t evaluation, const absl::Status& status) {
  if (!status.ok()) {
    events_->AddOfMember(
        absl::StrCat("the weights of evaluation ", evaluation, " were not saved: ", status.message(),
                     "; those of the previous best evaluation, if any, are kept"),
        clock_->Now());
  }
  if (evaluation == best_wanted_.evaluation()) {
    best_awaited_from_ = 0;
    if (status.ok()) kept_ = std::exchange(best_wanted_, {});
  }
}

void JobEvaluation::FollowPlateau() {
  const v1::EvaluationReport& report = evaluations_.last();
  if (!plateau_ || !plateau_->Observe(report.loss_sum() / static_cast<double>(report.samples()))) return;
  events_->Add(absl::StrCat("the test loss has not fallen below ", plateau_->state().best(), " for ",
                            job_.optimizer().schedule().patience() + 1,
                            " evaluations: the learning rate is now multiplied by ", plateau_->factor()));
}

void JobEvaluation::Fill(v1::JobStatus* status) const {
  if (plateau_) status->set_plateau_factor(plateau_->factor());
  const v1::BestState& best = early_stopping_.state();
  status->set_best_evaluation(best.evaluation());
  status->set_best_test_loss(best.loss());
  status->set_best_test_accuracy(best.accuracy());
  status->set_best_at_samples(best.samples());
  status->set_evaluations_since_best(best.since());
  const v1::EvaluationReport& last = evaluations_.last();
  if (last.samples() == 0) return;
  const double samples = static_cast<double>(last.samples());
  status->set_test_samples(last.samples());
  status->set_test_loss(last.loss_sum() / samples);
  status->set_test_accuracy(static_cast<double>(last.correct()) / samples);
  status->set_tested_at_samples(evaluations_.last_moment().samples);
  status->set_tested_at_seconds(evaluations_.last_moment().seconds);
}

void JobEvaluation::Fill(v1::MasterState* state) const {
  state->set_next_evaluation(evaluations_.next());
  if (plateau_) *state->mutable_plateau() = plateau_->state();
  *state->mutable_best() = early_stopping_.state();
  *state->mutable_last_score() = early_stopping_.last_score();
}

void JobEvaluation::Save(v1::MasterImage* image) const {
  *image->mutable_evaluations() = evaluations_.Save();
  if (plateau_) *image->mutable_plateau() = plateau_->state();
  *image->mutable_best() = early_stopping_.state();
  *image->mutable_last_score() = early_stopping_.last_score();
  image->set_enough(early_stopping_.enough());
  image->set_best_wanted(best_wanted_.evaluation());
  image->set_best_awaited_from(best_awaited_from_);
}

void JobEvaluation::Restore(const v1::MasterImage& image) {
  evaluations_.Restore(image.evaluations());
  if (plateau_) plateau_->Restore(image.plateau());
  early_stopping_.Restore(image.best(), image.last_score(), image.enough());
  // The weights that are wanted are those of the best evaluation, or of the last one.
  const bool last = image.best_wanted() == image.last_score().evaluation();
  if (image.best_wanted() > 0) best_wanted_ = last ? image.last_score() : image.best();
  best_wanted_.set_evaluation(image.best_wanted());
  best_awaited_from_ = image.best_awaited_from();
}

}  // namespace catchment
