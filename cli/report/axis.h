// A linear axis: where values lie, and the round numbers along it.
#ifndef CATCHMENT_CLI_REPORT_AXIS_H_
#define CATCHMENT_CLI_REPORT_AXIS_H_

#include <string>
#include <vector>

namespace catchment {

enum class Unit { kNumber, kPercent };

class Axis {
 public:
  // Values low..high, low < high, lie between the pixels from..to.
  Axis(double low, double high, double from, double to) : low_(low), high_(high), from_(from), to_(to) {}

  double At(double value) const { return from_ + (value - low_) / (high_ - low_) * (to_ - from_); }
  double low() const { return low_; }
  double high() const { return high_; }

  // Multiples of 1, 2 or 5 times a power of ten, about `wanted` of them.
  std::vector<double> Ticks(int wanted) const;
  // With as many digits as the ticks need: "0.5", "120,000", "97.5 %", "1.2M".
  std::string Label(double tick, int wanted, Unit unit) const;

 private:
  double Step(int wanted) const;

  double low_;
  double high_;
  double from_;
  double to_;
};

// The next tick of an axis 0..value of about `wanted` ticks, so that the highest value has a line above it.
double RoundUp(double value, int wanted);

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_AXIS_H_
