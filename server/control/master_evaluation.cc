// The part of the master that handles evaluations: requests, scores, and the weights of the best one.
#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/checkpoint/model_file.h"
#include "common/job/data_sources.h"
#include "server/control/master.h"
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

absl::StatusOr<v1::GetEvaluationReply> Master::GetEvaluation(const v1::GetEvaluationRequest& request) {
  absl::StatusOr<Member*> member = membership_.RenewEvaluator(request.incarnation(), clock_->Now());
  Advance();
  if (state_machine_.ended()) {
    v1::GetEvaluationReply over;
    over.set_stop(true);
    return over;
  }
  RETURN_IF_ERROR(member.status());
  Member& evaluator = **member;
  ++evaluator.evaluation_calls;
  evaluator.evaluates_since.reset();
  // An evaluator that asks for the next evaluation has sent the weights of the last one, or has given up.
  if (best_awaited_from_ == request.incarnation()) best_awaited_from_ = 0;
  // Another evaluation now would score the weights that the final one will score, or nearly so.
  if (state_machine_.awaits_last_checkpoint() && !state_machine_.stop_requested()) {
    return v1::GetEvaluationReply();
  }
  v1::GetEvaluationReply reply = evaluations_.Current(
      {ledger_ == nullptr ? 0 : ledger_->done_samples(), state_machine_.trained_seconds(clock_->Now())});
  if (reply.evaluation() > 0) evaluator.evaluates_since = clock_->Now();
  return reply;
}

absl::StatusOr<v1::ReportEvaluationReply> Master::ReportEvaluation(const v1::EvaluationReport& report) {
  ASSIGN_OR_RETURN(Member* const evaluator, membership_.RenewEvaluator(report.incarnation(), clock_->Now()));
  RETURN_IF_ERROR(CheckStatistics(tensors_, job_.model().has_external(),
                                  absl::MakeConstSpan(report.statistics().data(), report.statistics_size())));
  if (absl::Status status = CheckScore(report, *evaluator); !status.ok()) {
    AddOfMember(status.message());
    return status;
  }
  ++evaluator->evaluation_calls;
  if (const std::optional<double> since = std::exchange(evaluator->evaluates_since, std::nullopt))
    longest_evaluation_ = std::max(longest_evaluation_, clock_->Now() - *since);
  if (evaluations_.Report(report)) {
    FollowPlateau();
    RecordScore(*evaluator);
  }
  v1::ReportEvaluationReply reply;
  // A repeated report gets the same answer.
  reply.set_keep(best_wanted_.evaluation() > 0 && report.evaluation() == best_wanted_.evaluation());
  if (reply.keep()) best_awaited_from_ = report.incarnation();
  Advance();
  return reply;
}

absl::Status Master::CheckScore(const v1::EvaluationReport& report, const Member& evaluator) const {
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

void Master::WatchEvaluators() {
  const double now = clock_->Now();
  std::vector<std::pair<Member, ProgressWatch::Work>> stuck;
  for (const Member* evaluator : membership_.evaluators()) {
    ProgressWatch::Work work;
    // The calls with the weights of the best evaluation have a limit of their own.
    work.to_do = evaluator->incarnation != best_awaited_from_;
    work.reported = evaluator->evaluation_calls + evaluator->progress.steps();
    work.mean_step_seconds = longest_evaluation_;
    work.process = absl::StrCat(evaluator->host, ":", evaluator->pid);
    if (watch_.Observe(evaluator->incarnation, work, now) == ProgressWatch::Verdict::kStuck)
      stuck.emplace_back(*evaluator, work);
  }
  for (const auto& [evaluator, work] : stuck) {
    events_.Add(absl::StrFormat(
        "no_progress: %s has made no progress for %.0f s (faults.stuck_seconds): considered lost%s",
        evaluator.name(), watch_.SecondsWithout(evaluator.incarnation, now),
        evaluator.evaluates_since ? "; its evaluation has no score" : ""));
    watch_.NoteStuck(work.process);
    watch_.Forget(evaluator.incarnation);
    membership_.Remove(evaluator.role, evaluator.index);
  }
}

void Master::RecordScore(const Member& evaluator) {
  const v1::EvaluationReport& report = evaluations_.last();
  const double samples = static_cast<double>(report.samples());
  v1::BestState score;
  score.set_evaluation(report.evaluation());
  score.set_loss(report.loss_sum() / samples);
  score.set_accuracy(static_cast<double>(report.correct()) / samples);
  score.set_samples(evaluations_.last_moment().samples);
  early_stopping_.Observe(score);
  if (job_.evaluation().keep_best() && IsWanted(score)) best_wanted_ = score;
  EndIfEnough(absl::StrCat(", as ", evaluator.name(), " reports"));
}

bool Master::IsWanted(const v1::BestState& score) const {
  // The file may have the weights of a run that was lost, which are better than all of this run. If those of
  // the best evaluation could not be saved, any that are better than the file's are wanted.
  const bool best_is_kept = !early_stopping_.IsBetter(early_stopping_.state(), kept_);
  const bool better_are_awaited = best_awaited_from_ != 0 && !early_stopping_.IsBetter(score, best_wanted_);
  return !best_is_kept && !better_are_awaited && early_stopping_.IsBetter(score, kept_);
}

void Master::EndIfEnough(absl::string_view source) {
  const std::string& enough = early_stopping_.enough();
  if (!enough.empty()) state_machine_.EndEarly(absl::StrCat(enough, source));
}

absl::StatusOr<v1::BestState> Master::BestWanted(uint64_t incarnation, uint64_t evaluation) {
  ASSIGN_OR_RETURN(auto member, membership_.RenewEvaluator(incarnation, clock_->Now()));
  const uint64_t expected = best_wanted_.evaluation();
  if (expected > 0 && evaluation == expected) return best_wanted_;
  const std::string wanted = expected > 0 ? absl::StrCat("those of evaluation ", expected) : "none";
  const std::string refusal =
      absl::StrCat("the weights of evaluation ", evaluation, " are refused: expected ", wanted);
  AddOfMember(absl::StrCat(member->name(), ": ", refusal));
  return absl::FailedPreconditionError(refusal);
}

void Master::OnBestKept(uint64_t evaluation, const absl::Status& status) {
  if (!status.ok()) {
    AddOfMember(absl::StrCat("the weights of evaluation ", evaluation, " were not saved: ", status.message(),
                             "; those of the previous best evaluation, if any, are kept"));
  }
  if (evaluation == best_wanted_.evaluation()) {
    best_awaited_from_ = 0;
    if (status.ok()) kept_ = std::exchange(best_wanted_, {});
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
