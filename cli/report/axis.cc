#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/report/chart.h"
#include "common/base/text.h"

namespace catchment {

double Axis::At(double value) const {
  const double share =
      logarithmic_ ? std::log(value / low_) / std::log(high_ / low_) : (value - low_) / (high_ - low_);
  return from_ + share * (to_ - from_);
}

double Axis::Step(int wanted) const {
  const double rough = (high_ - low_) / wanted;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * 0.999) return factor * power;
  }
  return 10 * power;
}

std::vector<double> Axis::Ticks(int wanted) const {
  const double step = Step(wanted);
  std::vector<double> ticks;
  // Zero is added to make a negative zero positive: it would be written with its sign.
  for (double i = std::ceil(low_ / step - 1e-9); i * step <= high_ + 1e-9 * step; ++i)
    ticks.push_back(i * step + 0.0);
  return ticks;
}

std::string Axis::Label(double tick, int wanted, Unit unit) const {
  const double scale = unit == Unit::kPercent ? 100 : 1;
  const int decimals = std::max(0, static_cast<int>(-std::floor(std::log10(scale * Step(wanted)) + 1e-9)));
  if (unit == Unit::kPercent) return absl::StrFormat("%.*f %%", decimals, scale * tick);
  return decimals > 0 ? absl::StrFormat("%.*f", decimals, tick) : Count(std::llround(tick));
}

double RoundUp(double value, int wanted) {
  if (value <= 0) return 1;
  const std::vector<double> ticks = Axis(0, value, 0, 1).Ticks(wanted);
  const double step = ticks.size() > 1 ? ticks[1] : value;
  return step * std::ceil(value / step - 1e-9);
}

}  // namespace catchment
