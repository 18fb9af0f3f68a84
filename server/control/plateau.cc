#include "server/control/plateau.h"

#include <algorithm>
#include <limits>

namespace catchment {

Plateau::Plateau(const v1::Schedule& schedule, const v1::PlateauState& from)
    : schedule_(schedule), state_(from) {
  if (!state_.has_best()) state_.set_best(std::numeric_limits<double>::infinity());
  if (!state_.has_factor()) state_.set_factor(1);
}

bool Plateau::Observe(double loss) {
  if (loss < (1 - double{schedule_.threshold()}) * state_.best()) {
    state_.set_best(loss);
    state_.set_bad(0);
    return false;
  }
  state_.set_bad(state_.bad() + 1);
  if (state_.bad() <= schedule_.patience()) return false;
  state_.set_bad(0);
  const double before = factor();
  state_.set_factor(std::max(before * double{schedule_.factor()}, double{schedule_.final_fraction()}));
  return factor() < before;
}

}  // namespace catchment
