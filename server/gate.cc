#include "server/gate.h"

#include <algorithm>
#include <cstdint>

#include "common/job/consistency.h"

namespace catchment {
namespace {

bool HasArrived(absl::Span<const Gate::Arrival> arrived, const v1::Member& member) {
  const auto at = std::lower_bound(arrived.begin(), arrived.end(), member.worker(),
                                   [](const Gate::Arrival& a, uint32_t worker) { return a.worker < worker; });
  return at != arrived.end() && at->worker == member.worker() && at->incarnation == member.incarnation();
}

uint64_t Clock(const v1::Member& member, absl::Span<const Gate::Finished> finished) {
  const Gate::Finished& last = finished[member.worker()];
  return member.clock() + (last.incarnation == member.incarnation() ? last.pushes : 0);
}

}  // namespace

Gate::Gate(const v1::Algorithm& algorithm)
    : synchronous_(IsSynchronous(algorithm.consistency())),
      groups_(algorithm.consistency().groups()),
      spare_workers_(algorithm.consistency().spare_workers()),
      softsync_(algorithm.consistency().softsync()),
      delay_(algorithm.emulated_delay()),
      bounded_(algorithm.consistency().has_staleness_bound()),
      staleness_bound_(algorithm.consistency().staleness_bound()) {}

bool Gate::SetRosters(uint64_t generation, std::vector<v1::Roster> rosters) {
  if (generation <= generation_) return false;
  generation_ = generation;
  rosters_ = std::move(rosters);
  return true;
}

bool Gate::IsMember(uint32_t worker, uint64_t incarnation) const {
  for (const v1::Roster& roster : rosters_) {
    for (const v1::Member& member : roster.members()) {
      if (member.worker() == worker && member.incarnation() == incarnation) return true;
    }
  }
  return false;
}

uint32_t Gate::ActiveMembers(uint64_t version) const {
  const v1::Roster* roster = RosterOf(version);
  if (roster == nullptr) return 0;
  return std::count_if(roster->members().begin(), roster->members().end(),
                       [](const v1::Member& member) { return !member.idle(); });
}

Gate::Decision Gate::Decide(uint64_t version, uint32_t group, absl::Span<const Arrival> arrived) const {
  const v1::Roster* roster = RosterOf(version);
  if (roster == nullptr) return Decision::kWait;
  uint32_t active = 0, in = 0;
  for (const v1::Member& member : roster->members()) {
    if (member.idle() || GroupOf(member.worker()) != group) continue;
    ++active;
    in += HasArrived(arrived, member);
  }
  const uint32_t spare = active == 0 ? 0 : std::min(spare_workers_, active - 1);
  if (in < active - spare) return Decision::kWait;
  if (!arrived.empty()) return Decision::kUpdate;
  return synchronous_ && RosterAfter(version) != nullptr ? Decision::kSkip : Decision::kWait;
}

uint64_t Gate::SkipTo(uint64_t version) const { return RosterAfter(version)->from_version(); }

size_t Gate::Due(size_t waiting) const {
  if (softsync_ == 0) return waiting > delay_ ? 1 : 0;
  const size_t batch = std::max(1u, ActiveMembers(0) / softsync_);
  return waiting >= batch ? batch : 0;
}

uint64_t Gate::ClockOf(uint32_t worker, absl::Span<const Finished> finished) const {
  const v1::Roster* roster = RosterOf(0);
  if (roster == nullptr) return 0;
  for (const v1::Member& member : roster->members()) {
    if (member.worker() == worker) return Clock(member, finished);
  }
  return 0;
}

uint64_t Gate::HighestClock(absl::Span<const Finished> finished) const {
  const v1::Roster* roster = RosterOf(0);
  if (roster == nullptr) return UINT64_MAX;
  uint64_t slowest = UINT64_MAX - staleness_bound_;
  for (const v1::Member& member : roster->members()) {
    if (!member.idle()) slowest = std::min(slowest, Clock(member, finished));
  }
  return slowest + staleness_bound_;
}

const v1::Roster* Gate::RosterOf(uint64_t version) const {
  const v1::Roster* found = nullptr;
  for (const v1::Roster& roster : rosters_) {
    if (roster.from_version() <= version) found = &roster;
  }
  return found;
}

const v1::Roster* Gate::RosterAfter(uint64_t version) const {
  for (const v1::Roster& roster : rosters_) {
    if (roster.from_version() > version) return &roster;
  }
  return nullptr;
}

}  // namespace catchment
