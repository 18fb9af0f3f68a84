#include "server/shard/group.h"

#include <algorithm>
#include <utility>

namespace catchment {

std::optional<Gate::Arrival> Group::Add(WaitingContribution waiting) {
  const Envelope& envelope = waiting.envelope;
  const Gate::Arrival arrival{envelope.worker, envelope.incarnation};
  const auto at = std::lower_bound(arrived_.begin(), arrived_.end(), arrival.worker,
                                   [](const Gate::Arrival& a, uint32_t worker) { return a.worker < worker; });
  const auto place = waiting_.begin() + (at - arrived_.begin());
  if (at != arrived_.end() && at->worker == arrival.worker) {
    const bool overtaken =
        arrival.incarnation == at->incarnation && envelope.connection < place->envelope.connection;
    if (overtaken) return arrival;
    // A contribution that is sent again has the values that are in the sum.
    if (place->added) {
      place->envelope = std::move(waiting.envelope);
    } else {
      *place = std::move(waiting);
    }
    return std::exchange(*at, arrival);
  }
  arrived_.insert(at, arrival);
  waiting_.insert(place, std::move(waiting));
  return std::nullopt;
}

bool Group::HasAdded(absl::FunctionRef<bool(const Envelope&)> condition) const {
  return std::any_of(waiting_.begin(), waiting_.end(), [&](const WaitingContribution& waiting) {
    return waiting.added && condition(waiting.envelope);
  });
}

void Group::EraseIf(absl::FunctionRef<bool(const WaitingContribution&)> condition) {
  if (std::erase_if(waiting_, condition) == 0) return;
  tally_.generation = 0;
  arrived_.clear();
  for (const WaitingContribution& waiting : waiting_) {
    arrived_.push_back({waiting.envelope.worker, waiting.envelope.incarnation});
  }
}

void Group::Clear() {
  waiting_.clear();
  arrived_.clear();
  tally_.in = 0;
  tally_.round = {};
  tally_.late.clear();
  sum_ = {};
}

}  // namespace catchment
