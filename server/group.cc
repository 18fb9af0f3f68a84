#include "server/group.h"

#include <algorithm>

namespace catchment {

void Group::Add(Request contribution) {
  const Gate::Arrival arrival{contribution.worker, contribution.incarnation};
  const auto at = std::lower_bound(arrived_.begin(), arrived_.end(), arrival.worker,
                                   [](const Gate::Arrival& a, uint32_t worker) { return a.worker < worker; });
  const auto place = waiting_.begin() + (at - arrived_.begin());
  if (at != arrived_.end() && at->worker == arrival.worker) {
    *at = arrival;
    *place = std::move(contribution);
  } else {
    arrived_.insert(at, arrival);
    waiting_.insert(place, std::move(contribution));
  }
}

void Group::EraseIf(absl::FunctionRef<bool(const Request&)> condition) {
  if (std::erase_if(waiting_, condition) == 0) return;
  arrived_.clear();
  for (const Request& request : waiting_) arrived_.push_back({request.worker, request.incarnation});
}

void Group::Clear() {
  waiting_.clear();
  arrived_.clear();
}

}  // namespace catchment
