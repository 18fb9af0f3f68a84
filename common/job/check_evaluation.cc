#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/checks.h"
#include "common/job/data_sources.h"

namespace catchment {
namespace {

// Returns the fields that end training and are set.
std::vector<std::string> EndingFields(const v1::Evaluation& evaluation) {
  std::vector<std::string> fields;
  if (evaluation.has_target_accuracy()) fields.push_back("evaluation.target_accuracy");
  if (evaluation.has_target_loss()) fields.push_back("evaluation.target_loss");
  if (evaluation.patience() > 0) fields.push_back("evaluation.patience");
  return fields;
}

void CheckRanges(const v1::Evaluation& evaluation, Problems* problems) {
  if (evaluation.has_target_accuracy()) {
    const float target = evaluation.target_accuracy();
    problems->Require(target > 0 && target <= 1, "evaluation.target_accuracy", target,
                      "must be in (0, 1]: 98 % are 0.98");
  }
  if (evaluation.has_target_loss()) problems->Positive("evaluation.target_loss", evaluation.target_loss());
  const float least = evaluation.min_improvement();
  problems->Require(least >= 0 && std::isfinite(least), "evaluation.min_improvement", least,
                    "must be a number, 0 or above");
  problems->Require(v1::Evaluation::Measure_IsValid(evaluation.best_by()), "evaluation.best_by",
                    static_cast<int>(evaluation.best_by()), "must be LOSS or ACCURACY");
}

void CheckTestSamples(const v1::Job& job, Problems* problems) {
  const v1::Evaluation& evaluation = job.evaluation();
  if (const std::string reason = WhyNoTestSamples(job.data()); !reason.empty()) {
    std::vector<std::string> fields = EndingFields(evaluation);
    if (evaluation.keep_best()) fields.push_back("evaluation.keep_best");
    for (const std::string& field : fields) {
      problems->Add(field, Reason::kUnused,
                    absl::StrCat("follows the test set's scores, and ", reason, "; leave it out"));
    }
    return;
  }
  if (HasClasses(job.data())) return;
  if (evaluation.has_target_accuracy()) {
    problems->Add("evaluation.target_accuracy", Reason::kUnused,
                  "is a fraction of the test samples, but these have no classes; set evaluation.target_loss");
  }
  if (evaluation.best_by() == v1::Evaluation::ACCURACY) {
    problems->Add("evaluation.best_by", Reason::kConflict,
                  "is ACCURACY, but test samples have no classes; set it to LOSS");
  }
}

}  // namespace

void CheckEvaluation(const v1::Job& job, Problems* problems) {
  CheckRanges(job.evaluation(), problems);
  CheckTestSamples(job, problems);
  if (!job.deterministic()) return;
  for (const std::string& field : EndingFields(job.evaluation())) {
    problems->Add(field, Reason::kConflict,
                  "ends training by an evaluation, and deterministic is true; evaluations run concurrently "
                  "with training and end at different times in each run; "
                  "leave it out, or set deterministic to false");
  }
}

std::string FollowsEvaluator(const v1::Evaluation& evaluation) {
  const std::vector<std::string> fields = EndingFields(evaluation);
  if (!fields.empty()) return fields.front();
  return evaluation.keep_best() ? "evaluation.keep_best" : "";
}

}  // namespace catchment
