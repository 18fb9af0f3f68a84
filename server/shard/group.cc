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
    *place = std::move(waiting);
    return std::exchange(*at, arrival);
  }
  arrived_.insert(at, arrival);
  waiting_.insert(place, std::move(waiting));
  return std::nullopt;
}

void Group::EraseIf(absl::FunctionRef<bool(const Envelope&)> condition) {
  const auto erased = [&](const WaitingContribution& waiting) { return condition(waiting.envelope); };
  if (std::erase_if(waiting_, erased) == 0) return;
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
}

}  // namespace catchment
