#include "cli/compare/halving.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"

namespace catchment {
namespace {

constexpr std::array<int, kMaxDimensions> kBases = {2, 3, 5, 7, 11, 13, 17, 19};
constexpr int kDigits = 4;

// Returns LOW..HIGH for two numbers with another sign between them, such as 0.001-1; empty for other texts.
std::string OtherRange(const std::string& text) {
  for (size_t i = 1; i < text.size(); ++i) {
    const absl::string_view low = absl::string_view(text).substr(0, i);
    const size_t end = std::min(text.find_first_not_of("-:~ to", i), text.size());
    // A minus may belong to the number that follows.
    for (size_t high = i + 1; high <= end; ++high) {
      double number;
      const std::string rest = text.substr(high);
      if (absl::SimpleAtod(low, &number) && absl::SimpleAtod(rest, &number) && rest[0] != ' ')
        return absl::StrCat(absl::StripAsciiWhitespace(low), "..", absl::StripAsciiWhitespace(rest));
    }
  }
  return "";
}

bool IsFinite(const TrialScore& score) { return std::isfinite(score.first) && std::isfinite(score.second); }

bool Contains(const std::vector<int>& trials, int trial) {
  return std::find(trials.begin(), trials.end(), trial) != trials.end();
}

// Returns the digits of `index` in a base, mirrored behind the point.
double Mirrored(int index, int base) {
  double value = 0, digit = 1.0 / base;
  for (; index > 0; index /= base, digit /= base) value += digit * (index % base);
  return value;
}

// Splits at the commas that are not within brackets, braces or quotes.
std::vector<std::string> SplitChoices(const std::string& text) {
  std::vector<std::string> choices(1);
  int depth = 0;
  char quote = 0;
  for (const char c : text) {
    if (quote != 0) {
      if (c == quote) quote = 0;
    } else if (c == '"' || c == '\'') {
      quote = c;
    } else if (c == '[' || c == '{') {
      ++depth;
    } else if (c == ']' || c == '}') {
      --depth;
    } else if (c == ',' && depth == 0) {
      choices.emplace_back();
      continue;
    }
    choices.back() += c;
  }
  return choices;
}

absl::Status Refuse(const std::string& reason) { return absl::InvalidArgumentError(reason); }

absl::Status CheckRange(const SearchDimension& dimension) {
  if (!std::isfinite(dimension.low) || !std::isfinite(dimension.high) || dimension.low >= dimension.high) {
    return Refuse(absl::StrCat(dimension.path, " has an empty range; the first number must be smaller"));
  }
  if (!dimension.logarithmic || dimension.low > 0) return absl::OkStatus();
  return Refuse(
      absl::StrCat(dimension.path,
                   " has a logarithmic range that does not start above 0; leave out log:, or start above 0"));
}

}  // namespace

std::vector<Rung> PlanRungs(int trials) {
  std::vector<Rung> rungs;
  for (; trials > 0; trials /= kHalvingFactor) rungs.push_back({trials, 1});
  double share = 1;
  for (auto rung = rungs.rbegin(); rung != rungs.rend(); ++rung, share /= kHalvingFactor) rung->share = share;
  return rungs;
}

double CostOf(const std::vector<Rung>& rungs) {
  double cost = 0;
  for (const Rung& rung : rungs) cost += rung.trials * rung.share;
  return cost;
}

std::vector<Rung> PlanRungsThatCost(int trials, double cost) {
  std::vector<Rung> rungs = PlanRungs(trials);
  if (rungs.size() > 1 && rungs.back().trials == 1) rungs.pop_back();
  const double all = CostOf(rungs);
  for (Rung& rung : rungs) rung.share *= cost / all;
  return rungs;
}

std::vector<int> BestTrials(const std::vector<int>& trials,
                            const std::vector<std::optional<TrialScore>>& scores, int keep) {
  std::vector<size_t> order;
  for (size_t i = 0; i < trials.size(); ++i) {
    if (scores[i].has_value() && IsFinite(*scores[i])) order.push_back(i);
  }
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return *scores[a] > *scores[b]; });
  if (order.size() > static_cast<size_t>(keep)) order.resize(keep);
  std::vector<int> best;
  best.reserve(order.size());
  for (const size_t i : order) best.push_back(trials[i]);
  return best;
}

Halving::Halving(std::vector<Rung> rungs, Promotion promotion, int kept)
    : rungs_(std::move(rungs)),
      promotion_(promotion),
      kept_(kept),
      begun_(rungs_.size()),
      ended_(rungs_.size()) {
  for (size_t i = 0; i < rungs_.size(); ++i) begun_[i].rung = rungs_[i];
}

std::vector<int> Halving::Candidates(int rung) const {
  if (rung == 0) {
    std::vector<int> all(rungs_.front().trials);
    std::iota(all.begin(), all.end(), 0);
    return all;
  }
  const RungResult& below = begun_[rung - 1];
  const int ended = ended_[rung - 1];
  const bool at_once = promotion_ == Promotion::kAtOnce;
  if (!at_once && ended < static_cast<int>(below.trials.size())) return {};
  const int places = at_once ? ended / kHalvingFactor : rungs_[rung].trials;
  const std::vector<int> order =
      BestTrials(below.trials, below.scores, static_cast<int>(below.trials.size()));
  std::vector<int> best(order.begin(), order.begin() + std::min(order.size(), static_cast<size_t>(places)));
  if (best.empty() || !Contains(order, kept_) || Contains(best, kept_)) return best;
  if (best.size() > 1) best.pop_back();
  best.push_back(kept_);
  return best;
}

std::vector<TrialRun> Halving::NextRuns() {
  std::vector<TrialRun> next;
  for (int rung = 0; rung < static_cast<int>(rungs_.size()); ++rung) {
    RungResult& begun = begun_[rung];
    for (const int trial : Candidates(rung)) {
      if (Contains(begun.trials, trial)) continue;
      begun.trials.push_back(trial);
      begun.scores.emplace_back();
      next.push_back({trial, rung});
    }
  }
  return next;
}

void Halving::Report(const TrialRun& run, std::optional<TrialScore> score) {
  RungResult& begun = begun_[run.rung];
  const auto place = std::find(begun.trials.begin(), begun.trials.end(), run.trial);
  begun.scores[place - begun.trials.begin()] = score;
  ++ended_[run.rung];
}

HalvingResult Halving::result() const {
  HalvingResult result;
  for (const RungResult& rung : begun_) {
    if (rung.trials.empty()) break;
    result.rungs.push_back(rung);
    const std::vector<int> best = BestTrials(rung.trials, rung.scores, 1);
    if (!best.empty()) result.best = best.front();
  }
  return result;
}

std::vector<double> TrialPoint(int trial, int dimensions) {
  std::vector<double> point;
  point.reserve(dimensions);
  for (int i = 0; i < dimensions; ++i) point.push_back(Mirrored(trial + 1, kBases[i]));
  return point;
}

absl::StatusOr<SearchDimension> ParseDimension(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    return Refuse("takes PATH=log:LOW..HIGH, PATH=LOW..HIGH or PATH=A,B,...");
  SearchDimension dimension{.path = text.substr(0, equals)};
  absl::string_view values = absl::string_view(text).substr(equals + 1);
  dimension.logarithmic = absl::ConsumePrefix(&values, "log:");
  const size_t dots = values.find("..");
  if (dots != absl::string_view::npos && absl::SimpleAtod(values.substr(0, dots), &dimension.low) &&
      absl::SimpleAtod(values.substr(dots + 2), &dimension.high)) {
    RETURN_IF_ERROR(CheckRange(dimension));
    return dimension;
  }
  if (dimension.logarithmic) return Refuse("takes two numbers after log:, such as log:0.001..1");
  dimension.choices = SplitChoices(std::string(values));
  for (const std::string& choice : dimension.choices) {
    if (choice.empty()) return Refuse("has an empty value; separate values by single commas");
    if (std::count(dimension.choices.begin(), dimension.choices.end(), choice) > 1)
      return Refuse(absl::StrCat("lists ", choice, " twice"));
  }
  if (dimension.choices.size() > 1) return dimension;
  if (const std::string range = OtherRange(dimension.choices.front()); !range.empty())
    return Refuse(absl::StrCat("a range is written with two points: ", dimension.path, "=", range, ", or ",
                               dimension.path, "=log:", range, " for equal ratios"));
  return Refuse("has one value, which leaves nothing to search; use --set for it");
}

std::string ValueAt(const SearchDimension& dimension, double coordinate) {
  if (const size_t n = dimension.choices.size(); n > 0)
    return dimension.choices[std::min(static_cast<size_t>(coordinate * n), n - 1)];
  const double low = dimension.logarithmic ? std::log(dimension.low) : dimension.low;
  const double high = dimension.logarithmic ? std::log(dimension.high) : dimension.high;
  double value = low + coordinate * (high - low);
  if (dimension.logarithmic) value = std::exp(value);
  if (!dimension.whole) return Short(value, kDigits);
  // Rounding must not leave the range.
  return absl::StrCat(static_cast<int64_t>(
      std::clamp(std::round(value), std::ceil(dimension.low), std::floor(dimension.high))));
}

std::optional<double> Importance(const std::vector<double>& coordinates, const std::vector<double>& scores,
                                 int groups) {
  struct Group {
    double n = 0, sum = 0;
  };
  std::vector<Group> all(groups);
  double n = 0, sum = 0, squares = 0;
  for (size_t i = 0; i < scores.size(); ++i) {
    Group& group = all[std::min(static_cast<int>(coordinates[i] * groups), groups - 1)];
    ++group.n, group.sum += scores[i];
    ++n, sum += scores[i], squares += scores[i] * scores[i];
  }
  const double total = squares - sum * sum / n;
  double between = -sum * sum / n, used = 0;
  for (const Group& group : all) {
    if (group.n == 0) continue;
    ++used;
    between += group.sum * group.sum / group.n;
  }
  if (n <= used || !(total > 1e-12 * squares)) return std::nullopt;
  const double within = (total - between) / (n - used);
  return std::clamp((between - (used - 1) * within) / total, 0.0, 1.0);
}

}  // namespace catchment
