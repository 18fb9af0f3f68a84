#include "server/master/early_stopping.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace catchment {
namespace {

std::string After(const v1::BestState& score) { return absl::StrCat(" after ", score.samples(), " samples"); }

}  // namespace

EarlyStopping::EarlyStopping(const v1::Evaluation& evaluation, const v1::BestState& from)
    : evaluation_(evaluation), state_(from) {}

bool EarlyStopping::Observe(const v1::BestState& score) {
  const bool better = IsBetter(score, state_, evaluation_.min_improvement());
  const uint64_t since = better ? 0 : state_.since() + 1;
  if (better) state_ = score;
  state_.set_since(since);
  enough_ = TargetsReached(score);
  if (enough_.empty()) enough_ = PatienceEnded(score);
  return better;
}

double EarlyStopping::Measure(const v1::BestState& score) const {
  return evaluation_.best_by() == v1::Evaluation::ACCURACY ? 1 - score.accuracy() : score.loss();
}

bool EarlyStopping::IsBetter(const v1::BestState& score, const v1::BestState& than, float margin) const {
  if (!std::isfinite(score.loss())) return false;
  return than.evaluation() == 0 || Measure(score) < Measure(than) - double{margin};
}

std::string EarlyStopping::TargetsReached(const v1::BestState& score) const {
  if (!std::isfinite(score.loss())) return "";
  std::string reached;
  if (evaluation_.has_target_accuracy()) {
    if (static_cast<float>(score.accuracy()) < evaluation_.target_accuracy()) return "";
    reached = absl::StrCat("test accuracy ", score.accuracy(), " reached evaluation.target_accuracy ",
                           evaluation_.target_accuracy());
  }
  if (evaluation_.has_target_loss()) {
    if (static_cast<float>(score.loss()) > evaluation_.target_loss()) return "";
    absl::StrAppend(&reached, reached.empty() ? "" : ", and ", "test loss ", score.loss(),
                    " reached evaluation.target_loss ", evaluation_.target_loss());
  }
  return reached.empty() ? "" : absl::StrCat(reached, After(score));
}

std::string EarlyStopping::PatienceEnded(const v1::BestState& score) const {
  if (evaluation_.patience() == 0 || state_.since() < evaluation_.patience()) return "";
  const std::string end = absl::StrCat(" in ", state_.since(), " evaluations (evaluation.patience ",
                                       evaluation_.patience(), "),", After(score));
  if (state_.evaluation() == 0) return absl::StrCat("test loss has not been a finite number", end);
  const bool by_accuracy = evaluation_.best_by() == v1::Evaluation::ACCURACY;
  const float margin = evaluation_.min_improvement();
  return absl::StrCat("test ", by_accuracy ? "accuracy" : "loss", " has not become better than ",
                      by_accuracy ? state_.accuracy() : state_.loss(), ", of evaluation ",
                      state_.evaluation(), ",", margin > 0 ? absl::StrCat(" by more than ", margin) : "",
                      end);
}

}  // namespace catchment
