#include "server/shard/group.h"

#include <algorithm>
#include <utility>

namespace catchment {

std::optional<Gate::Arrival> Group::Add(Request contribution) {
  const Gate::Arrival arrival{contribution.worker, contribution.incarnation};
  const auto at = std::lower_bound(arrived_.begin(), arrived_.end(), arrival.worker,
                                   [](const Gate::Arrival& a, uint32_t worker) { return a.worker < worker; });
  const auto place = waiting_.begin() + (at - arrived_.begin());
  if (at != arrived_.end() && at->worker == arrival.worker) {
    const bool overtaken =
        arrival.incarnation == at->incarnation && contribution.connection < place->connection;
    if (overtaken) return arrival;
    *place = std::move(contribution);
    return std::exchange(*at, arrival);
  }
  arrived_.insert(at, arrival);
  waiting_.insert(place, std::move(contribution));
  return std::nullopt;
}

void Group::EraseIf(absl::FunctionRef<bool(const Request&)> condition) {
  if (std::erase_if(waiting_, condition) == 0) return;
  arrived_.clear();
  for (const Request& request : waiting_) arrived_.push_back({request.worker, request.incarnation});
}

void Group::Clear() {
  waiting_.clear();
  arrived_.clear();
  tally_.in = 0;
}

}  // namespace catchment
