#include "server/control/early_stopping.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace catchment {
namespace {

std::string After(const v1::BestState& score) { return absl::StrCat(" after ", score.samples(), " samples"); }

}  // namespace

EarlyStopping::EarlyStopping(const v1::Evaluation& evaluation, const v1::BestState& from,
                             const v1::BestState& last)
    : evaluation_(evaluation), state_(from), last_(last) {
  if (last_.evaluation() > 0) enough_ = Judge();
}

bool EarlyStopping::Observe(const v1::BestState& score) {
  const bool better = IsBetter(score, state_, evaluation_.min_improvement());
  const uint64_t since = better ? 0 : state_.since() + 1;
  if (better) state_ = score;
  state_.set_since(since);
  last_ = score;
  last_.clear_since();
  enough_ = Judge();
  return better;
}

std::string EarlyStopping::Judge() const {
  const std::string reached = TargetsReached();
  return reached.empty() ? PatienceEnded() : reached;
}

double EarlyStopping::Measure(const v1::BestState& score) const {
  return evaluation_.best_by() == v1::Evaluation::ACCURACY ? 1 - score.accuracy() : score.loss();
}

bool EarlyStopping::IsBetter(const v1::BestState& score, const v1::BestState& than, float margin) const {
  if (!std::isfinite(score.loss())) return false;
  return than.evaluation() == 0 || Measure(score) < Measure(than) - double{margin};
}

std::string EarlyStopping::TargetsReached() const {
  if (!std::isfinite(last_.loss())) return "";
  std::string reached;
  if (evaluation_.has_target_accuracy()) {
    if (static_cast<float>(last_.accuracy()) < evaluation_.target_accuracy()) return "";
    reached = absl::StrCat("test accuracy ", last_.accuracy(), " reached evaluation.target_accuracy ",
                           evaluation_.target_accuracy());
  }
  if (evaluation_.has_target_loss()) {
    if (static_cast<float>(last_.loss()) > evaluation_.target_loss()) return "";
    absl::StrAppend(&reached, reached.empty() ? "" : ", and ", "test loss ", last_.loss(),
                    " reached evaluation.target_loss ", evaluation_.target_loss());
  }
  return reached.empty() ? "" : absl::StrCat(reached, After(last_));
}

std::string EarlyStopping::PatienceEnded() const {
  if (evaluation_.patience() == 0 || state_.since() < evaluation_.patience()) return "";
  const std::string end = absl::StrCat(" in ", state_.since(), " evaluations (evaluation.patience ",
                                       evaluation_.patience(), "),", After(last_));
  if (state_.evaluation() == 0) return absl::StrCat("test loss has not been a finite number", end);
  const bool by_accuracy = evaluation_.best_by() == v1::Evaluation::ACCURACY;
  const float margin = evaluation_.min_improvement();
  return absl::StrCat("test ", by_accuracy ? "accuracy" : "loss", " has not become better than ",
                      by_accuracy ? state_.accuracy() : state_.loss(), ", of evaluation ",
                      state_.evaluation(), ",", margin > 0 ? absl::StrCat(" by more than ", margin) : "",
                      end);
}

}  // namespace catchment
