#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/job_explanation.h"
#include "common/job/data_sources.h"
#include "common/text.h"

namespace catchment {
namespace {

std::string When(double every_epochs) {
  if (every_epochs == 1) return "After every epoch";
  return absl::StrCat("Every ", Short(every_epochs, 4), " epochs");
}

std::string Targets(const v1::Evaluation& evaluation) {
  std::vector<std::string> targets;
  if (evaluation.has_target_accuracy()) {
    targets.push_back(
        absl::StrCat("the test accuracy is at least ", Short(100 * evaluation.target_accuracy(), 5), " %"));
  }
  if (evaluation.has_target_loss()) {
    targets.push_back(absl::StrCat("the test loss is at most ", Short(evaluation.target_loss())));
  }
  return absl::StrJoin(targets, " and ");
}

std::string Patience(const v1::Evaluation& evaluation) {
  if (evaluation.patience() == 0) return "";
  const bool by_accuracy = evaluation.best_by() == v1::Evaluation::ACCURACY;
  const std::string margin = evaluation.min_improvement() > 0
                                 ? absl::StrCat(" by more than ", Short(evaluation.min_improvement()))
                                 : "";
  return absl::StrCat("the test ", by_accuracy ? "accuracy has not risen" : "loss has not fallen", margin,
                      " for ", Plural(evaluation.patience(), "evaluation"), " in a row");
}

}  // namespace

std::string DescribeEvaluation(const v1::Job& job) {
  if (const std::string reason = WhyNoTestSamples(job.data()); !reason.empty()) {
    return absl::StrCat("None: ", reason, ".");
  }
  const v1::Evaluation& evaluation = job.evaluation();
  std::string text =
      absl::StrCat(When(evaluation.every_epochs()), ", and at the end, the evaluator scores the test set.");
  std::vector<std::string> ends;
  for (const std::string& end : {Targets(evaluation), Patience(evaluation)}) {
    if (!end.empty()) ends.push_back(end);
  }
  if (!ends.empty()) {
    absl::StrAppend(&text, " Training ends early, and the job is done, when ",
                    absl::StrJoin(ends, ", or when "), ".");
  }
  if (evaluation.keep_best()) {
    absl::StrAppend(
        &text, " The weights with the ",
        evaluation.best_by() == v1::Evaluation::ACCURACY ? "highest test accuracy" : "lowest test loss",
        " are kept in model-best.safetensors.");
  }
  return text;
}

}  // namespace catchment
